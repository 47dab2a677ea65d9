"""app/ui/parts.py: what is finished is drawn first, the job is asked for once, and a job that nobody comes back for ends."""

import itertools

import pytest
from streamlit.testing.v1 import AppTest

from analyses._steps import Progress
from app.backend.jobs import RemoteJob
from app.backend.protocol import Event, Refused, Request, Who
from app.ui import parts as module
from app.ui.run import QUIET_POLLS
from tests.app.backend.helpers import wait_until
from tests.app.stub import next_token

QUIET = (None,) * (QUIET_POLLS + 1)


def page():
    """One slot; what it shows, run by run."""
    import streamlit as st

    from app.ui.parts import run_in_parts, wait_for_more

    if (tokens := st.session_state["tokens"]) is not None:
        at_once = st.session_state["at_once"]
        outcome = run_in_parts("next_token", tokens, slot="one", model="m", at_once=at_once)
        st.session_state["drawn"].append(outcome and (len(outcome.result.ids), outcome.finished, outcome.stale))
        if outcome is not None and not outcome.finished:
            size = len(outcome.result.ids)
            wait_for_more("one", is_news=lambda fields: len(fields["ids"]) > size)


def part(size):
    """Some steps later `size` tokens are known."""
    return Event("progress", progress=Progress(size, 10, partial=vars(next_token((1, 2), top_k=size))))


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock is a second later, so that every part is old enough to be drawn."""
    ticks = itertools.count(step=1)

    class Clock:
        monotonic = staticmethod(lambda: float(next(ticks)))

    monkeypatch.setattr(module, "time", Clock)


@pytest.fixture
def app(backend):
    made = AppTest.from_function(page, default_timeout=30)
    made.session_state["drawn"], made.session_state["at_once"] = [], None
    return made


def asked(app, tokens=(1, 2)):
    app.session_state["tokens"] = tokens
    app.run()
    assert not app.exception
    return app.session_state["drawn"]


def test_parts_are_drawn_as_they_come_and_asked_for_once(app, backend, clock):
    backend.news = (*QUIET, part(2), None, part(2), *(None,) * 20, part(5), *(None,) * 200)
    assert asked(app) == [(2, False, False), (5, False, False), (10, True, False)]
    assert len(backend.requests) == 1 and not backend.jobs[0].cancelled


def test_parts_that_come_fast_are_not_all_drawn(app, backend):
    """Each costs a run of the page and a message: the next waits until twice the time has passed."""
    backend.news = (*QUIET, *(part(size) for size in range(1, 10)))
    assert asked(app) == [(1, False, False), (10, True, False)]


def test_a_quick_answer_is_drawn_once(app, backend):
    backend.news = QUIET[1:]
    assert asked(app) == [(10, True, False)]


def test_what_is_known_already_is_drawn_before_the_first_part(app, backend, clock):
    app.session_state["at_once"] = next_token((1, 2), top_k=1)
    backend.news = (*QUIET, None, *(None,) * 20, part(5), *(None,) * 200)
    assert asked(app) == [(1, False, False), (5, False, False), (10, True, False)]


def test_a_page_that_does_not_come_back_loses_its_job(app, backend, monkeypatch):
    monkeypatch.setattr(module, "HELD_SECONDS", 0.2)
    monkeypatch.setattr(module, "wait_for_more", lambda slot, **how: None)  # the tab is closed here
    backend.news = (*QUIET, part(2), None, None)
    asked(app)
    wait_until(lambda: backend.jobs[0].cancelled)


def test_another_request_on_the_same_place_ends_the_first(app, backend, monkeypatch):
    monkeypatch.setattr(module, "wait_for_more", lambda slot, **how: None)
    backend.news = (*QUIET, part(2), None, None)
    asked(app)
    asked(app, tokens=(3, 4))
    first, second = backend.jobs
    assert first.cancelled and not second.cancelled


def test_a_job_that_was_lost_between_two_runs_is_asked_for_again_and_then_waited_for(app, backend, monkeypatch, clock):
    monkeypatch.setattr(module, "wait_for_more", lambda slot, **how: None)
    backend.news = (*QUIET, part(2), None)
    asked(app)
    backend.jobs[0].events[:] = [Event("failed", failure=Refused("cancelled", "Stopped."))]
    monkeypatch.undo()
    backend.news = (*QUIET, part(3), *(None,) * 30, part(4), *(None,) * 30)
    assert asked(app) == [(2, False, False), (3, False, False), (10, True, False)]


@pytest.mark.parametrize("when", ["refuse_job", "refuse_submit"])
def test_a_refusal_keeps_what_was_there(app, backend, when):
    asked(app)
    setattr(backend, when, Refused("busy", "needs a turn; found 40 others; try again."))
    assert asked(app, tokens=(5,)) == [(10, True, False), (10, True, True)]
    assert "previous result, for a prompt of 2 tokens" in app.caption[0].value


def test_a_part_stays_until_it_is_read():
    """A slow page polls less often than progress comes."""
    job = RemoteJob(Request("next_token", (1,)), Who("ann", "one"), lambda: None)
    job.put(part(2))
    job.put(Event("progress", progress=Progress(9, 10)))
    event = job.poll(0)
    assert event.progress.done == 9 and len(event.progress.partial["ids"]) == 2
    job.put(Event("progress", progress=Progress(10, 10)))
    assert job.poll(0).progress.partial is None, "and is read once"
