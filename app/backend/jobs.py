"""A submitted request as the page holds it: the last news, and the final event for ever."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from app.backend.protocol import Event, Refused, Request, Who


class RemoteJob:
    """See `Job` in app/backend/protocol.py. Only the newest unread event is kept, so a slow page costs no memory."""

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
                    self._news = event
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
