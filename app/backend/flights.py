"""What the worker keeps about its work: a job is one person waiting, a flight is one computation that any number wait for."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from analyses._steps import Analysis, Cancelled, Cost, Steps
from app.backend.protocol import Event, FailureCode, Refused, Request, Who

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]


@dataclass(eq=False)
class Job:
    """One person waiting for one flight."""

    who: Who
    tell: Listener
    flight: "Flight"


@dataclass(eq=False)
class Flight:
    """One computation."""

    key: str
    request: Request
    analysis: Analysis
    cost: Cost  # as estimated when it was let in
    jobs: list[Job] = field(default_factory=list)
    steps: Steps[Any] | None = None  # None until its first turn
    seconds: float = 0.0  # it has had
    closed: bool = False  # the worker is ending

    @property
    def left(self) -> float:
        """Seconds that the estimate leaves."""
        return max(0.0, self.cost.seconds - self.seconds)

    def check(self) -> None:
        """Called before every block of the model and between vocabulary chunks."""
        if self.closed or not self.jobs:
            raise Cancelled


def wire_fields(result: Any) -> dict[str, Any]:
    """A result dataclass as the builtins and arrays that cross the wire."""
    return {item.name: getattr(result, item.name) for item in fields(result)}


def device_is_lost(error: Exception) -> bool:
    """Whether the device can compute nothing any more in this process (a failed assert in a cuda kernel)."""
    return isinstance(error, RuntimeError) and "device-side assert" in str(error)


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
            f"needs more memory than is free for {len(request.tokens):,} tokens; found the memory full while it ran; "
            "shorten the prompt or choose a smaller view.",
        )
    elif isinstance(error, TypeError) and "argument" in str(error):
        code, message = "bad_request", f"{request.analysis} does not take these parameters ({error})."
    if code == "internal":
        log.error("analysis %s failed", request.analysis, exc_info=error)
    return Refused(code, message)
