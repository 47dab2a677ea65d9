"""Run an analysis from a page: submit, show progress and the place in the queue, cancel when the page is redrawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from app.backend import get_backend
from app.backend.protocol import Event, Refused, Request
from app.ui.session import chosen_step, who
from app.ui.words import say_error, say_note

POLL_SECONDS = 0.1
DOWNLOAD_SECONDS = 120.0
QUIET_POLLS = 3  # quick answers show no progress bar: a bar that flashes is noise


@dataclass(frozen=True)
class Outcome:
    """A result and the request it belongs to; an older one when the newest was refused."""

    result: Any
    tokens: tuple[int, ...]
    params: Mapping[str, Any]
    seconds: float
    cached: bool
    stale: bool = False
    finished: bool = True  # False: a part of the result (app/ui/parts.py)


def run(analysis: str, tokens: tuple[int, ...], *, slot: str, model: str, **params: Any) -> Outcome | None:
    """The result of an analysis on the loaded model.

    Args:
        analysis: name in ANALYSES.
        tokens: ids of the prompt.
        slot: place on the page; a newer request on it cancels the older one.
        model: fingerprint of the model the page shows.
        params: JSON-able keywords of the analysis.

    Returns:
        The outcome; the previous one of this slot and model (`stale`) when the request was refused; None when there is none.
    """
    place = st.empty()
    try:
        outcome = _wait(Request(analysis, tokens, params, model, chosen_step()), slot, place)
    except Refused as why:
        place.empty()
        return refused(why, slot, model)
    place.empty()
    return keep(outcome, slot, model)


def keep(outcome: Outcome, slot: str, model: str) -> Outcome:
    """Remember what a slot shows, for the case that its next request is refused."""
    st.session_state[f"outcome.{slot}"] = ((model, chosen_step()), outcome)
    return outcome


def previous(slot: str, model: str) -> Outcome | None:
    """What a slot showed last, for this model and training step."""
    shown, outcome = st.session_state.get(f"outcome.{slot}", (None, None))
    return outcome if shown == (model, chosen_step()) else None


def refused(why: Refused, slot: str, model: str) -> Outcome | None:
    """Say why there is no new result; the previous one (`stale`), or None."""
    say_error(why.message)
    old = previous(slot, model)
    if old is None:
        return None
    of = f", for a prompt of {len(old.tokens):,} tokens" if old.tokens else ""  # some analyses bring their own text
    say_note(f"Below is still the previous result{of}.")
    return replace(old, stale=True)


def later(analysis: str, tokens: tuple[int, ...], *, slot: str, model: str, **params: Any) -> Callable[[], Any]:
    """A function that runs an analysis when it is called, for a download: it needs no page around it.

    Arguments as `run`. It waits at most two minutes, and raises `Refused`.
    """
    request, asker = Request(analysis, tokens, params, model, chosen_step()), who(slot)
    return lambda: get_backend().submit(request, asker).result(DOWNLOAD_SECONDS)


def seconds_of(analysis: str, tokens: tuple[int, ...], *, model: str, **params: Any) -> float:
    """Estimated seconds of a request; arguments as `run`."""
    return get_backend().estimate(Request(analysis, tokens, params, model, chosen_step())).seconds


def about(seconds: float) -> str:
    """An estimate in words, no more exact than it is."""
    if seconds < 1.5:
        return "about a second"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min"


def _wait(request: Request, slot: str, place: Any) -> Outcome:
    """Poll until the job ends. Streamlit interrupts the script at `place.progress`, and `finally` cancels the job."""
    job = get_backend().submit(request, who(slot))
    final: Event | None = None
    polls, told = 0, (0.0, "Waiting for the model")
    try:
        while final is None:
            event = job.poll(POLL_SECONDS)
            polls += 1
            if event is not None and event.kind in ("done", "failed"):
                final = event
                break
            told = words_of(event) or told
            if polls > QUIET_POLLS:
                place.progress(told[0], text=told[1])
    finally:
        if final is None:
            job.cancel()
    if final.failure is not None:
        raise final.failure
    return Outcome(final.result, request.tokens, request.params, final.seconds, final.cached)


def words_of(event: Event | None) -> tuple[float, str] | None:
    """Fraction and sentence of an event."""
    if event is None:
        return None
    if event.kind == "queued":
        requests = "request comes" if event.ahead == 1 else "requests come"
        return 0.0, f"{event.ahead} {requests} first" if event.ahead else "Starting"
    if event.progress is not None and event.progress.total > 0:
        fraction = min(1.0, event.progress.done / event.progress.total)
        return fraction, event.progress.note or f"{fraction:.0%}"
    return None
