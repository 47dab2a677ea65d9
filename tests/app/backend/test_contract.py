"""One contract, every transport: what a page may rely on, whoever owns the model."""

import numpy as np
import pytest

from app.backend.protocol import Refused, Request, Who
from tests.app.backend.helpers import ANN, BOB, clean, steered, wait_until, wait_until_running
from tests.tiny import PROMPT


def test_results_equal_the_models_own(backend, model):
    for amount in (0.0, 0.7):
        found = backend.submit(Request("steer", PROMPT, {"amount": amount}), ANN).result(60)
        np.testing.assert_allclose(found.values, steered(model, amount), atol=1e-5)


def test_what_is_loaded_is_known(backend, model):
    (info,) = backend.models()
    assert info.config == model.config
    assert dict(info.capabilities) == dict(model.capabilities)
    assert info.checks == model.checks
    assert info.vocabulary.piece(PROMPT[1]) == b'"' or info.vocabulary.piece(PROMPT[1])
    assert info.profile.forward_seconds(100) > 0


def test_tokens_equal_the_tokenizers_own(backend, model):
    found = backend.tokenize("The cat\n 🙂", bos="none")
    assert found.ids == tuple(model.tokenizer("The cat\n 🙂", add_special_tokens=False).input_ids)
    assert b"".join(found.pieces).decode() == "The cat\n 🙂"
    with pytest.raises(ValueError, match="needs .*; found .*;"):
        backend.tokenize("x", bos="nonsense")


def test_progress_arrives_and_counts_up(backend):
    job = backend.submit(Request("sweep", PROMPT, {"times": 40}), ANN)
    seen = []
    while (event := job.poll(30)).kind != "done":
        if event.kind == "progress":
            seen.append(event.progress.done)
            assert event.progress.total == 40 and event.progress.partial["passes"] == event.progress.done
    assert seen == sorted(seen) and seen
    assert job.poll(0).kind == "done", "the final event can be read again"


def test_the_same_request_costs_once_even_at_the_same_time(backend):
    request = Request("sweep", PROMPT, {"times": 61})
    before = backend.stats().finished
    jobs = [backend.submit(request, Who(f"student {n}", "page")) for n in range(20)]
    values = [job.result(60).values for job in jobs]
    assert all((value == values[0]).all() for value in values)
    again = backend.submit(request, BOB)
    wait_until(lambda: again.poll(1))
    assert again.poll(0).cached
    assert backend.stats().finished == before + 1


def test_a_newer_job_on_a_slot_cancels_the_older_one(backend):
    old = backend.submit(Request("sweep", PROMPT, {"times": 100_000}), ANN)
    wait_until_running(old)
    other = backend.submit(Request("sweep", PROMPT, {"times": 33}), Who("ann", "another place"))
    new = backend.submit(Request("sweep", PROMPT, {"times": 3}), ANN)
    assert new.result(60).values.shape == (1,)
    with pytest.raises(Refused, match="newer") as caught:
        old.result(60)
    assert caught.value.code == "cancelled"
    assert other.result(60).values.shape == (1,), "another slot of the same user is left alone"


def test_cancel_stops_a_running_job_and_leaves_nothing_behind(backend):
    plain = backend.submit(Request("steer", PROMPT, {"amount": 0.0}), ANN).result(60).values
    job = backend.submit(Request("sweep", PROMPT, {"times": 100_000}), ANN)
    wait_until_running(job)
    job.cancel()
    with pytest.raises(Refused) as caught:
        job.result(60)
    assert caught.value.code == "cancelled"
    job.cancel()  # harmless
    found = clean(backend)
    assert (found.hooks, found.grad_enabled) == (0, False)
    again = backend.submit(Request("steer", PROMPT, {"amount": 0.0, "layer": 2}), ANN).result(60).values
    np.testing.assert_array_equal(again, plain)


def test_a_shared_computation_goes_on_until_its_last_waiter_leaves(backend):
    request = Request("sweep", PROMPT, {"times": 100})
    first, second = backend.submit(request, ANN), backend.submit(request, BOB)
    first.cancel()
    with pytest.raises(Refused):
        first.result(60)
    assert second.result(60).values.shape == (1,)


def test_two_users_with_different_interventions_never_see_each_others_numbers(backend, model):
    expected = {amount: steered(model, amount) for amount in (0.0, 0.5, -1.5)}
    jobs = []
    for round_ in range(8):
        for user, amount in enumerate(expected):
            # A different layer argument every second round, so that not everything comes from the cache.
            params = {"amount": amount, "layer": 1 + round_ % 2}
            jobs.append((params, backend.submit(Request("steer", PROMPT, params), Who(f"user {user}", f"{round_}"))))
    for params, job in jobs:
        want = expected[params["amount"]] if params["layer"] == 1 else steered(model, params["amount"], layer=2)
        np.testing.assert_allclose(job.result(60).values, want, atol=1e-5)


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("bug", "internal", "failed"),
        ("value", "bad_request", "found b"),
        ("memory", "out_of_memory", "more memory"),
        ("cuda memory", "out_of_memory", "more memory"),
    ],
)
def test_an_analysis_that_fails_is_one_sentence_and_leaves_no_hook(backend, how, code, words):
    with pytest.raises(Refused, match=words) as caught:
        backend.submit(Request("fail", PROMPT, {"how": how}), ANN).result(60)
    assert caught.value.code == code
    assert clean(backend).hooks == 0


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("nonsense", PROMPT), "needs one of: .*sweep.*; found nonsense"),
        (Request("sweep", PROMPT, {"no_such": 1}), "does not take these parameters"),
        (Request("impossible", PROMPT), "telepathy"),
        (Request("steer", ()), "at least 1 token"),
        (Request("steer", (10**6,)), "found 1,000,000"),
        (Request("unsendable", PROMPT), "could not be sent"),
        (Request("sweep", PROMPT, {"times": 10**9}), "needs about .*limit"),
        (Request("sweep", PROMPT, {}, "another model"), "The model has changed"),
    ],
)
def test_what_cannot_be_done_is_said(backend, request_, words):
    with pytest.raises(Refused, match=words):
        backend.submit(request_, ANN).result(60)


def test_a_timeout_is_a_cancel(backend):
    job = backend.submit(Request("sweep", PROMPT, {"times": 100_000}), ANN)
    with pytest.raises(Refused, match="no result within"):
        job.result(0.2)
    assert clean(backend).waiting == 0


def test_a_person_with_enough_waiting_is_told_to_come_back_and_others_are_let_in(backend):
    rows = [Request("sweep", PROMPT, {"times": 100_000 + n}) for n in range(4)]
    jobs = [backend.submit(request, Who("ann", f"tab {n}")) for n, request in enumerate(rows)]
    with pytest.raises(Refused, match="at most 3 long requests of one person at a time; found 3 of yours") as caught:
        jobs[3].result(60)
    assert caught.value.code == "busy"
    assert backend.submit(Request("sweep", PROMPT, {"times": 2}), BOB).result(60).values.shape == (1,)
    joined = backend.submit(rows[0], Who("ann", "tab 5"))
    wait_until_running(joined)  # what is being computed anyway costs nothing
    for job in (*jobs, joined):
        job.cancel()


def test_what_happened_corrects_the_next_estimate(backend):
    request = Request("stall", PROMPT, {"seconds": 0.5, "says": 0.1})
    before = backend.estimate(request).seconds
    backend.submit(request, ANN).result(60)
    after = backend.estimate(request).seconds
    # 0.5 s counts half of 0.3: the logarithm moves 15 % of the way from 0.1 to what it took, here or on a slower machine.
    assert before * 1.2 < after < before * 1.6


def test_full_memory_raises_the_next_estimate_of_that_analysis_alone(backend):
    other = Request("sweep", PROMPT)
    full = Request("fail", PROMPT, {"how": "cuda memory"})
    before, before_other = backend.estimate(full).peak_bytes, backend.estimate(other).peak_bytes
    with pytest.raises(Refused):
        backend.submit(full, ANN).result(60)
    assert backend.estimate(full).peak_bytes == pytest.approx(1.5 * before, abs=1)
    assert backend.estimate(other).peak_bytes == before_other


def test_an_estimate_needs_no_computation(backend):
    short, long = (backend.estimate(Request("sweep", PROMPT, {"times": times})).seconds for times in (1, 1000))
    assert 0 < short < long
