"""An answer that is written before one's eyes: asked for by a button, drawn as it grows, stopped with what is there.

The job is held in the session, and a fragment looks for news: whatever else is clicked meanwhile, writing goes on. A page that
nobody looks at any more (another page, a closed tab) does not ask again, and then the job cancels itself; whoever comes back
finds it begun anew.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from app.backend import get_backend
from app.backend.protocol import Event, Job, Refused, Request, Who
from app.ui.run import words_of
from app.ui.session import chosen_step, who

EVERY_SECONDS = 0.3  # between two looks: a token of the embedded model takes about a third of that
HELD_SECONDS = 30.0  # without a look, the page is gone; on a very busy server a look may take ten


@dataclass
class Stream:
    """One request, and as much of its answer as there is."""

    request: Request
    asker: Who
    job: Job | None = None
    note: Any = None  # what the page wants to remember with it
    fields: Mapping[str, Any] | None = None  # of the newest part; of the whole result, once it is there
    result: Any = None
    failure: Refused | None = None
    stopped: bool = False
    told: tuple[float, str] = (0.0, "Waiting for the model")
    timer: threading.Timer | None = field(default=None, repr=False)

    @property
    def running(self) -> bool:
        """Whether more may come."""
        return self.result is None and self.failure is None and not self.stopped

    def ask(self) -> None:
        """Submit the request; a refusal is kept as the failure."""
        try:
            self.job = get_backend().submit(self.request, self.asker)
        except Refused as why:
            self.failure = why

    def look(self) -> None:
        """Take over the news, and say that somebody is still looking."""
        if not self.running or self.job is None:
            return
        self._hold()
        event = self.job.poll(0.0)
        if event is None:
            return
        if event.kind == "done":
            self.result, self.fields = event.result, vars(event.result)
        elif event.kind == "failed" and event.failure.code == "cancelled":  # nobody looked for too long, but now
            self.ask()
        elif event.kind == "failed":
            self.failure = event.failure
        else:
            self._part(event)
        if not self.running and self.timer is not None:
            self.timer.cancel()

    def stop(self) -> None:
        """Keep what is there; no more will come."""
        self.look()
        if self.running and self.job is not None:
            self.stopped = True
            self.job.cancel()

    def _part(self, event: Event) -> None:
        self.told = words_of(event) or self.told
        part = None if event.progress is None else event.progress.partial
        self.fields = self.fields if part is None else part

    def _hold(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = threading.Timer(HELD_SECONDS, self.job.cancel)
        self.timer.daemon = True
        self.timer.start()


def start_stream(
    analysis: str, tokens: tuple[int, ...], *, slot: str, model: str, note: Any = None, **params: Any
) -> Stream:
    """Ask for an analysis and hold its job in the session; what the slot held before is stopped and forgotten.

    Args:
        analysis: name in ANALYSES, one whose `partial` holds fields of its result.
        tokens: ids of the prompt.
        slot: place on the page.
        model: fingerprint of the model the page shows.
        note: what the page wants to remember with the answer.
        params: JSON-able keywords of the analysis.
    """
    if (before := current_stream(slot)) is not None:
        before.stop()
    stream = Stream(Request(analysis, tokens, params, model, chosen_step()), who(slot), note=note)
    stream.ask()
    st.session_state[_name(slot)] = stream
    stream.look()
    return stream


def current_stream(slot: str) -> Stream | None:
    """What the slot holds, with the newest news."""
    stream: Stream | None = st.session_state.get(_name(slot))
    if stream is not None:
        stream.look()
    return stream


def draw_stream(slot: str, draw: Callable[[Stream], None]) -> None:
    """Draw what the slot holds with `draw`; while it grows again and again, with progress and a button that stops it."""
    stream = current_stream(slot)
    if stream is None:
        return
    if not stream.running:
        draw(stream)
        return
    st.fragment(_draw_growing, run_every=EVERY_SECONDS)(slot, draw)


def _draw_growing(slot: str, draw: Callable[[Stream], None]) -> None:
    stream = current_stream(slot)
    if stream is None or not stream.running:
        st.rerun()  # the whole page: it says other things about what is complete
    bar, button = st.columns([5, 1], vertical_alignment="center")
    bar.progress(stream.told[0], text=stream.told[1])
    button.button(
        "Stop writing", key=f"stop.{slot}", on_click=stream.stop, width="stretch", help="Keeps what is there."
    )
    draw(stream)


def _name(slot: str) -> str:
    return f"stream.{slot}"
