"""What the server keeps about one started worker, and how its messages become the classes that pages use."""

import time
from collections.abc import Mapping
from typing import Any

from analyses._steps import Analysis, Profile, Progress
from analyses.model import Check, ModelConfig
from analyses.vocabulary import Vocabulary
from app.backend.corrections import Corrections
from app.backend.jobs import RemoteJob
from app.backend.protocol import Event, ModelInfo, Refused
from app.backend.transports import Link

PATIENCE = 5  # times the estimate


class Session:
    """One started worker as the server knows it."""

    def __init__(self, link: Link, source: Mapping[str, Any]) -> None:
        self.link = link
        self.source = source
        self.model: ModelInfo | None = None
        self.progress = Progress(0.0, 1.0, "starting")
        self.jobs: dict[int, RemoteJob] = {}
        self.turn = ""  # key of the request that is running
        self.turn_seconds = 0.0  # its estimate
        self.corrections = Corrections()  # as the worker last told them
        self.retired = False  # replaced or closed on purpose: its end is not a death
        self._heard = time.monotonic()

    def hear(self) -> None:
        """A sign of the thread that owns the model, or the moment from which one is due."""
        self._heard = time.monotonic()

    def begin_turn(self, key: str, seconds: float) -> None:
        """The worker runs this request now; "" when it runs none."""
        self.turn, self.turn_seconds = key, seconds
        self.hear()

    def send_job(self, number: int, job: RemoteJob, analysis: Analysis | None) -> None:
        """Pass a job on to the worker, whose model is loaded."""
        if analysis is not None and self.model is not None:
            job.key = job.request.key(self.model.config.fingerprint, analysis.version)
        if len(self.jobs) == 1 and not self.turn:  # it was idle: a sign is due from now on
            self.hear()
        self.link.wire.send({"op": "submit", "job": number, **job.to_wire()})

    def stalled(self, patience_seconds: float) -> bool:
        """Whether a worker that has something to do has given no sign for longer than its request explains.

        A worker that loads is not judged, nor an idle one. A long forward pass gives no sign either, so the estimate of the
        running request counts five times.
        """
        busy = self.model is not None and (self.jobs or self.turn)
        return bool(busy) and time.monotonic() - self._heard > max(patience_seconds, PATIENCE * self.turn_seconds)


def event_of(body: Mapping[str, Any], analysis: Analysis | None) -> Event:
    """An event from the wire, its result in the analysis' own class."""
    kind, result = body["kind"], None
    failure = Refused(*body["failure"]) if "failure" in body else None
    progress = Progress(**body["progress"]) if "progress" in body else None
    if kind == "done" and analysis is not None:
        try:
            result = analysis.result(**body["result"])
        except (TypeError, ValueError) as error:
            kind, failure = "failed", Refused("internal", f"The result does not fit its class: {error}")
    return Event(kind, body["ahead"], progress, result, body["seconds"], body["cached"], failure)


def model_info(info: Mapping[str, Any]) -> ModelInfo:
    """What a worker said about its model, as the classes that pages use."""
    return ModelInfo(
        config=ModelConfig(**info["config"]),
        capabilities=info["capabilities"],
        checks=tuple(Check(**check) for check in info["checks"]),
        vocabulary=Vocabulary(**info["vocabulary"]),
        profile=Profile(**info["profile"]),
        bos_choices=info["bos_choices"],
        has_chat_template=info["has_chat_template"],
    )
