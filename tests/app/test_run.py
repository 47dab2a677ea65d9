"""app/ui/run.py: what a person reads while waiting, that no job outlives its page, and what stays when one is refused."""

import pytest
from streamlit.runtime.scriptrunner import StopException
from streamlit.testing.v1 import AppTest

from analyses._steps import Progress
from app.backend.protocol import Event, Refused
from app.ui import run as module
from app.ui.run import QUIET_POLLS, run
from tests.app.stub import N_CTX, next_token

QUIET = (None,) * QUIET_POLLS


@pytest.fixture
def told(monkeypatch):
    """What the place on the page shows, in order; None where it is emptied."""
    seen = []

    class Place:
        def progress(self, value, text=None):
            seen.append((value, text))

        def empty(self):
            seen.append(None)

    monkeypatch.setattr(module.st, "empty", Place)
    monkeypatch.setattr(module, "who", lambda slot: ("ann", slot))
    return seen


def ask(**changes):
    return run(**({"analysis": "next_token", "tokens": (1, 2), "slot": "here", "model": "m", "position": 1} | changes))


def page():
    """Two slots; what they show is written down."""
    import streamlit as st

    from app.ui.run import run

    tokens, model = st.session_state["tokens"], st.session_state["model"]
    for slot in ("one", "two"):
        if slot in st.session_state["slots"]:
            outcome = run("next_token", tokens, slot=slot, model=model)
            st.session_state[slot] = outcome


def asked(app, tokens=(1, 2), model="m", slots=("one",)):
    app.session_state["tokens"], app.session_state["model"], app.session_state["slots"] = tokens, model, slots
    app.run()
    assert not app.exception
    return app


def test_a_request_says_what_is_asked_and_a_result_says_whose_it_is(backend, told):
    outcome = ask(top_k=3)
    ((request, who),) = backend.requests
    assert (request.analysis, request.tokens, request.model) == ("next_token", (1, 2), "m")
    assert dict(request.params) == {"position": 1, "top_k": 3}
    assert who == ("ann", "here")
    assert outcome.result.ids.tolist() == next_token((1, 2), 1, 3).ids.tolist()
    assert (outcome.tokens, dict(outcome.params), outcome.seconds) == ((1, 2), {"position": 1, "top_k": 3}, 0.25)
    assert not outcome.stale and not outcome.cached
    assert not backend.jobs[0].cancelled, "an answered job is left alone"


def test_a_quick_answer_shows_no_bar(backend, told):
    backend.news = QUIET[1:]
    ask()
    assert told == [None]


def test_a_slow_answer_shows_the_place_in_the_queue_then_how_far_it_is(backend, told):
    backend.news = (
        *QUIET,
        Event("queued", ahead=2),
        Event("queued", ahead=1),
        None,
        Event("queued"),
        Event("progress", progress=Progress(1, 4)),
        Event("progress", progress=Progress(3, 4, note="layer 3")),
        Event("progress", progress=Progress(5, 4)),
        Event("progress", progress=Progress(0, 0)),
    )
    ask()
    assert told[:-1] == [
        (0.0, "2 requests come first"),
        (0.0, "1 request comes first"),
        (0.0, "1 request comes first"),
        (0.0, "Starting"),
        (0.25, "25%"),
        (0.75, "layer 3"),
        (1.0, "100%"),
        (1.0, "100%"),
    ]
    assert told[-1] is None, "the bar goes when the answer is there"


def test_while_nothing_is_known_it_says_what_it_waits_for(backend, told):
    backend.news = (*QUIET, None)
    ask()
    fraction, text = told[0]
    assert fraction == 0.0 and "model" in text


@pytest.mark.parametrize("interruption", [StopException, KeyboardInterrupt, RuntimeError])
def test_a_page_that_is_drawn_again_cancels_its_job(backend, told, monkeypatch, interruption):
    """Streamlit ends a script by raising at its next command, here at the bar."""
    backend.news = (*QUIET, None, None)

    class Place:
        def progress(self, value, text=None):
            raise interruption

        def empty(self):
            pass

    monkeypatch.setattr(module.st, "empty", Place)
    with pytest.raises(interruption):
        ask()
    (job,) = backend.jobs
    assert job.cancelled
    assert len(job.events) == 2, "it was not polled to its end"


def test_a_refusal_with_nothing_before_it_is_a_sentence_and_no_result(backend):
    backend.refuse_job = Refused("too_large", "needs at most *8* tokens; found 9; shorten it.")
    app = asked(AppTest.from_function(page, default_timeout=30))
    assert app.session_state["one"] is None
    assert app.error[0].value.replace("\\", "") == "Needs at most *8* tokens; found 9; shorten it."
    assert not app.caption
    assert not backend.jobs[0].cancelled


@pytest.mark.parametrize("when", ["refuse_job", "refuse_submit"])
def test_a_refusal_keeps_the_previous_result_of_this_place_and_model(backend, when):
    app = asked(AppTest.from_function(page, default_timeout=30), tokens=(1, 2, 3))
    before = app.session_state["one"]
    setattr(backend, when, Refused("busy", "needs a turn; found 40 others; try again."))
    app = asked(app, tokens=(4, 5))
    kept = app.session_state["one"]
    assert kept.stale and kept.result is before.result
    assert kept.tokens == (1, 2, 3), "it still says which prompt it belongs to"
    assert "previous result, for a prompt of 3 tokens" in app.caption[0].value
    app = asked(app, tokens=(4, 5))
    assert app.session_state["one"].result is before.result, "a second refusal does not lose it"


def test_a_previous_result_is_not_shown_for_another_model_or_another_place(backend):
    app = asked(AppTest.from_function(page, default_timeout=30), tokens=(1, 2, 3))
    backend.refuse_job = Refused("busy", "needs a turn; found 40 others; try again.")
    assert asked(app, model="other").session_state["one"] is None
    assert asked(app, slots=("two",)).session_state["two"] is None
    assert asked(app).session_state["one"].tokens == (1, 2, 3)


def test_a_result_after_a_refusal_takes_the_place_of_the_old_one(backend):
    app = asked(AppTest.from_function(page, default_timeout=30), tokens=(1,))
    app = asked(app, tokens=tuple(range(N_CTX + 1)))
    assert app.session_state["one"].stale
    app = asked(app, tokens=(2, 3))
    assert app.session_state["one"].tokens == (2, 3) and not app.session_state["one"].stale
    assert not app.error


def test_two_tabs_never_cancel_each_other_and_two_places_neither(backend):
    asked(AppTest.from_function(page, default_timeout=30), slots=("one", "two"))
    one, two = (who for _, who in backend.requests)
    assert one.slot != two.slot and one.slot.endswith(":one") and one.user == two.user
