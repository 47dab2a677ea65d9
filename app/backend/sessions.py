"""What the server keeps about one started worker, and the questions it waits for."""

import threading
from collections.abc import Mapping
from typing import Any

from analyses._steps import Profile, Progress
from analyses.model import Check, ModelConfig
from analyses.vocabulary import Vocabulary
from app.backend.jobs import RemoteJob
from app.backend.protocol import ModelInfo, Refused
from app.backend.transports import Link


class Session:
    """One started worker as the server knows it."""

    def __init__(self, link: Link, source: Mapping[str, Any]) -> None:
        self.link = link
        self.source = source
        self.model: ModelInfo | None = None
        self.progress = Progress(0.0, 1.0, "starting")
        self.jobs: dict[int, RemoteJob] = {}
        self.turn = ""  # key of the request that is running
        self.retired = False  # replaced or closed on purpose: its end is not a death


class Call:
    """A question to a worker that somebody waits for."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answered = threading.Event()
        self.value: Any = None
        self.failure: Refused | None = None

    def answer(self, value: Any, failure: Refused | None) -> None:
        """Called by the reader of the wire."""
        self.value, self.failure = value, failure
        self.answered.set()


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
