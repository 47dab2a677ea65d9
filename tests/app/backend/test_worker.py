"""The worker core by itself: how soon a cancel stops it, what it learns, what it does when the device is lost."""

import threading

import numpy as np
import pytest

from analyses._steps import Analysis, Cost, Profile, Progress
from app.backend.limits import Limits
from app.backend.protocol import Refused, Request, Who
from app.backend.worker import Worker
from tests.app.backend.suite import ANALYSES, Numbers
from tests.tiny import PROMPT

PROFILE = Profile(0.01, 0.0, 0.0, 0.0, n_layers=3, n_heads=4, d_model=32, d_vocab=300, n_ctx=64)
ANN = Who("ann", "page")


class Final:
    """Waits for the last event of a job."""

    def __init__(self):
        self.event, self._arrived = None, threading.Event()

    def __call__(self, event):
        if event.kind in ("done", "failed"):
            self.event = event
            self._arrived.set()

    def wait(self):
        assert self._arrived.wait(60)
        return self.event


@pytest.fixture
def started(tiny):
    """`started(extra analyses)`: a worker on a thread of its own; closed at the end."""
    made = []

    def start(**extra):
        learnt = []
        worker = Worker(
            tiny("llama").model, ANALYSES | extra, PROFILE, limits=Limits(seconds=1e6), on_learnt=learnt.append
        )
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        made.append((worker, thread))
        return worker, learnt

    yield start
    for worker, thread in made:
        worker.close()
        thread.join(30)
        assert not thread.is_alive()


def cost(profile, n_tokens, params):
    return Cost(1.0, 1000, 1000)


@pytest.mark.parametrize("stop_in", [(3, 0), (3, 1), (4, 2)])  # (forward pass, block)
def test_a_cancelled_job_runs_at_most_one_more_block(started, stop_in):
    worker, _ = started()
    begun, after = [], []

    def count(layer):
        def before(module, arguments):
            if worker.cancelled:
                after.append(layer)
            begun.append(layer)
            if (begun.count(layer), layer) == stop_in:
                worker.cancel("job")

        return before

    blocks = worker.model._bridge.blocks
    handles = [block.register_forward_pre_hook(count(layer)) for layer, block in enumerate(blocks)]
    try:
        final = Final()
        worker.submit("job", Request("sweep", PROMPT, {"times": 1000}), ANN, final)
        assert final.wait().failure.code == "cancelled"
        worker.submit("next", Request("steer", PROMPT, {"amount": 0.0}), ANN, done := Final())
        assert done.wait().kind == "done"
    finally:
        for handle in handles:
            handle.remove()
    # What ran after the cancel: at most one block of the first job, then the three of the next request.
    assert len(after) <= 1 + 3 and after[-3:] == [0, 1, 2]


def test_a_cancelled_job_runs_at_most_one_more_vocabulary_chunk(started):
    chunks = []

    def steps(model, tokens):
        yield Progress(0, 1)
        for chunk in range(1000):
            model.check()
            chunks.append(chunk)
            if chunk == 5:
                worker.cancel("job")
        return Numbers(np.zeros(1))

    worker, _ = started(chunked=Analysis(steps, cost, Numbers))
    final = Final()
    worker.submit("job", Request("chunked", PROMPT), ANN, final)
    assert final.wait().failure.code == "cancelled"
    worker.submit("next", Request("steer", PROMPT), ANN, done := Final())
    assert done.wait().kind == "done"
    assert len(chunks) <= 7


def test_a_run_teaches_and_the_next_one_is_weighed_by_it(started):
    release = threading.Event()

    def steps(model, tokens, *, seconds):
        yield Progress(0, 1)
        release.wait(seconds)
        return Numbers(np.zeros(1))

    worker, learnt = started(slow=Analysis(steps, lambda profile, n, params: Cost(0.1, 1, 1), Numbers))
    worker.submit("job", Request("slow", PROMPT, {"seconds": 0.5}), ANN, final := Final())
    assert final.wait().kind == "done"
    assert learnt == ["slow"]
    assert 1.2 < worker.corrections.seconds["slow"] < 2.0


def test_full_memory_raises_the_estimate_until_admission_refuses_it(started):
    def steps(model, tokens):
        yield Progress(0, 1)
        raise MemoryError

    worker, learnt = started(large=Analysis(steps, lambda profile, n, params: Cost(0.1, worker_bytes[0], 1), Numbers))
    worker_bytes = [int(worker_limit(worker) * 0.9)]
    worker.submit("job", Request("large", PROMPT), ANN, final := Final())
    assert final.wait().failure.code == "out_of_memory"
    assert learnt == ["large"]
    with pytest.raises(Refused, match="of memory;"):
        worker.submit("again", Request("large", PROMPT), ANN, Final())


def worker_limit(worker):
    assert worker.limits.bytes > 0  # 80 % of what is free, not "no limit"
    return worker.limits.bytes


def test_a_lost_device_ends_the_worker_instead_of_failing_every_later_request(tiny):
    def steps(model, tokens):
        yield Progress(0, 1)
        raise RuntimeError("CUDA error: device-side assert triggered")

    worker = Worker(tiny("llama").model, {"lost": Analysis(steps, cost, Numbers)}, PROFILE, limits=Limits())
    worker.submit("job", Request("lost", PROMPT), ANN, Final())
    with pytest.raises(RuntimeError, match="device-side"):
        worker.run()
    assert worker.model.hook_count() == 0
