"""A request that does not fit is refused before it runs, with the number, the limit and a way that fits."""

from dataclasses import replace

import pytest

from analyses._steps import Analysis, Cost, Profile
from app.backend.admission import Line, admit, duration, size
from app.backend.corrections import Corrections
from app.backend.limits import Limits
from app.backend.protocol import Refused, Request

PROFILE = Profile(0.0, 0.01, 0.0, 0.0, n_layers=2, n_heads=2, d_model=8, d_vocab=50, n_ctx=1000)
WIDE = Limits(seconds=1000.0, bytes=10**12, result_bytes=10**12)


def analysis(bytes_per_token=10, result_per_token=10):
    """Costs 10 ms per token and per deleted layer or new token."""

    def cost(profile, n_tokens, params):
        if "wrong" in params:
            raise ValueError("needs a; found b; do c.")
        times = len(params.get("deleted", "1")) * params.get("max_new_tokens", 1)
        return Cost(profile.forward_seconds(n_tokens) * times, n_tokens * bytes_per_token, n_tokens * result_per_token)

    return Analysis(steps=lambda: None, cost=cost, result=dict)


def ask(n_tokens, limits=WIDE, line=Line(), learnt=None, bytes_per_token=10, result_per_token=10, **params):  # noqa: B008
    request = Request("x", (1,) * n_tokens, params)
    return admit(request, analysis(bytes_per_token, result_per_token), PROFILE, limits, learnt or Corrections(), line)


def refusal(*arguments, **options):
    with pytest.raises(Refused) as caught:
        ask(*arguments, **options)
    return caught.value.code, caught.value.message


def test_what_fits_passes_and_returns_its_estimate():
    assert ask(100, replace(WIDE, seconds=1.0, bytes=1000)) == Cost(1.0, 1000, 1000)


def test_too_many_seconds_names_number_limit_and_the_longest_prompt_that_fits():
    assert refusal(900, replace(WIDE, seconds=2.0)) == (
        "too_large",
        "needs about 9.0 s here; the limit is 2.0 s (900 tokens); use at most 200 tokens.",
    )


def test_too_many_bytes_too():
    _, message = refusal(900, replace(WIDE, bytes=10**9), bytes_per_token=10**7)
    assert message == "needs about 9.0 GB of memory; 1.0 GB may be used (900 tokens); use at most 100 tokens."


def test_and_a_result_that_is_too_large():
    _, message = refusal(900, replace(WIDE, result_bytes=16 * 10**6), result_per_token=10**5)
    assert message == "needs a result of about 90.0 MB; the limit is 16.0 MB (900 tokens); use at most 160 tokens."


def test_other_ways_that_fit_are_named_and_do_fit():
    limits = replace(WIDE, seconds=2.0)
    _, message = refusal(100, limits, deleted=[[0], [1], [2]])
    assert message.endswith("; use at most 66 tokens or at most 2 for deleted.")
    ask(100, limits, deleted=[[0], [1]])
    _, message = refusal(50, limits, max_new_tokens=10)
    assert message.endswith("; use at most 20 tokens or at most 4 for max_new_tokens.")
    ask(50, limits, max_new_tokens=4)


def test_when_not_even_one_token_fits():
    _, message = refusal(5, replace(WIDE, seconds=0.001))
    assert message.endswith("(5 tokens); choose a smaller view.")


def test_what_was_learnt_decides_and_is_said():
    learnt = Corrections()
    learnt.learn({"x": 4.0}, {})
    assert ask(100, learnt=learnt).seconds == 4.0
    _, message = refusal(900, replace(WIDE, seconds=20.0), learnt=learnt)
    assert message.startswith("needs about 36 s here") and message.endswith("at most 500 tokens.")


def test_a_bad_parameter_is_a_bad_request_not_a_crash():
    assert refusal(1, wrong=1) == ("bad_request", "needs a; found b; do c.")


def test_long_and_short_requests_of_one_person_are_counted_apart():
    limits = replace(WIDE, heavy_seconds=2.0, heavy_jobs=1, light_jobs=2)
    line = Line(heavy=1, light=1, seconds=31.0)
    assert refusal(300, limits, line) == (
        "busy",
        "needs at most 1 long requests of one person at a time; found 1 of yours, about 31 s of work; "
        "wait for one of them or stop it.",
    )
    assert ask(100, limits, line).seconds == 1.0
    assert refusal(100, limits, replace(line, light=2))[0] == "busy"


def test_waiting_work_of_one_person_is_bounded_but_one_request_always_passes():
    limits = replace(WIDE, user_seconds=10.0)
    assert ask(2000, limits).seconds == 20.0
    _, message = refusal(800, limits, Line(heavy=1, seconds=5.0))
    assert "found 5.0 s of yours and 8.0 s more; try again in about 3.0 s" in message


def test_a_short_request_does_not_wait_for_long_ones_so_it_is_let_in_where_a_long_one_is_not():
    limits, crowd = replace(WIDE, wait_seconds=60.0), Line(others=(120.0,) * 39)
    assert crowd.wait(0.2) == pytest.approx(39 * 0.7)  # from each other person as much as it needs, and a turn
    assert ask(20, limits, crowd).seconds == pytest.approx(0.2)
    code, message = refusal(2000, limits, crowd)
    assert code == "busy"
    assert "found 39 others before you, about 13 min; try again in about 12 min or ask for less" in message


def test_what_begun_requests_hold_counts_against_the_memory():
    limits = replace(WIDE, bytes=1000)
    assert ask(60, limits).peak_bytes == 600
    code, message = refusal(60, limits, Line(held_bytes=500))
    assert code == "busy" and "try again when they are done" in message


def test_numbers_as_people_say_them():
    assert [duration(s) for s in (0.44, 9.96, 12.3, 99.0, 240.0, 9000.0)] == [
        "0.4 s",
        "10.0 s",
        "12 s",
        "99 s",
        "4 min",
        "2 h",
    ]
    assert [size(n) for n in (9.62e9, 16 << 20, 1e8)] == ["9.6 GB", "16.8 MB", "0.1 GB"]


def test_what_is_kept_for_everybody_may_take_ten_times_as_long():
    request, limits = Request("x", (1,) * 900, {}), replace(WIDE, seconds=1.0, user_seconds=2.0)
    arguments = (PROFILE, limits, Corrections(), Line())
    assert admit(request, replace(analysis(), kept=True), *arguments).seconds == pytest.approx(9.0)
    with pytest.raises(Refused, match="needs about 9.0 s here; the limit is 1.0 s"):
        admit(request, analysis(), *arguments)
    with pytest.raises(Refused, match="needs about 9.0 s here; the limit is 5.0 s"):
        admit(request, replace(analysis(), kept=True), PROFILE, replace(limits, seconds=0.5), Corrections(), Line())
