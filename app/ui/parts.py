"""An answer that comes in parts: draw what is there, wait for more, draw again.

Streamlit draws a component once in a run of the script, so every part gets a run of its own, and the job is held in the session
from one run to the next. Nobody may ever come back for it (another page, a closed tab): held for too long, it cancels itself.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from analyses import ANALYSES
from app.backend import get_backend
from app.backend.protocol import Event, Job, Refused, Request
from app.ui.run import POLL_SECONDS, QUIET_POLLS, Outcome, keep, refused, words_of
from app.ui.session import chosen_step, who

HELD_SECONDS = 5.0  # between two runs of a script: ten times what a page takes to come to the same place again
FIRST_AGAIN = 1.0  # seconds before the first redrawing; each later one waits for twice the time


@dataclass
class _Asked:
    """A request whose answer is not complete yet."""

    request: Request
    job: Job
    fields: Mapping[str, Any] | None = None  # of the newest part
    end: Event | None = None
    told: tuple[float, str] = (0.0, "Waiting for the model")
    begun: float = field(default_factory=lambda: time.monotonic())
    redraw: float = FIRST_AGAIN  # seconds after `begun` from which on a new part is drawn
    timer: threading.Timer | None = None

    def poll(self) -> bool:
        """Take over the news; whether there is a new part or the end."""
        event = self.job.poll(POLL_SECONDS)
        if event is not None and event.kind in ("done", "failed"):
            self.end = event
            return True
        self.told = words_of(event) or self.told
        part = None if event is None or event.progress is None else event.progress.partial
        self.fields = part or self.fields
        return part is not None

    def hold(self) -> None:
        """Leave the job to the next run of the script."""
        self.timer = threading.Timer(HELD_SECONDS, self.job.cancel)
        self.timer.daemon = True
        self.timer.start()


def run_in_parts(
    analysis: str, tokens: tuple[int, ...], *, slot: str, model: str, at_once: Any = None, **params: Any
) -> Outcome | None:
    """As `run`, but what is finished of a slow answer comes first: draw it, then call `wait_for_more`.

    Args:
        analysis: name in ANALYSES, one whose `partial` holds the fields of its result.
        tokens: as `run`.
        slot: as `run`.
        model: as `run`.
        at_once: a part that is known already, drawn until the first one comes; None waits for it.
        params: as `run`.

    Returns:
        As `run`; `finished` is False while only a part is there.
    """
    request, place = Request(analysis, tokens, params, model, chosen_step()), st.empty()
    asked = None
    try:
        asked = _claim(request, slot)
        for _ in range(QUIET_POLLS + 1):  # a quick answer is drawn once
            if asked.end is not None or asked.fields is not None:
                break
            asked.poll()
        while asked.end is None and asked.fields is None and at_once is None:
            place.progress(asked.told[0], text=asked.told[1])
            asked.poll()
        place.empty()
    except Refused as why:  # refused where it is submitted
        place.empty()
        return refused(why, slot, model)
    finally:  # also where Streamlit interrupts the script: the next run may want the same
        if asked is not None and asked.end is None:
            asked.hold()
    if asked.end is None:
        part = at_once if asked.fields is None else ANALYSES[analysis].result(**asked.fields)
        return Outcome(part, tokens, params, 0.0, cached=False, finished=False)
    del st.session_state[_name(slot)]
    if asked.end.failure is not None:
        return refused(asked.end.failure, slot, model)
    return keep(Outcome(asked.end.result, tokens, params, asked.end.seconds, asked.end.cached), slot, model)


def wait_for_more(slot: str, *, is_news: Callable[[Mapping[str, Any]], bool] = lambda part: True) -> None:
    """Show progress until a larger part, or everything, is there; then run the script again. Does not return.

    Args:
        slot: of the unfinished outcome.
        is_news: whether the fields of a part say more than what is drawn.
    """
    asked: _Asked = st.session_state[_name(slot)]
    place, drawn = st.empty(), asked.fields
    _take(asked)
    try:
        while asked.end is None:
            new = asked.fields is not drawn and asked.fields is not None and is_news(asked.fields)
            if new and time.monotonic() - asked.begun >= asked.redraw:
                break
            place.progress(asked.told[0], text=asked.told[1])
            asked.poll()
    finally:
        asked.redraw = 2 * (time.monotonic() - asked.begun)
        asked.hold()
    st.rerun()


def _claim(request: Request, slot: str) -> _Asked:
    """The job that the run before has left for the same request, or a new one, which takes the place of any other."""
    held: _Asked | None = st.session_state.pop(_name(slot), None)
    same = held is not None and held.request == request
    if held is not None:
        _take(held)
        if same and not (held.end is None and held.poll() and _is_cancelled(held)):
            st.session_state[_name(slot)] = held
            return held
        held.job.cancel()
    asked = _Asked(request, get_backend().submit(request, who(slot)))
    if same:  # held for too long: it would begin anew at every part
        asked.redraw = float("inf")
    st.session_state[_name(slot)] = asked
    return asked


def _take(asked: _Asked) -> None:
    if asked.timer is not None:
        asked.timer.cancel()


def _is_cancelled(asked: _Asked) -> bool:
    return asked.end is not None and asked.end.failure is not None and asked.end.failure.code == "cancelled"


def _name(slot: str) -> str:
    return f"parts.{slot}"
