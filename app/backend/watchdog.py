"""Ends a worker that has stalled: everything else (restart, blame, sending again) follows from its end."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from app.backend.sessions import Session

log = logging.getLogger(__name__)

STALL_SECONDS = 30.0  # without any sign; longer where the running request's estimate explains it (Session.stalled)


class Watchdog:
    """Looks at every worker a few times within the seconds that it allows. `seconds` may be changed at any time (tests)."""

    def __init__(self, sessions: Callable[[], Sequence[Session]], seconds: float = STALL_SECONDS) -> None:
        self.seconds = seconds
        self._sessions = sessions
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def close(self) -> None:
        """Stop looking. Idempotent."""
        self._closed.set()

    def look(self, since_last_look: float) -> None:
        """End every worker that has stalled."""
        for session in self._sessions():
            if since_last_look > self.seconds / 2:  # we stood still ourselves (suspended) and have read no sign
                session.hear()
            elif session.stalled(self.seconds):
                log.warning("the model's process gave no sign for too long and is ended")
                session.link.kill()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._closed.wait(min(1.0, self.seconds / 8)):
            now = time.monotonic()
            self.look(now - last)
            last = now
