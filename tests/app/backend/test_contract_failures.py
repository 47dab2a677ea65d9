"""One contract, every transport: deaths, stalls, full memory, another model. What a page sees, and what is left behind."""

import gc
import os
import re
import weakref
from dataclasses import replace

import numpy as np
import psutil
import pytest

from app.backend.protocol import Refused, Request, Who
from tests.app.backend.helpers import ANN, BOB, steered, wait_until, wait_until_running
from tests.saved import save_tiny
from tests.tiny import PROMPT


def record_loads(monkeypatch):
    """Weak references to every model that a thread of this process loads from now on."""
    from analyses import model

    loaded, load = [], model.load_model

    def recording(*arguments, **options):
        found = load(*arguments, **options)
        loaded.append(weakref.ref(found))
        return found

    monkeypatch.setattr(model, "load_model", recording)
    return loaded


def one_of_many(backend, number):
    """A request of one of six kinds: small, longer, cancelled, failing, refused, a text to split."""
    who = Who(f"user {number % 7}", "page")
    match number % 6:
        case 0:
            backend.submit(Request("steer", PROMPT, {"amount": 0.001 * number}), who).result(60)
        case 1:
            backend.submit(Request("sweep", PROMPT[: 3 + number % 9], {"times": 1 + number % 5}), who).result(60)
        case 2:
            job = backend.submit(Request("sweep", PROMPT, {"times": 10_000 + number}), who)
            wait_until_running(job)
            job.cancel()
        case 3 | 4 as kind:
            params = {"how": "bug"} if kind == 3 else {"no_such": number}
            with pytest.raises(Refused):
                backend.submit(Request("fail", PROMPT, params), who).result(60)
        case 5:
            backend.tokenize(f"{number} is a number " * 20)


def how_it_ends(job):
    """The code of its refusal."""
    with pytest.raises(Refused) as caught:
        job.result(60)
    return caught.value.code


def test_memory_does_not_grow_with_the_number_of_requests(backend):
    if backend.transport == "thread":
        pytest.skip("server and worker are one process here; the other transport is the one that serves for days")
    measured = (psutil.Process(os.getpid()), psutil.Process(backend.stats().pid))
    for number in range(500):
        if number == 100:
            before = [process.memory_info().rss for process in measured]
        one_of_many(backend, number)
    gc.collect()
    grown = [process.memory_info().rss - old for process, old in zip(measured, before, strict=True)]
    assert max(grown) < 50e6, f"server and child grew by {grown} bytes"


def test_a_worker_that_dies_comes_back_and_so_do_the_waiting_jobs_except_a_cancelled_one(backend, model, tmp_path):
    before = backend.stats()
    killer = backend.submit(Request("kill", PROMPT, {"flag": str(tmp_path / "died")}), Who("mallory", "page"))
    waiting = [
        backend.submit(Request("steer", PROMPT, {"amount": 3.0 + n}), Who(f"user {n}", "page")) for n in range(3)
    ]
    wait_until(lambda: not backend.models())
    given_up = backend.submit(Request("sweep", PROMPT, {"times": 100_000}), ANN)
    given_up.cancel()
    assert how_it_ends(given_up) == "cancelled", "before there is a new worker"
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


def test_a_worker_that_stalls_is_ended_and_started_again_but_not_one_whose_long_step_was_announced(backend, tmp_path):
    before = backend.stats()
    backend.watchdog.seconds = 0.4
    try:
        announced = Request("stall", PROMPT, {"seconds": 2.0, "says": 2.0})
        assert backend.submit(announced, ANN).result(60).values.tolist() == [2.0]
        assert backend.stats().restarts == before.restarts
        silent = Request("stall", PROMPT, {"seconds": 20.0, "flag": str(tmp_path / "stalled")})
        job = backend.submit(silent, ANN)
        wait_until(lambda: not backend.models())
    finally:
        backend.watchdog.seconds = 30.0
    assert job.result(120).values.tolist() == [20.0], "it is sent once more, finds the flag and ends well"
    after = backend.stats()
    assert after.restarts == before.restarts + 1
    assert backend.transport == "thread" or not psutil.pid_exists(before.pid)


def test_a_second_model_that_does_not_fit_is_refused_with_both_numbers(backend, folder):
    (before,) = backend.models()
    limits, backend.limits = backend.limits, replace(backend.limits, model_bytes=1_000_000)
    try:
        backend.open(folder)
        wait_until(lambda: backend.status().error)
    finally:
        backend.limits = limits
    assert re.search(
        r"needs about 0\.4 GB for .* beside the 0\.\d MB of the open model; found a limit", backend.status().error
    )
    assert backend.models()[0].config == before.config
    assert backend.submit(Request("steer", PROMPT, {"amount": 13.0}), ANN).result(60).values.shape


def test_another_model_opens_beside_the_loaded_one_and_a_bad_one_changes_nothing(
    backend, folder, tmp_path, monkeypatch
):
    loaded = record_loads(monkeypatch)
    old_pid = backend.stats().pid
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

    long = backend.submit(Request("sweep", PROMPT, {"times": 500}), ANN)
    endless = backend.submit(Request("sweep", PROMPT, {"times": 100_000}), BOB)
    backend.open(str(other))
    wait_until(lambda: backend.models()[0].config.family == "gpt2")
    endless.cancel()
    assert how_it_ends(endless) == "cancelled", "by the worker that has been replaced"
    assert long.result(120).values.shape == (1,), "a job of the old model finishes there"
    if backend.transport == "process":
        wait_until(lambda: not psutil.pid_exists(old_pid))
    wait_until(lambda: len(backend._sessions) == 1)  # the replaced worker has ended
    backend.open(folder)
    wait_until(lambda: backend.models()[0].config.family == "llama" or backend.status().error)
    assert backend.status().error == ""
    if backend.transport == "thread":  # in a process of its own, the memory goes with the process
        old, new = loaded[-2:]
        wait_until(lambda: gc.collect() >= 0 and old() is None)
        assert new() is not None
