"""The worker core: one thread owns the model and runs analyses from a fair queue, a quantum at a time.

Hooks are global to a model and the grad mode is per thread, so exactly one thread touches the model (docs/architecture.md). A job
is one person waiting; a flight is one computation that any number of people may wait for (single flight), and it goes on until
the last of them leaves. No Streamlit, no sockets in here: the same core runs in a thread and in a child process.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from analyses._checkpoints import check_step
from analyses._steps import Analysis, Cancelled, Profile, Progress
from app.backend.admission import TURN_SECONDS, Line, admit
from app.backend.corrections import Corrections
from app.backend.fair_queue import FairQueue
from app.backend.flights import Flight, Job, Listener, device_is_lost, explain, wire_fields
from app.backend.limits import Limits
from app.backend.protocol import Event, Refused, Request, Who
from app.backend.result_cache import ResultCache
from app.backend.room import request_bytes

# Simulated with 39 users and one with three long sweeps: p95 of small requests 0.6 s (benchmarks/fairness.py, docs/log.md).
QUANTUM_SECONDS = TURN_SECONDS
CACHE_BYTES = 64 << 20


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
        on_turn: Callable[[str, float], None] = lambda key, seconds: None,
        on_learnt: Callable[[str], None] = lambda analysis: None,
    ) -> None:
        self.model = model
        self._loaded = model.config  # a request without a checkpoint runs at this one
        self.analyses = analyses
        self.profile = profile
        self.finished = self.cancelled = 0
        self.hooks, self.grad_enabled = 0, False  # as the owner thread found them after its last turn
        self.cache = ResultCache(cache_bytes)
        self.corrections = Corrections()
        limits = limits or Limits()
        self.limits = replace(limits, bytes=request_bytes(limits, model.config.device))
        self._quantum = quantum_seconds
        # Told which flight runs and its estimated seconds, "" when it pauses: whoever watches us can then blame a death on the
        # right one, and knows how long a silence is normal.
        self._on_turn = on_turn
        self._on_learnt = on_learnt  # told the analysis whose corrections have changed
        self._queue: FairQueue[Flight] = FairQueue()
        self._flights: dict[str, Flight] = {}
        self._jobs: dict[Any, Job] = {}
        self._abandoned: list[Flight] = []
        self._closed = False
        self._changed = threading.Condition()

    # -- from any thread ---------------------------------------------------------------------------------------------

    def submit(self, job_id: Any, request: Request, who: Who, tell: Listener) -> None:
        """Queue a request; events go to `tell`, which must not wait.

        Raises:
            Refused: unknown analysis or parameter, a capability this model lacks, another model or checkpoint, or too much work.
        """
        analysis = self.analyses.get(request.analysis)
        if analysis is None:
            known = ", ".join(sorted(self.analyses))
            raise Refused("bad_request", f"needs one of: {known}; found {request.analysis}; choose one of these.")
        config = self._loaded
        self._check_model(request)
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
                line = self._line(who.user)
                cost = admit(request, analysis, self.profile, self.limits, self.corrections, line)
                flight = self._flights[key] = Flight(key, request, analysis, cost)
            job = self._jobs[job_id] = Job(who, tell, flight)
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

    def _check_model(self, request: Request) -> None:
        """Refuse a request for another model, or for a checkpoint that this one does not have."""
        loaded, step = self._loaded, request.checkpoint
        shown = request.model.partition("@")[0]
        if shown and shown != loaded.fingerprint.partition("@")[0]:
            raise Refused("busy", f"The model has changed to {loaded.name} since this page was drawn; run it again.")
        if step is not None:
            try:
                check_step(loaded.name, step, loaded.checkpoints)
            except ValueError as error:
                raise Refused("bad_request", str(error)) from error
        wanted = loaded if step is None else loaded.at(step)
        if request.model and request.model != wanted.fingerprint:
            raise Refused(
                "bad_request", f"needs the page's model, {request.model}; found {wanted.fingerprint}; reload."
            )

    # -- from the owner thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve turns until closed. Enters inference mode once; a suspended generator never holds a mode or a hook."""
        import torch

        with torch.inference_mode():
            while (turn := self._next_turn()) is not None:
                user, flight = turn
                self._on_turn(flight.key, flight.cost.seconds)
                used = self._turn(flight)
                self._on_turn("", 0.0)
                with self._changed:
                    self._queue.charge(user, used)
                    self.hooks, self.grad_enabled = self.model.hook_count(), torch.is_grad_enabled()

    def _next_turn(self) -> tuple[str, Flight] | None:
        with self._changed:
            while True:
                for flight in self._abandoned:
                    if flight.steps is not None:
                        flight.steps.close()
                        self._learn(flight, only_if_longer=True)
                self._abandoned.clear()
                if self._closed:
                    return None
                if (turn := self._queue.next()) is not None:
                    return turn
                self._changed.wait()

    def _turn(self, flight: Flight) -> float:
        """Run one flight for a quantum; returns the seconds used."""
        begun = time.perf_counter()
        self.model.interrupt = flight.check
        ended, result, failure = False, None, None
        try:
            if self._loaded.checkpoints:  # whoever had the turn before may have left it at another one
                asked = flight.request.checkpoint
                self.model.at_checkpoint(self._loaded.checkpoint if asked is None else asked)
            if flight.steps is None:
                flight.steps = flight.analysis.steps(self.model, flight.request.tokens, **flight.request.params)
            while time.perf_counter() - begun < self._quantum:
                flight.check()
                self._tell_progress(flight, next(flight.steps))
        except StopIteration as stop:
            ended, result = True, stop.value
        except Cancelled:
            failure = Refused("cancelled", "Stopped.")
        except Exception as error:  # any bug of an analysis: it must not end the worker
            if device_is_lost(error):
                raise  # every later request would fail too: end here and be started again
            failure = explain(error, flight.request)
        finally:
            self.model.interrupt = lambda: None
        used = time.perf_counter() - begun
        flight.seconds += used
        # Only here are the error and its traceback gone, and with them the tensors of the frames it came through.
        if failure is not None:
            self._fail(flight, failure)
        elif ended:
            self._finish(flight, result)
        return used

    def _learn(self, flight: Flight, *, only_if_longer: bool = False) -> None:
        request = flight.request
        estimated = flight.analysis.cost(self.profile, len(request.tokens), request.params).seconds
        if not only_if_longer or flight.seconds > estimated:
            self.corrections.took(request.analysis, estimated, flight.seconds)
            self._on_learnt(request.analysis)

    # -- bookkeeping, under the lock ---------------------------------------------------------------------------------

    def _line(self, user: str) -> Line:
        own = {job.flight for job in self._jobs.values() if job.who.user == user}
        others: defaultdict[str, float] = defaultdict(float)
        for flight in self._flights.values():
            if flight not in own:  # a flight that several others share is counted once
                others[flight.jobs[0].who.user] += flight.left
        return Line(
            heavy=sum(flight.cost.seconds > self.limits.heavy_seconds for flight in own),
            light=sum(flight.cost.seconds <= self.limits.heavy_seconds for flight in own),
            seconds=sum(flight.left for flight in own),
            others=tuple(others.values()),
            held_bytes=sum(flight.cost.result_bytes for flight in self._flights.values() if flight.steps is not None),
        )

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

    def _forget(self, flight: Flight) -> None:
        self._queue.remove(flight)
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        self._tell_queue()

    def _end(self, flight: Flight, event: Event) -> None:
        for job_id in [job_id for job_id, job in self._jobs.items() if job.flight is flight]:
            self._jobs.pop(job_id).tell(event)
        flight.jobs.clear()
        self._forget(flight)

    def _finish(self, flight: Flight, result: Any) -> None:
        with self._changed:
            self.finished += 1
            if not isinstance(result, flight.analysis.result):
                found = f"{flight.request.analysis} returned {type(result).__name__}"
                self._end(flight, Event("failed", failure=Refused("internal", f"{found}; report this as a bug.")))
                return
            self._learn(flight)
            self.cache.put(flight.key, wire_fields(result))
            self._end(flight, Event("done", result=wire_fields(result), seconds=flight.seconds))

    def _fail(self, flight: Flight, why: Refused) -> None:
        if why.code == "out_of_memory":
            flight.steps = None
            if self.model.config.device.startswith("cuda"):
                import torch

                torch.cuda.empty_cache()
            self.corrections.ran_out(flight.request.analysis)
            self._on_learnt(flight.request.analysis)
        with self._changed:
            self._end(flight, Event("failed", failure=why))

    def _tell_progress(self, flight: Flight, progress: Progress) -> None:
        with self._changed:
            for job in flight.jobs:
                job.tell(Event("progress", progress=progress))

    def _tell_queue(self) -> None:
        for ahead, flight in enumerate(self._queue):
            for job in flight.jobs:
                if flight.steps is None:
                    job.tell(Event("queued", ahead=ahead))
