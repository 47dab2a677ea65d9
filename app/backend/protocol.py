"""What a page and a worker say to each other: requests, events, failures, what is loaded.

A `Request` names an analysis and carries token ids and JSON-able parameters, never code. Standard library and numpy only, so
that the server process never needs torch.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from analyses._steps import Cost, Profile, Progress
from analyses.model import Check, ModelConfig
from analyses.tokenization import Tokens
from analyses.vocabulary import Vocabulary

FailureCode = Literal["too_large", "busy", "cancelled", "worker_died", "bad_request", "out_of_memory", "internal"]


class Refused(Exception):
    """A request that gets no result, with the reason in one sentence a person can act on."""

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.code: FailureCode = code
        self.message = message


@dataclass(frozen=True)
class Request:
    """One analysis of one prompt. Everything that changes the answer is in here, so it is also the cache key."""

    analysis: str  # a name in the worker's ANALYSES map
    tokens: tuple[int, ...]
    params: Mapping[str, Any] = field(default_factory=dict)  # JSON-able keywords of the analysis
    model: str = ""  # fingerprint of the model the page is showing; "" = whichever is loaded
    checkpoint: int | None = None  # training step of the model's weights; None = those it was loaded with

    def key(self, fingerprint: str, version: int) -> str:
        """Digest of all that decides the result; `fingerprint` is the loaded model's, `version` the analysis'."""
        named = [self.analysis, version, fingerprint, self.checkpoint, self.params]
        text = json.dumps(named, sort_keys=True, allow_nan=False)
        digest = hashlib.blake2b(text.encode(), digest_size=16)
        digest.update(np.asarray(self.tokens, dtype=np.int64).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Who:
    """Whose request it is. A newer request on the same (user, slot) cancels the older one."""

    user: str
    slot: str


@dataclass(frozen=True)
class Event:
    """News of a job. `done` and `failed` are final; of `queued` and `progress` only the last one is kept."""

    kind: Literal["queued", "progress", "done", "failed"]
    ahead: int = 0  # jobs that come first (queued)
    progress: Progress | None = None
    result: Any = None  # the analysis' own result class (done)
    seconds: float = 0.0  # seconds of computing (done)
    cached: bool = False  # somebody had asked the same before (done)
    failure: Refused | None = None


class Job(Protocol):
    """A submitted request."""

    def poll(self, timeout: float) -> Event | None:
        """The next event, or None when nothing happened within `timeout` seconds. A final event is returned every time."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result. Raises Refused; a timeout cancels the job."""

    def cancel(self) -> None:
        """Stop at the next block of the model. Harmless when the job has ended."""


@dataclass(frozen=True)
class ModelInfo:
    """The loaded model, as much of it as a page needs."""

    config: ModelConfig
    capabilities: Mapping[str, str]  # name -> "" when available, else the reason
    checks: tuple[Check, ...]
    vocabulary: Vocabulary
    profile: Profile
    bos_choices: tuple[str, ...]
    has_chat_template: bool

    def missing(self, requires: tuple[str, ...]) -> str:
        """Why an analysis is off for this model, in words; "" when it is available."""
        return " ".join(self.capabilities.get(name, f"unknown capability {name}") for name in requires).strip()


@dataclass(frozen=True)
class Status:
    """What is loaded and what is being opened beside it."""

    model: ModelInfo | None = None
    opening: str = ""  # name of the model that is being opened
    progress: Progress | None = None
    error: str = ""  # why the last opening failed, in one sentence


@dataclass(frozen=True)
class Stats:
    """Numbers for the health page and the tests."""

    transport: str
    pid: int  # of the process that holds the model
    waiting: int
    finished: int
    cancelled: int
    restarts: int
    cache_bytes: int
    cache_hits: int
    hooks: int  # user hooks on the model while no job runs: always 0
    grad_enabled: bool  # in the thread that owns the model: always False


class Backend(Protocol):
    """The only way from a page to a model."""

    def status(self) -> Status:
        """What is loaded or being loaded; never waits."""

    def models(self) -> tuple[ModelInfo, ...]:
        """The models that answer requests now: one, or none while the first is loading."""

    def open(self, source: str | None, **options: Any) -> None:
        """Open another model beside the loaded one, which answers until the new one is ready."""

    def cancel_open(self) -> None:
        """Stop opening; the loaded model stays."""

    def tokenize(self, text: str, **options: Any) -> Tokens:
        """Tokens of a text, on a lane of its own, not behind the model's queue. Raises ValueError and Refused."""

    def estimate(self, request: Request) -> Cost:
        """What a request will take. Raises Refused when nothing is loaded."""

    def submit(self, request: Request, who: Who) -> Job:
        """Queue a request. Raises Refused."""

    def stats(self) -> Stats:
        """Counters of the worker."""

    def close(self) -> None:
        """End the worker. Idempotent."""
