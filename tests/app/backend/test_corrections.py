"""What happened corrects the next estimate, by no more than one run can tell."""

import math
from dataclasses import replace

import pytest

from analyses._steps import Cost
from app.backend.corrections import MOST, MOST_BYTES, Corrections


def test_nothing_learnt_changes_nothing_and_each_analysis_learns_for_itself():
    learnt = Corrections()
    learnt.took("lens", 10.0, 20.0)
    learnt.ran_out("lens")
    cost = Cost(4.0, 1000, 10)
    assert learnt.apply("attention", cost) == cost
    assert learnt.apply("lens", cost) == replace(cost, seconds=4.0 * 2**0.3, peak_bytes=1500)


def test_repeated_runs_approach_the_ratio_and_follow_a_change():
    learnt = Corrections()
    for _ in range(20):
        learnt.took("lens", 10.0, 30.0)
    assert learnt.seconds["lens"] == pytest.approx(3.0, rel=0.01)
    for _ in range(20):
        learnt.took("lens", 10.0, 5.0)
    assert learnt.seconds["lens"] == pytest.approx(0.5, rel=0.01)


def test_short_runs_weigh_in_proportion():
    """A thousand runs of a millisecond of which each took ten times as long say as much as three runs of a second."""
    learnt = Corrections()
    learnt.took("lens", 0.001, 0.01)
    assert math.log(learnt.seconds["lens"]) == pytest.approx(0.3 * 0.01 * math.log(10))


@pytest.mark.parametrize(("actual", "bound"), [(1e9, MOST), (1e-9, 1 / MOST)])
def test_a_strange_measurement_is_bounded(actual, bound):
    learnt = Corrections()
    for _ in range(100):
        learnt.took("lens", 1.0, actual)
    assert learnt.seconds["lens"] == pytest.approx(bound)


def test_memory_that_ran_out_raises_the_estimate_by_half_each_time_up_to_a_bound():
    learnt = Corrections()
    for _ in range(2):
        learnt.ran_out("lens")
    assert learnt.bytes["lens"] == 2.25
    for _ in range(50):
        learnt.ran_out("lens")
    assert learnt.bytes["lens"] == MOST_BYTES


def test_costs_and_times_of_zero_teach_nothing():
    learnt = Corrections()
    learnt.took("lens", 0.0, 1.0)
    learnt.took("lens", 1.0, 0.0)
    assert not learnt.seconds


def test_the_next_worker_and_the_server_take_over_what_was_learnt():
    learnt, other = Corrections(), Corrections()
    learnt.took("lens", 1.0, 2.0)
    learnt.ran_out("lens")
    other.learn(learnt.seconds, learnt.bytes)
    assert other.apply("lens", Cost(1.0, 100, 1)) == learnt.apply("lens", Cost(1.0, 100, 1))
