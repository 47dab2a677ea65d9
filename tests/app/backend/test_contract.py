"""One contract, every transport: what a page may rely on, whoever owns the model."""

import time

import numpy as np
import pytest
import torch

from analyses.model import load_model
from app.backend.client import RemoteBackend
from app.backend.protocol import Refused, Request, Who
from tests.saved import save_tiny
from tests.tiny import PROMPT

ANALYSES = "tests.app.backend.suite:ANALYSES"
ANN, BOB = Who("ann", "page"), Who("bob", "page")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return str(save_tiny("llama", tmp_path_factory.mktemp("tiny") / "llama"))


@pytest.fixture(scope="session")
def model(folder):
    return load_model(folder)


@pytest.fixture(scope="module", params=["thread", "process"])
def backend(request, folder, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMSCOPE_LIMIT_SECONDS", "100000")
        patch.setenv("STREAMSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))  # the profile is measured here
        if request.param == "process":
            patch.setenv("STREAMSCOPE_TEST_CHILD", "1")
        made = RemoteBackend(request.param, analyses=ANALYSES, source=folder)
        wait_until(lambda: made.status().model or made.status().error)
        assert made.status().error == ""
        yield made
        made.close()


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    return found


def wait_until_running(job):
    while (event := job.poll(60)).kind != "progress":
        assert event.kind == "queued", event


def clean(backend):
    """No job left, no hook on the model, no grad mode: read after a small request, so after the owner's last turn."""
    backend.submit(Request("steer", PROMPT, {"amount": float(time.monotonic())}), Who("check", "clean")).result(60)
    return wait_until(lambda: (found := backend.stats()).waiting == 0 and found)


def steered(model, amount, layer=1):
    """The same number without our hooks: transformers' own module, a torch hook of our own."""

    def add(module, arguments, keywords):
        return (arguments[0] + amount, *arguments[1:]), keywords

    block = model._bridge.blocks[layer]
    handle = block.register_forward_pre_hook(add, with_kwargs=True)
    try:
        with torch.inference_mode():
            return model.forward(PROMPT, last_only=True)[0, -1].numpy()
    finally:
        handle.remove()


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
    [("bug", "internal", "failed"), ("value", "bad_request", "found b"), ("memory", "out_of_memory", "more memory")],
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


def test_an_estimate_needs_no_computation(backend):
    short, long = (backend.estimate(Request("sweep", PROMPT, {"times": times})).seconds for times in (1, 1000))
    assert 0 < short < long


def test_a_worker_that_dies_comes_back_and_so_do_the_waiting_jobs(backend, model, tmp_path):
    before = backend.stats()
    killer = backend.submit(Request("kill", PROMPT, {"flag": str(tmp_path / "died")}), Who("mallory", "page"))
    waiting = [
        backend.submit(Request("steer", PROMPT, {"amount": 3.0 + n}), Who(f"user {n}", "page")) for n in range(3)
    ]
    for n, job in enumerate(waiting):
        np.testing.assert_allclose(job.result(120).values, steered(model, 3.0 + n), atol=1e-4)
    assert killer.result(120).values.tolist() == [1.0], "its second run finds the flag and ends well"
    after = backend.stats()
    assert after.restarts == before.restarts + 1
    if backend.transport == "process":
        assert after.pid != before.pid


def test_a_request_that_ends_two_workers_is_refused(backend):
    with pytest.raises(Refused, match="ended the model's process twice") as caught:
        backend.submit(Request("kill", PROMPT), Who("mallory", "page")).result(120)
    assert caught.value.code == "worker_died"
    assert backend.submit(Request("steer", PROMPT, {"amount": 9.0}), ANN).result(120).values.shape


def test_another_model_opens_beside_the_loaded_one_and_a_bad_one_changes_nothing(backend, folder, tmp_path):
    (before,) = backend.models()
    backend.open(str(tmp_path / "nothing here"))
    wait_until(lambda: backend.status().error)
    assert "nothing here" in backend.status().error and "Traceback" not in backend.status().error
    assert backend.models()[0].config == before.config
    assert backend.submit(Request("steer", PROMPT, {"amount": 11.0}), ANN).result(60).values.shape

    other = save_tiny("gpt2", tmp_path / "gpt2")
    backend.open(str(other))
    assert backend.status().opening
    backend.cancel_open()
    assert backend.status().opening == "" and backend.models()[0].config == before.config

    long = backend.submit(Request("sweep", PROMPT, {"times": 1000}), ANN)
    backend.open(str(other))
    wait_until(lambda: backend.models()[0].config.family == "gpt2")
    assert long.result(120).values.shape == (1,), "a job of the old model finishes there"
    backend.open(folder)
    wait_until(lambda: backend.models()[0].config.family == "llama" or backend.status().error)
    assert backend.status().error == ""


def test_a_job_that_waits_for_a_new_worker_can_be_cancelled_and_one_of_a_replaced_model_too(backend, folder, tmp_path):
    backend.submit(Request("kill", PROMPT, {"flag": str(tmp_path / "died")}), Who("mallory", "page"))
    wait_until(lambda: not backend.models())
    waiting = backend.submit(Request("sweep", PROMPT, {"times": 100_000}), ANN)
    waiting.cancel()
    with pytest.raises(Refused) as caught:
        waiting.result(10)
    assert caught.value.code == "cancelled"

    wait_until(backend.models)
    running = backend.submit(Request("sweep", PROMPT, {"times": 100_000}), ANN)
    wait_until_running(running)
    (before,) = backend.models()
    backend.open(str(save_tiny("gpt2", tmp_path / "gpt2")))
    wait_until(lambda: backend.models()[0].config.fingerprint != before.config.fingerprint)
    running.cancel()
    with pytest.raises(Refused) as caught:
        running.result(60)
    assert caught.value.code == "cancelled"
    wait_until(lambda: len(backend._sessions) == 1)  # the replaced worker has ended
    backend.open(folder)
    wait_until(lambda: backend.models()[0].config.fingerprint == before.config.fingerprint)
