"""The server's side of the wire: the `Backend` that pages use, over any transport.

It keeps one loaded model and, for a while, one that is being opened beside it. When a worker dies it is started again and the
waiting jobs are sent once more; a request that was running at two deaths is refused. A worker that stalls is ended, and that is a
death.
"""

import itertools
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from analyses._steps import Cost, Progress
from analyses.sources import EMBEDDED
from analyses.tokenization import Tokens
from app.backend.calls import Calls
from app.backend.deaths import Deaths
from app.backend.jobs import RemoteJob
from app.backend.limits import Limits, load_limits
from app.backend.protocol import Event, ModelInfo, Refused, Request, Stats, Status, Who
from app.backend.service import import_map
from app.backend.sessions import Session, event_of, model_info
from app.backend.transports import TRANSPORTS
from app.backend.watchdog import STALL_SECONDS, Watchdog

log = logging.getLogger(__name__)


def still_loading() -> Refused:
    """The refusal while no model answers yet."""
    return Refused("busy", "The model is still being loaded; try again in a moment.")


class RemoteBackend:
    """See `Backend` in app/backend/protocol.py for what each method promises."""

    def __init__(
        self,
        transport: str = "process",
        *,
        analyses: str = "analyses:ANALYSES",
        source: str | None = None,
        limits: Limits | None = None,
        stall_seconds: float = STALL_SECONDS,
        **options: Any,
    ) -> None:
        self.transport = transport
        self.limits = limits or load_limits()
        self._map_path = analyses
        self._map = import_map(analyses)
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._calls = Calls()
        self._sessions: list[Session] = []  # every one whose wire is open, also one that only finishes its jobs
        self._current: Session | None = None
        self._opening: Session | None = None
        self._error = ""
        self._deaths = Deaths()
        self._closed = False
        self.watchdog = Watchdog(lambda: tuple(self._sessions), stall_seconds)
        self.open(source, **options)

    # -- what is loaded ----------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """What is loaded and what is being opened."""
        with self._lock:
            model = self._current.model if self._current else None
            opening = self._opening or (self._current if model is None else None)  # the second: started after a death
            if opening is None:
                return Status(model, error=self._error)
            return Status(model, str(opening.source.get("source") or EMBEDDED), opening.progress, self._error)

    def models(self) -> tuple[ModelInfo, ...]:
        """The loaded model, or nothing."""
        return () if (model := self.status().model) is None else (model,)

    def open(self, source: str | None, **options: Any) -> None:
        """Start a worker beside the one that answers; a newer call replaces an older one."""
        with self._lock:
            if self._closed:
                return
            self.cancel_open()
            self._error = ""
            self._opening = self._start({"source": source, **options})

    def cancel_open(self) -> None:
        """End the worker that is being started."""
        with self._lock:
            session, self._opening = self._opening, None
        if session is not None:
            self._retire(session)

    def close(self) -> None:
        """End every worker; jobs that wait are told."""
        with self._lock:
            self._closed = True
            self.watchdog.close()
            sessions = list(self._sessions)
            self._current = self._opening = None
        for session in sessions:
            self._retire(session)

    # -- requests ----------------------------------------------------------------------------------------------------

    def tokenize(self, text: str, **options: Any) -> Tokens:
        """Keywords as `analyses.tokenization.tokenize_text`."""
        try:
            return Tokens(**self._call("tokenize", text=text, options=options))
        except Refused as why:
            if why.code == "bad_request":
                raise ValueError(why.message) from None
            raise

    def estimate(self, request: Request) -> Cost:
        """Computed here: cost functions need no model, only its measured profile and what its worker has learnt."""
        session = self._session()
        if (model := session.model) is None:
            raise still_loading()
        if (analysis := self._map.get(request.analysis)) is None:
            raise Refused("bad_request", f"There is no analysis {request.analysis}.")
        cost = analysis.cost(model.profile, len(request.tokens), request.params)
        return session.corrections.apply(request.analysis, cost)

    def submit(self, request: Request, who: Who) -> RemoteJob:
        """Send a request; while a worker is started again, it waits here."""
        with self._lock:
            session = self._session()
            number = next(self._numbers)
            job = RemoteJob(request, who, lambda: self._cancel(number))
            session.jobs[number] = job
            if session.model is not None:  # else it is being started again, and gets its waiting jobs when it is ready
                session.send_job(number, job, self._map.get(request.analysis))
            return job

    def stats(self) -> Stats:
        """Asked from the worker."""
        return Stats(transport=self.transport, restarts=self._deaths.total, **self._call("stats"))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _session(self) -> Session:
        with self._lock:
            if self._current is None:
                raise Refused("busy", self._error) if self._error else still_loading()
            return self._current

    def _start(self, source: Mapping[str, Any]) -> Session:
        stays = self._current.model if self._current else None  # open until the new one is ready
        beside = 0 if stays is None else stays.config.n_parameters * stays.profile.bytes_per_value
        order = {"analyses": self._map_path, "source": source, "limits": asdict(self.limits), "beside": beside}
        session = Session(TRANSPORTS[self.transport](order), source)
        self._sessions.append(session)
        threading.Thread(target=self._read, args=(session,), name="backend", daemon=True).start()
        return session

    def _retire(self, session: Session) -> None:
        with self._lock:
            session.retired = True
            jobs, session.jobs = list(session.jobs.values()), {}
        for job in jobs:
            job.put(Event("failed", failure=Refused("cancelled", "The model was closed.")))
        session.link.kill()

    def _cancel(self, number: int) -> None:
        with self._lock:
            session = next((session for session in self._sessions if number in session.jobs), None)
            if session is not None and session.model is not None:
                session.link.wire.send({"op": "cancel", "job": number})
            elif session is not None:  # waits for a worker that is being started again
                session.jobs.pop(number).put(Event("failed", failure=Refused("cancelled", "Stopped.")))

    def _call(self, op: str, **body: Any) -> Any:
        try:
            return self._calls.ask(self._session(), op, body)
        except Refused as why:
            if why.code != "worker_died":
                raise
            return self._calls.ask(
                self._session(), op, body
            )  # the model was replaced between question and answer: ask the new one

    # -- the reader of one session -----------------------------------------------------------------------------------

    def _read(self, session: Session) -> None:
        try:
            while True:
                self._handle(session, session.link.wire.receive())
        except (EOFError, ValueError) as error:  # ValueError: a message this version cannot read
            log.debug("wire ended: %s", error)
            self._ended(session)

    def _handle(self, session: Session, message: dict[str, Any]) -> None:
        match message["op"]:
            case "event":
                self._event(session, message["job"], message["event"])
            case "turn":
                session.begin_turn(message["key"], message["seconds"])
            case "learnt":
                session.corrections.learn(message["seconds"], message["bytes"])
            case "reply":
                self._calls.arrived(message)
            case "loading":
                session.progress = Progress(**message["progress"])
            case "ready":
                self._ready(session, message["info"])
            case "failed" if not session.retired:
                self._failed(session, message["message"])

    def _event(self, session: Session, number: int, body: dict[str, Any]) -> None:
        job = session.jobs.get(number)
        if job is None:
            return
        if body["kind"] == "progress":  # only the owner of the model sends these, so it is alive
            session.hear()
        event = event_of(body, self._map.get(job.request.analysis))
        if event.kind in ("done", "failed"):
            with self._lock:
                session.jobs.pop(number, None)
                self._deaths.forgive(job.key)
        job.put(event)
        self._release(session)

    def _ready(self, session: Session, info: dict[str, Any]) -> None:
        session.model = model_info(info)
        with self._lock:
            if session.retired:
                return
            old, self._current = self._current, session
            if self._opening is session:
                self._opening = None
            self._deaths.started()
            session.hear()
            learnt = session.corrections
            session.link.wire.send({"op": "learnt", "seconds": learnt.seconds, "bytes": learnt.bytes})
            for number, job in session.jobs.items():  # came back from a worker that died
                session.send_job(number, job, self._map.get(job.request.analysis))
        if old is not None and old is not session:
            old.retired = True  # answers what it was asked, then ends
            self._release(old)

    def _failed(self, session: Session, sentence: str) -> None:
        with self._lock:
            if self._opening is session:
                self._opening = None
            if self._current is session:
                self._current = None
            self._error = sentence
        self._retire(session)

    def _release(self, session: Session) -> None:
        if session.retired and not session.jobs and session is not self._current:
            session.link.kill()

    def _ended(self, session: Session) -> None:
        """The wire closed: on purpose, or the worker died."""
        with self._lock:
            self._sessions.remove(session)
            self._calls.ended(session)
            if session.retired or self._closed:
                for job in session.jobs.values():
                    job.put(Event("failed", failure=Refused("worker_died", "The model's process ended; run it again.")))
                return
            session.retired = True
            log.warning("the model's process ended unexpectedly")
            waiting = [job.key for job in session.jobs.values()]
            self._deaths.died(session.turn, waiting, was_ready=session.model is not None)
            if not self._deaths.may_start():
                found = "its process ended twice while loading (often: not enough memory)"
                self._failed(session, f"The model could not be opened: {found}; choose a smaller model or free memory.")
                return
            was_current = self._current is session
            if was_current:
                self._current = None  # its memory is free again
            fresh = self._start(session.source)
            fresh.corrections = session.corrections
            fresh.jobs = {number: job for number, job in session.jobs.items() if self._may_return(job)}
            if was_current:
                self._current = fresh
            else:
                self._opening = fresh
        session.link.kill()

    def _may_return(self, job: RemoteJob) -> bool:
        if self._deaths.may_return(job.key):
            job.put(Event("queued"))
            return True
        why = "This request ended the model's process twice and is refused; choose a smaller view or another prompt."
        job.put(Event("failed", failure=Refused("worker_died", why)))
        return False
