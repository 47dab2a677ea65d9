"""The worker's side of the wire: loads the model, then turns messages into calls of the worker core.

Three threads: the reader (the caller of `serve`), the owner of the model, and a lane for the tokenizer, so that counting tokens
never waits behind a forward pass. A fourth sends, so that nobody waits for a slow receiver while holding a lock.
"""

import copy
import importlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from analyses._steps import Analysis, Cancelled, Progress
from app.backend.codec import Wire
from app.backend.flights import wire_fields
from app.backend.limits import Limits
from app.backend.protocol import Event, Refused, Request, Who
from app.backend.room import check_room, loaded_bytes
from app.backend.worker import Worker

log = logging.getLogger(__name__)

# transformers builds a model under a process-wide "meta" device: of two that load at the same time, one may end up without data.
_one_load = threading.Lock()


def import_map(path: str) -> Mapping[str, Analysis]:
    """The ANALYSES map at "package.module:NAME"; the path is a start argument, never part of a request."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def event_to_wire(event: Event) -> dict[str, Any]:
    """An event as builtins and arrays."""
    body: dict[str, Any] = {"kind": event.kind, "ahead": event.ahead, "seconds": event.seconds, "cached": event.cached}
    if event.progress is not None:
        body["progress"] = wire_fields(event.progress)
    if event.kind == "done":
        body["result"] = event.result
    if event.failure is not None:
        body["failure"] = [event.failure.code, event.failure.message]
    return body


class Service:
    """One model behind one connection."""

    def __init__(self, wire: Wire, order: Mapping[str, Any], transport: str) -> None:
        self.wire = wire
        self._analyses = import_map(order["analyses"])
        self._source: Mapping[str, Any] = order["source"]  # arguments of load_model
        self._limits = Limits(**order["limits"])
        self._beside: int = order["beside"]  # bytes of the model that stays open until this one is ready
        self._transport = transport
        self._worker: Worker | None = None
        self._outbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._texts: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._closed = threading.Event()

    def serve(self, on_death: Callable[[], None]) -> None:
        """Read messages until the other end is gone. `on_death` is called when the owner thread dies of anything."""
        for name, target in (("sender", self._send_all), ("tokenizer", self._tokenize_all)):
            threading.Thread(target=target, name=name, daemon=True).start()
        owner = threading.Thread(target=self._own, args=(on_death,), name="model", daemon=True)
        owner.start()
        try:
            while True:
                self._handle(self.wire.receive())
        except EOFError:
            self._closed.set()
            if self._worker is not None:
                self._worker.close()
            self._texts.put(None)
            self._outbox.put(None)
            self.wire.close()

    # -- the reader --------------------------------------------------------------------------------------------------

    def _handle(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "submit":
                self._submit(message["job"], message["request"], message["who"])
            case "cancel" if self._worker is not None:
                self._worker.cancel(message["job"])
            case "tokenize":
                self._texts.put(message)
            case "learnt" if self._worker is not None:  # by the worker before this one
                self._worker.corrections.learn(message["seconds"], message["bytes"])
            case "stats":
                self._reply(message, self._stats())

    def _submit(self, job: int, request: dict[str, Any], who: list[str]) -> None:
        def tell(event: Event) -> None:
            self._outbox.put({"op": "event", "job": job, "event": event_to_wire(event)})

        try:
            if self._worker is None:
                raise Refused("busy", "The model is still being loaded; try again in a moment.")
            tokens = tuple(request.pop("tokens").tolist())
            self._worker.submit(job, Request(tokens=tokens, **request), Who(*who), tell)
        except Refused as why:
            tell(Event("failed", failure=why))
        except Exception as error:  # a cost function's bug must not end the reader, and with it the worker
            log.error("request %s could not be weighed", request.get("analysis"), exc_info=error)
            sentence = f"The request could not be weighed ({type(error).__name__}); report this as a bug."
            tell(Event("failed", failure=Refused("internal", sentence)))

    def _stats(self) -> dict[str, Any]:
        worker = self._worker
        numbers = dict.fromkeys(("waiting", "finished", "cancelled", "cache_bytes", "cache_hits", "hooks"), 0)
        if worker is not None:
            numbers = {
                "waiting": worker.waiting(),
                "finished": worker.finished,
                "cancelled": worker.cancelled,
                "cache_bytes": worker.cache.bytes,
                "cache_hits": worker.cache.hits,
                "hooks": worker.hooks,
            }
        return {**numbers, "grad_enabled": worker is not None and worker.grad_enabled, "pid": os.getpid()}

    def _reply(self, message: dict[str, Any], value: Any = None, error: Refused | None = None) -> None:
        failure = None if error is None else [error.code, error.message]
        self._outbox.put({"op": "reply", "call": message["call"], "value": value, "failure": failure})

    # -- the other threads -------------------------------------------------------------------------------------------

    def _send_all(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                self.wire.send(message)
            except TypeError as error:  # a bug of the analysis: this cannot cross the wire, and the job must still end
                log.error("not sent: %s", error)
                failure = ["internal", f"The result could not be sent: {error}"]
                if message["op"] == "event":
                    body = {"kind": "failed", "ahead": 0, "seconds": 0.0, "cached": False, "failure": failure}
                    self.wire.send({"op": "event", "job": message["job"], "event": body})

    def _own(self, on_death: Callable[[], None]) -> None:
        try:
            worker = self._load()
            if worker is not None:
                self._worker = worker
                self._outbox.put({"op": "ready", "info": self._info(worker)})
                worker.run()
        except BaseException as error:
            log.critical("the thread that owns the model ended", exc_info=error)
        finally:
            if not self._closed.is_set():
                on_death()

    def _load(self) -> Worker | None:
        from analyses.model import load_model
        from app.backend.calibration import load_profile

        if self._transport == "process":  # our own process: the page shows the progress, the terminal stays readable
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()
        try:
            with _one_load:
                self._loading(Progress(0.0, 1.0, "starting"))  # raises when it was cancelled while it waited
                self._check_room()
                model = load_model(**self._source, on_progress=self._loading)
            self._loading(Progress(0.95, 1.0, "measuring how fast this machine is"))
            profile = load_profile(model)
            self._tokenizer = copy.deepcopy(model.tokenizer)  # the lane's own: tokenizers keep state between calls
        except Cancelled:
            return None
        except (ValueError, OSError, MemoryError, RuntimeError) as error:
            log.error("could not open %s", self._source, exc_info=not isinstance(error, ValueError))
            self._fail_to_open(
                str(error) if isinstance(error, ValueError) else f"The model could not be opened: {error}"
            )
            return None

        def on_turn(key: str, seconds: float) -> None:
            # Not through the outbox: it must be out before a death can come.
            self.wire.send({"op": "turn", "key": key, "seconds": seconds})

        def on_learnt(analysis: str) -> None:
            factors = worker.corrections
            seconds, size = (
                {name: table[name] for name in (analysis,) if name in table}
                for table in (factors.seconds, factors.bytes)
            )
            self._outbox.put({"op": "learnt", "seconds": seconds, "bytes": size})

        worker = Worker(model, self._analyses, profile, limits=self._limits, on_turn=on_turn, on_learnt=on_learnt)
        return worker

    def _check_room(self) -> None:
        """Before anything large is read: whether the new model fits beside the open one."""
        if not self._beside:
            return
        from analyses._device import choose_device
        from analyses._weights import free_bytes
        from analyses.sources import resolve

        device = choose_device(self._source.get("device"))
        found = resolve(self._source.get("source"), revision=self._source.get("revision"))
        needed = loaded_bytes(found, self._source.get("dtype"))
        limit, free = self._limits.model_bytes, free_bytes(device)
        check_room(found.name, needed, self._beside, model_bytes=limit, free=free, device=device)

    def _fail_to_open(self, sentence: str) -> None:
        self._closed.set()
        self._outbox.put({"op": "failed", "message": sentence})

    def _loading(self, progress: Progress) -> None:
        if self._closed.is_set():
            raise Cancelled
        self._outbox.put({"op": "loading", "progress": wire_fields(progress)})

    def _info(self, worker: Worker) -> dict[str, Any]:
        from analyses.tokenization import bos_choices
        from analyses.vocabulary import build_vocabulary

        model = worker.model
        return {
            "config": asdict(model.config),
            "capabilities": dict(model.capabilities),
            "checks": [asdict(check) for check in model.checks],
            "vocabulary": wire_fields(build_vocabulary(model.tokenizer, model.config.d_vocab)),
            "profile": asdict(worker.profile),
            "bos_choices": tuple(bos_choices(model.tokenizer)),
            "has_chat_template": bool(model.tokenizer.chat_template),
        }

    def _tokenize_all(self) -> None:
        from analyses.tokenization import tokenize_text

        while (message := self._texts.get()) is not None:
            if self._worker is None:
                self._reply(message, error=Refused("busy", "The model is still being loaded; try again in a moment."))
                continue
            try:
                n_ctx = self._worker.model.config.n_ctx
                found = tokenize_text(self._tokenizer, message["text"], n_ctx=n_ctx, **message["options"])
                self._reply(message, wire_fields(found))
            except ValueError as error:
                self._reply(message, error=Refused("bad_request", str(error)))
            except Exception as error:
                log.error("tokenising failed", exc_info=error)
                self._reply(message, error=Refused("internal", f"The tokenizer failed ({type(error).__name__})."))
