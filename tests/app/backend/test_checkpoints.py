"""Requests for different training steps of one model: they take turns and none gets another's weights."""

import threading
import time

import numpy as np
import pytest

from analyses._arrays import to_float32
from analyses._steps import Analysis, Cost, Profile, Progress
from analyses.model import load_model
from app.backend.client import RemoteBackend
from app.backend.limits import Limits
from app.backend.protocol import Refused, Request, Who
from app.backend.worker import Worker
from tests.app.backend.helpers import wait_until
from tests.app.backend.suite import Numbers
from tests.app.backend.test_worker import Final

PROFILE = Profile(0.01, 0.0, 0.0, 0.0, n_layers=2, n_heads=4, d_model=64, d_vocab=512, n_ctx=256)
IDS = (0, 73, 319, 389, 278, 83)
TURN = 0.01  # seconds: one step of the analysis below


@pytest.fixture(scope="module")
def model():
    return load_model("tiny-induction")


@pytest.fixture
def worker(model):
    """A worker whose one analysis notes the step it finds itself at, in turns of one forward pass."""
    order = []

    def logits_steps(model, tokens, *, times):
        found = []
        for done in range(times):
            yield Progress(done, times)
            order.append(model.config.checkpoint)
            found.append(to_float32(model.forward(tokens, last_only=True))[0, -1])
            time.sleep(TURN)
        return Numbers(np.stack(found))

    analysis = Analysis(logits_steps, lambda profile, n, params: Cost(1.0, 1, 1), Numbers)
    model.at_checkpoint(model.config.checkpoints[-1])
    worker = Worker(model, {"logits": analysis}, PROFILE, limits=Limits(seconds=1e6), quantum_seconds=TURN)
    worker.order = order
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    yield worker
    worker.close()
    thread.join(30)
    assert not thread.is_alive()


def ask(worker, user, step, model="", times=4):
    final = Final()
    request = Request("logits", IDS, {"times": times}, model, step)
    worker.submit(user, request, Who(user, "page"), final)
    return final


def values(final):
    assert (event := final.wait()).kind == "done", event.failure
    return event.result["values"], event.cached


def expected(model, step):
    model.at_checkpoint(step)
    return to_float32(model.forward(IDS, last_only=True))[0, -1]


def test_flights_at_different_steps_take_turns_and_do_not_mix(model, worker):
    finals = {step: ask(worker, str(step), step) for step in (400, 1900, None)}
    found = {step: values(final)[0] for step, final in finals.items()}
    last = model.config.checkpoints[-1]
    changes = sum(a != b for a, b in zip(worker.order, worker.order[1:], strict=False))
    assert changes > 3, f"they took turns: {worker.order}"
    for step, rows in found.items():
        row = expected(model, last if step is None else step)
        assert all(np.array_equal(one, row) for one in rows), step


def test_a_step_is_part_of_what_is_kept_and_of_what_the_page_shows(model, worker):
    config = model.config.at(model.config.checkpoints[-1])
    first, _ = values(ask(worker, "ann", 700, config.at(700).fingerprint, times=1))
    again, cached = values(ask(worker, "bob", 700, config.at(700).fingerprint, times=1))
    assert cached and np.array_equal(first, again)
    other, cached = values(ask(worker, "ann", None, config.fingerprint, times=1))
    assert not cached and not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("step", "shown", "code", "sentence"),
    [
        (401, "", "bad_request", "found 401; the nearest: 400 or 700"),
        (400, "0123", "busy", "has changed to tiny-induction"),
        (400, "same", "bad_request", "needs the page's model"),  # the page shows the last step and asks for another
    ],
)
def test_a_request_that_does_not_fit_the_model_is_refused(model, worker, step, shown, code, sentence):
    fingerprint = model.config.fingerprint.partition("@")[0] if shown == "same" else shown
    with pytest.raises(Refused, match=sentence) as refused:
        ask(worker, "ann", step, fingerprint)
    assert refused.value.code == code


def test_over_the_wire(model, tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path))
    backend = RemoteBackend("thread", source="tiny-induction")
    try:
        wait_until(lambda: backend.status().model or backend.status().error)
        config = backend.status().model.config
        assert config.checkpoints == model.config.checkpoints and config.checkpoint == config.checkpoints[-1]
        for step in (1900, None, 400):
            shown = config.at(step or config.checkpoint)
            request = Request("next_token", IDS, {"top_k": 3}, shown.fingerprint, step)
            found = backend.submit(request, Who("ann", "page")).result(60)
            assert found.logits == pytest.approx(expected(model, shown.checkpoint), abs=1e-5), step
        view = Request("training_view", (), {"text": "a(b) a", "step": 400}, config.fingerprint)
        assert backend.submit(view, Who("ann", "page")).result(60).pieces[0] == b"<|bos|>"
        assert backend.stats().hooks == 0
    finally:
        backend.close()
