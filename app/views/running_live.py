"""A measurement that is drawn as its points come, can be stopped, and is measured anew only when somebody asks.

A worker answers a request that it has seen from its store. For a timing that would be an old number in new clothes, so a request
that is asked for carries the moment of the click; what came from the store is marked.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app.backend import get_backend
from app.backend.protocol import Event, Refused, Request
from app.ui import run as page_run
from app.ui.words import say_error


@dataclass(frozen=True)
class Measured:
    """What is on the page, and how it came about."""

    result: Any
    cached: bool = False  # from the worker's store: measured when somebody asked before
    stopped: bool = False  # by hand, before it was finished


def new_run() -> int:
    """A number that no request has had: the moment, in milliseconds."""
    return time.time_ns() // 1_000_000


def measure(
    analysis: str,
    tokens: tuple[int, ...],
    *,
    slot: str,
    model: str,
    kind: type,
    points: Callable[[Any], int],
    draw: Callable[[Any, int], None],
    **params: Any,
) -> Measured | None:
    """The measurement of these parameters: the one that is on the page already, or a new one, drawn as it comes.

    Args:
        analysis: name in ANALYSES; its progress carries the fields of `kind` in `partial`.
        tokens: ids to run on.
        slot: place on the page.
        model: fingerprint of the model the page shows.
        kind: class of the result.
        points: how many finished points a result has.
        draw: draws an unfinished result; called with it and the number of its points, which make the names of its elements.
        params: JSON-able keywords of the analysis.

    Returns:
        None when it was refused, and nothing was there before.
    """
    kept, key = f"measured.{slot}", (model, repr(sorted(params.items())))
    if (there := st.session_state.get(kept)) and there[0] == key:
        return there[1]
    place = st.empty()
    try:
        with place.container():
            event = _wait(
                Request(analysis, tokens, params, model, page_run.chosen_step()), slot, key, kind, points, draw
            )
    except Refused as why:
        place.empty()
        say_error(why.message)
        return there[1] if there and there[0][0] == model else None
    place.empty()
    found = Measured(event.result, cached=event.cached)
    st.session_state[kept] = (key, found)
    return found


def _wait(
    request: Request, slot: str, key: Any, kind: type, points: Callable[[Any], int], draw: Callable[[Any, int], None]
) -> Event:
    """Poll until the end. Streamlit interrupts the script at `bar.progress`, and `finally` stops the measurement."""
    st.session_state.pop(f"partial.{slot}", None)
    # Above all that changes: a button that moves cannot be pressed.
    st.button("Stop", key=f"stop.{slot}", on_click=_stop, args=(slot,), icon=":material/stop:")
    bar = st.progress(0.0, text="Waiting for the model")
    picture, drawn = st.empty(), 0
    job = get_backend().submit(request, page_run.who(slot))
    final: Event | None = None
    told = (0.0, "Waiting for the model")
    try:
        while final is None:
            event = job.poll(page_run.POLL_SECONDS)
            if event is not None and event.kind in ("done", "failed"):
                final = event
                break
            if event is not None and event.progress is not None:
                done = event.progress
                told = (
                    min(1.0, done.done / done.total),
                    f"{done.note} ({done.done:.1f} of at most {done.total:.0f} s)",
                )
                if done.partial is not None:
                    so_far = kind(**done.partial)
                    st.session_state[f"partial.{slot}"] = (key, so_far)
                    if points(so_far) > drawn:
                        drawn = points(so_far)
                        with picture.container():
                            draw(so_far, drawn)
            bar.progress(told[0], text=told[1])
    finally:
        if final is None:
            job.cancel()
    if final.failure is not None:
        raise final.failure
    return final


def _stop(slot: str) -> None:
    """The finished points stay, as the result of what was asked; without any, nothing was asked."""
    key, so_far = st.session_state.pop(f"partial.{slot}", (None, None))
    if so_far is not None:
        st.session_state[f"measured.{slot}"] = (key, Measured(so_far, stopped=True))
    else:
        st.session_state.pop(f"asked.{slot}", None)
