"""A submitted request as the page holds it: the last news, and the final event for ever."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from app.backend.protocol import Event, Refused, Request, Who


class RemoteJob:
    """See `Job` in app/backend/protocol.py. Only the newest unread event is kept, so a slow page costs no memory.

    The newest `partial` stays until it is read: not every progress of an analysis carries one.
    """

    def __init__(self, request: Request, who: Who, cancel: Callable[[], None]) -> None:
        self.request = request
        self.who = who
        self.key = ""  # the worker's cache key, known soon after submission
        self._cancel = cancel
        self._news: Event | None = None
        self._final: Event | None = None
        self._changed = threading.Condition()

    def to_wire(self) -> dict[str, Any]:
        """The request as builtins and an array."""
        return {
            "request": {
                "analysis": self.request.analysis,
                "tokens": np.asarray(self.request.tokens, dtype=np.int64),
                "params": dict(self.request.params),
                "model": self.request.model,
                "checkpoint": self.request.checkpoint,
            },
            "who": [self.who.user, self.who.slot],
        }

    def put(self, event: Event) -> None:
        """Called by the backend's reader."""
        with self._changed:
            if self._final is None:
                if event.kind in ("done", "failed"):
                    self._final = event
                else:
                    self._news = _with_part(event, self._news)
                self._changed.notify_all()

    def poll(self, timeout: float) -> Event | None:
        """The newest unread event, the final one again and again."""
        with self._changed:
            self._changed.wait_for(lambda: self._final or self._news, timeout)
            news, self._news = self._news, None
            return self._final or news

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the final event."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._changed.wait_for(lambda: self._final is not None, left)
            final = self._final
        if final is None:
            self.cancel()
            raise Refused("cancelled", f"Stopped: no result within {timeout} s.")
        if final.failure is not None:
            raise final.failure
        return final.result

    def cancel(self) -> None:
        """Ask the worker to drop this job."""
        if self._final is None:
            self._cancel()


def _with_part(event: Event, unread: Event | None) -> Event:
    """The event, with the partial result of the one it replaces where it has none of its own."""
    before = None if unread is None or unread.progress is None else unread.progress.partial
    if event.progress is None or event.progress.partial is not None or before is None:
        return event
    return replace(event, progress=replace(event.progress, partial=before))
