"""The contract every analysis follows: a generator of steps, a cost known before it runs, a frozen result.

`x_steps(model, tokens, **params)` yields `Progress` at least once per forward pass and returns the result; `run_x` drains it.
So a worker can stop, interleave or cancel an analysis between two yields. Never yield inside `model.hooks(...)` or inside a
grad or inference-mode context: a suspended generator would leave its hooks and its mode to the next job.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")


class Cancelled(Exception):
    """Raised inside a computation that was asked to stop; whoever asked catches it."""


@dataclass(frozen=True)
class Progress:
    """How far a computation is, between two forward passes."""

    done: int | float
    total: int | float
    note: str = ""  # what is being done, in words, e.g. "converting the embedded model"
    partial: Mapping[str, Any] | None = (
        None  # everything finished so far (cumulative: a receiver may see only the last one)
    )


Steps = Generator[Progress, None, Result]


@dataclass(frozen=True)
class Cost:
    """What a request will take, known before it runs."""

    seconds: float
    peak_bytes: int  # extra memory while it runs
    result_bytes: int  # size of what it returns


@dataclass(frozen=True)
class Profile:
    """How fast this model is on this machine: measured once, at start (app/backend/calibration.py).

    A forward pass of `batch` rows of `pos` tokens takes `base + per_token * batch * pos + per_pair * batch * pos**2` seconds.
    """

    base: float  # seconds per forward pass
    per_token: float  # seconds
    per_pair: float  # seconds per query-key pair
    per_readout: float  # seconds for the final norm, the unembedding and a softmax of one position
    n_layers: int
    n_heads: int
    d_model: int
    d_vocab: int
    n_ctx: int
    bytes_per_value: int = 4

    def forward_seconds(self, pos: int, batch: int = 1) -> float:
        """Estimated seconds of one forward pass without the readout of every position."""
        return self.base + self.per_token * batch * pos + self.per_pair * batch * pos**2

    def forward_bytes(self, pos: int, batch: int = 1, readouts: int = 1) -> int:
        """Extra bytes of one forward pass: one eager layer of attention, a few residual streams, the logits kept."""
        attention = 3 * batch * self.n_heads * pos**2 * self.bytes_per_value
        streams = 8 * batch * pos * self.d_model * self.bytes_per_value
        return int(1.3 * (attention + streams + batch * readouts * self.d_vocab * self.bytes_per_value))


@dataclass(frozen=True)
class Analysis:
    """One line of the map `ANALYSES`: everything a worker needs to know about an analysis."""

    steps: Callable[..., Steps[Any]]  # (model, tokens, **params) -> Generator[Progress, None, result]
    cost: Callable[[Profile, int, Mapping[str, Any]], Cost]  # (profile, n_tokens, params) -> Cost
    result: type  # the frozen dataclass it returns: numpy arrays, str, int, float, bool, None and tuples of these
    version: int = 1  # raised when the same parameters give another answer: part of every cache key
    requires: Sequence[str] = field(default=())  # names of capabilities (analyses/model.py)
    kept: bool = False  # its work is kept on disk: long the first time, for everybody, and then not again


def drain(steps: Steps[Result]) -> Result:
    """Run an analysis to its end under inference mode and return its result."""
    import torch

    with torch.inference_mode():
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value
