"""Questions to a worker that somebody waits for: the tokenizer's, and the counters."""

import itertools
import threading
from collections.abc import Mapping
from typing import Any

from app.backend.protocol import Refused
from app.backend.sessions import Session

REPLY_SECONDS = 20.0  # a tokenizer needs milliseconds; a worker that is this late has stalled


class Call:
    """One question."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answered = threading.Event()
        self.value: Any = None
        self.failure: Refused | None = None

    def answer(self, value: Any, failure: Refused | None) -> None:
        """Called by the reader of the wire."""
        self.value, self.failure = value, failure
        self.answered.set()


class Calls:
    """Every question that has no answer yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, Call] = {}

    def ask(self, session: Session, op: str, body: Mapping[str, Any]) -> Any:
        """Send a question and wait for its answer.

        Raises:
            Refused: what the worker answered, its end, or no answer in time.
        """
        call = Call(session)
        with self._lock:
            number = next(self._numbers)
            self._open[number] = call
        sent = session.link.wire.send({"op": op, "call": number, **body})
        arrived = sent and call.answered.wait(REPLY_SECONDS)
        with self._lock:
            self._open.pop(number, None)
        if not sent:
            raise ended()
        if not arrived:
            raise Refused("busy", "The model's process does not answer; try again in a moment.")
        if call.failure is not None:
            raise call.failure
        return call.value

    def arrived(self, message: Mapping[str, Any]) -> None:
        """Pass an answer on."""
        with self._lock:
            call = self._open.get(message["call"])
        if call is not None:
            call.answer(message["value"], Refused(*message["failure"]) if message["failure"] else None)

    def ended(self, session: Session) -> None:
        """Nobody will answer what this worker was asked."""
        with self._lock:
            calls = [call for call in self._open.values() if call.session is session]
        for call in calls:
            call.answer(None, ended())


def ended() -> Refused:
    """The answer of a worker that is gone."""
    return Refused("worker_died", "The model's process ended; try again in a moment.")
