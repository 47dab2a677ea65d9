"""A measurement that is interrupted, stopped, refused or asked for again."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from analyses._steps import Progress
from analyses.timing import Timing
from app.backend.protocol import Event, Refused, Request
from app.views import running_live
from app.views.running_live import Measured
from tests.app.test_running_views import timing


class Stuck:
    """A backend whose job has made progress and never ends."""

    def __init__(self):
        self.cancelled = False

    def submit(self, request, who):
        return self

    def poll(self, timeout):
        partial = {name: getattr(timing(), name) for name in Timing.__dataclass_fields__}
        return Event("progress", progress=Progress(2, 20, "100 tokens", partial))

    def cancel(self):
        self.cancelled = True


def test_an_interrupted_measurement_is_cancelled_and_its_points_stay(monkeypatch):
    class Interrupted(Exception):
        pass

    def interrupt(*position, text=""):
        if "100 tokens" in text:
            raise Interrupted

    state, stuck, drawn = {}, Stuck(), []
    holder = SimpleNamespace(container=nullcontext)
    bar = SimpleNamespace(progress=interrupt)
    fake = SimpleNamespace(
        session_state=state, progress=lambda *a, **k: bar, empty=lambda: holder, button=lambda *a, **k: False
    )
    monkeypatch.setattr(running_live, "st", fake)
    monkeypatch.setattr(running_live, "get_backend", lambda: stuck)
    monkeypatch.setattr(running_live.page_run, "who", lambda slot: None)
    with pytest.raises(Interrupted):
        running_live._wait(
            Request("timing", (1,)), "x", "key", Timing, lambda r: len(r.lengths), lambda r, n: drawn.append(n)
        )
    assert stuck.cancelled and drawn == [2]
    running_live._stop("x")
    key, measured = state["measured.x"]
    assert key == "key" and measured.stopped and measured.result.lengths.tolist() == [1, 100]


def test_measuring_again_is_another_request():
    first, second = (Request("timing", (1,), {"again": n}).key("f", 1) for n in (0, running_live.new_run()))
    assert first != second


def test_a_refusal_keeps_the_last_measurement_of_the_same_model(monkeypatch):
    said, kept = [], Measured(timing())

    def refuse(*arguments):
        raise Refused("too_large", "needs less")

    holder = SimpleNamespace(container=nullcontext, empty=lambda: None)
    state = {"measured.x": (("model", "[('again', 1)]"), kept)}
    monkeypatch.setattr(running_live, "st", SimpleNamespace(session_state=state, empty=lambda: holder))
    monkeypatch.setattr(running_live.page_run, "chosen_step", lambda: None)
    monkeypatch.setattr(running_live, "_wait", refuse)
    monkeypatch.setattr(running_live, "say_error", said.append)
    common = {"slot": "x", "kind": Timing, "points": len, "draw": len}
    assert running_live.measure("timing", (1,), model="model", again=1, **common) is kept, "no new request at all"
    assert said == []
    assert running_live.measure("timing", (1,), model="model", again=2, **common) is kept
    assert running_live.measure("timing", (1,), model="another", again=2, **common) is None
    assert said == ["needs less"] * 2
