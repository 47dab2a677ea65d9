"""The worker core: one thread owns the model and runs analyses from a fair queue, a quantum at a time.

Hooks are global to a model and the grad mode is per thread, so exactly one thread touches the model (docs/architecture.md). A job
is one person waiting; a flight is one computation that any number of people may wait for (single flight), and it goes on until
the last of them leaves. No Streamlit, no sockets in here: the same core runs in a thread and in a child process.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from analyses._steps import Analysis, Cancelled, Profile, Progress, Steps
from app.backend.admission import Limits, admit
from app.backend.fair_queue import FairQueue
from app.backend.protocol import Event, FailureCode, Refused, Request, Who
from app.backend.result_cache import ResultCache

log = logging.getLogger(__name__)

QUANTUM_SECONDS = (
    0.5  # simulated with 39 users and one with three long sweeps: p95 of small requests 0.68 s (docs/log.md)
)
CACHE_BYTES = 64 << 20

Listener = Callable[[Event], None]


@dataclass(eq=False)
class _Job:
    """One person waiting for one flight."""

    who: Who
    tell: Listener
    flight: "_Flight"


@dataclass(eq=False)
class _Flight:
    """One computation."""

    key: str
    request: Request
    analysis: Analysis
    jobs: list[_Job] = field(default_factory=list)
    steps: Steps[Any] | None = None  # None until its first turn
    seconds: float = 0.0
    closed: bool = False  # the worker is ending

    def check(self) -> None:
        """Called before every block of the model and between vocabulary chunks."""
        if self.closed or not self.jobs:
            raise Cancelled


class Worker:
    """Queue, cache and owner of one model. `run` is called by the owner thread, everything else from any thread."""

    def __init__(
        self,
        model: Any,
        analyses: Mapping[str, Analysis],
        profile: Profile,
        *,
        limits: Limits | None = None,
        quantum_seconds: float = QUANTUM_SECONDS,
        cache_bytes: int = CACHE_BYTES,
        on_turn: Callable[[str], None] = lambda key: None,
    ) -> None:
        self.model = model
        self.analyses = analyses
        self.profile = profile
        self.finished = self.cancelled = 0
        self.hooks, self.grad_enabled = 0, False  # as the owner thread found them after its last turn
        self.cache = ResultCache(cache_bytes)
        self._limits = limits or Limits()
        self._quantum = quantum_seconds
        self._on_turn = (
            on_turn  # told which flight runs, "" when it pauses: a death can then be blamed on the right one
        )
        self._queue: FairQueue[_Flight] = FairQueue()
        self._flights: dict[str, _Flight] = {}
        self._jobs: dict[Any, _Job] = {}
        self._abandoned: list[_Flight] = []
        self._closed = False
        self._changed = threading.Condition()

    # -- from any thread ---------------------------------------------------------------------------------------------

    def submit(self, job_id: Any, request: Request, who: Who, tell: Listener) -> None:
        """Queue a request; events go to `tell`, which must not wait.

        Raises:
            Refused: unknown analysis or parameter, a capability this model lacks, another model, or too much work.
        """
        analysis = self.analyses.get(request.analysis)
        if analysis is None:
            known = ", ".join(sorted(self.analyses))
            raise Refused("bad_request", f"needs one of: {known}; found {request.analysis}; choose one of these.")
        config = self.model.config
        if request.model and request.model != config.fingerprint:
            raise Refused("busy", f"The model has changed to {config.name} since this page was drawn; run it again.")
        reasons = [self.model.capabilities.get(name, f"it has no {name}.") for name in analysis.requires]
        if missing := " ".join(reason for reason in reasons if reason):
            raise Refused("bad_request", f"This view is off for {config.name}: {missing}")
        key = request.key(config.fingerprint, analysis.version)
        with self._changed:
            self._supersede(who)
            if (stored := self.cache.get(key)) is not None:
                tell(Event("done", result=stored, cached=True))
                return
            flight = self._flights.get(key)
            if flight is None:
                admit(request, analysis, self.profile, self._limits)
                flight = self._flights[key] = _Flight(key, request, analysis)
            job = self._jobs[job_id] = _Job(who, tell, flight)
            flight.jobs.append(job)
            self._queue.put(who.user, flight)
            self._tell_queue()
            self._changed.notify()

    def cancel(self, job_id: Any) -> None:
        """Stop waiting; the computation ends with its last waiter."""
        with self._changed:
            if job_id in self._jobs:
                self._leave(job_id, Refused("cancelled", "Stopped."))

    def waiting(self) -> int:
        """Jobs without a final event."""
        with self._changed:
            return len(self._jobs)

    def close(self) -> None:
        """End the owner thread at the next block of the model. Idempotent."""
        with self._changed:
            self._closed = True
            for flight in self._flights.values():
                flight.closed = True
            self._changed.notify_all()

    # -- from the owner thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve turns until closed. Enters inference mode once; a suspended generator never holds a mode or a hook."""
        import torch

        with torch.inference_mode():
            while (turn := self._next_turn()) is not None:
                user, flight = turn
                self._on_turn(flight.key)
                used = self._turn(flight)
                self._on_turn("")
                with self._changed:
                    self._queue.charge(user, used)
                    self.hooks, self.grad_enabled = self.model.hook_count(), torch.is_grad_enabled()

    def _next_turn(self) -> tuple[str, _Flight] | None:
        with self._changed:
            while True:
                for flight in self._abandoned:
                    if flight.steps is not None:
                        flight.steps.close()
                self._abandoned.clear()
                if self._closed:
                    return None
                if (turn := self._queue.next()) is not None:
                    return turn
                self._changed.wait()

    def _turn(self, flight: _Flight) -> float:
        """Run one flight for a quantum; returns the seconds used."""
        begun = time.perf_counter()
        self.model.interrupt = flight.check
        try:
            if flight.steps is None:
                flight.steps = flight.analysis.steps(self.model, flight.request.tokens, **flight.request.params)
            while time.perf_counter() - begun < self._quantum:
                flight.check()
                self._tell_progress(flight, next(flight.steps))
        except StopIteration as stop:
            flight.seconds += time.perf_counter() - begun
            self._finish(flight, stop.value)
        except Cancelled:
            self._fail(flight, Refused("cancelled", "Stopped."))
        except Exception as error:  # noqa: BLE001 (the one place where any bug of an analysis must not end the worker)
            self._fail(flight, explain(error, flight.request))
        finally:
            self.model.interrupt = lambda: None
        used = time.perf_counter() - begun
        flight.seconds += used
        return used

    # -- bookkeeping, under the lock ---------------------------------------------------------------------------------

    def _supersede(self, who: Who) -> None:
        for job_id in [job_id for job_id, job in self._jobs.items() if job.who == who]:
            self._leave(job_id, Refused("cancelled", "Replaced by a newer request."))

    def _leave(self, job_id: Any, why: Refused) -> None:
        job = self._jobs.pop(job_id)
        job.flight.jobs.remove(job)
        self.cancelled += 1
        job.tell(Event("failed", failure=why))
        if not job.flight.jobs:
            self._forget(job.flight)
            self._abandoned.append(job.flight)
            self._changed.notify()

    def _forget(self, flight: _Flight) -> None:
        self._queue.remove(flight)
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        self._tell_queue()

    def _end(self, flight: _Flight, event: Event) -> None:
        for job_id in [job_id for job_id, job in self._jobs.items() if job.flight is flight]:
            self._jobs.pop(job_id).tell(event)
        flight.jobs.clear()
        self._forget(flight)

    def _finish(self, flight: _Flight, result: Any) -> None:
        with self._changed:
            self.finished += 1
            if not isinstance(result, flight.analysis.result):
                found = f"{flight.request.analysis} returned {type(result).__name__}"
                self._end(flight, Event("failed", failure=Refused("internal", f"{found}; report this as a bug.")))
                return
            self.cache.put(flight.key, wire_fields(result))
            self._end(flight, Event("done", result=wire_fields(result), seconds=flight.seconds))

    def _fail(self, flight: _Flight, why: Refused) -> None:
        with self._changed:
            self._end(flight, Event("failed", failure=why))

    def _tell_progress(self, flight: _Flight, progress: Progress) -> None:
        with self._changed:
            for job in flight.jobs:
                job.tell(Event("progress", progress=progress))

    def _tell_queue(self) -> None:
        for ahead, flight in enumerate(self._queue):
            for job in flight.jobs:
                if flight.steps is None:
                    job.tell(Event("queued", ahead=ahead))


def wire_fields(result: Any) -> dict[str, Any]:
    """A result dataclass as the builtins and arrays that cross the wire."""
    return {item.name: getattr(result, item.name) for item in fields(result)}


def explain(error: Exception, request: Request) -> Refused:
    """What went wrong inside an analysis, as a sentence for the person who asked."""
    import torch

    code: FailureCode = "internal"
    message = (
        f"{request.analysis} failed ({type(error).__name__}); the server's log has the details; report this as a bug."
    )
    if isinstance(error, ValueError):
        code, message = "bad_request", str(error)
    elif isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error):
        code, message = (
            "out_of_memory",
            f"{len(request.tokens):,} tokens need more memory than is free; shorten the prompt.",
        )
    elif isinstance(error, TypeError) and "argument" in str(error):
        code, message = "bad_request", f"{request.analysis} does not take these parameters ({error})."
    if code == "internal":
        log.error("analysis %s failed", request.analysis, exc_info=error)
    return Refused(code, message)
