"""Analyses that the contract tests bring along: a long sweep, one that adds hooks, one that fails, one that ends its worker."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyses._arrays import to_float32
from analyses._steps import Analysis, Cost, Profile, Progress, Steps


@dataclass(frozen=True)
class Numbers:
    values: np.ndarray
    note: str = ""


def _cost(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    return Cost(profile.forward_seconds(n_tokens) * params.get("times", 1), n_tokens * 1000, 1000)


def sweep_steps(model: Any, tokens: tuple[int, ...], *, times: int = 50) -> Steps[Numbers]:
    """A long job: `times` forward passes."""
    total = np.zeros(1, np.float32)
    for done in range(times):
        total += to_float32(model.forward(tokens, last_only=True))[0, -1].sum()
        yield Progress(done + 1, times, partial={"passes": done + 1})
    return Numbers(total)


def steer_steps(model: Any, tokens: tuple[int, ...], *, amount: float = 0.0, layer: int = 1) -> Steps[Numbers]:
    """Logits of the last token with a constant added to the stream before one block."""
    yield Progress(0, 1)
    name = model.hook_name("resid_pre", layer)
    with model.hooks((name, lambda tensor, hook: tensor + amount)):
        logits = model.forward(tokens, last_only=True)
    return Numbers(to_float32(logits)[0, -1])


def fail_steps(model: Any, tokens: tuple[int, ...], *, how: str = "bug") -> Steps[Numbers]:
    """Goes wrong inside a forward pass, with hooks installed."""
    yield Progress(0, 1)

    def wrong(tensor: Any, hook: Any) -> None:
        import torch

        raise {
            "bug": KeyError("oh"),
            "value": ValueError("needs a; found b; do c."),
            "memory": MemoryError(),
            "cuda memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        }[how]

    with model.hooks((model.hook_name("resid_pre", 1), wrong)):
        model.forward(tokens)
    return Numbers(np.zeros(1, np.float32))


def kill_steps(model: Any, tokens: tuple[int, ...], *, flag: str = "") -> Steps[Numbers]:
    """Ends its worker; with `flag`, only while that file does not exist."""
    yield Progress(0, 1)
    if not flag or not os.path.exists(flag):
        if flag:
            open(flag, "w").close()
        if os.environ.get("STREAMSCOPE_TEST_CHILD"):  # never the tests' own process
            os._exit(9)
        raise SystemExit(9)
    return Numbers(np.ones(1, np.float32))


def stall_steps(
    model: Any, tokens: tuple[int, ...], *, seconds: float, says: float = 0.0, flag: str = ""
) -> Steps[Numbers]:
    """Is silent for some seconds, of which it says some beforehand; with `flag`, only while that file does not exist."""
    yield Progress(0, 1)
    if not flag or not os.path.exists(flag):
        if flag:
            open(flag, "w").close()
        time.sleep(seconds)
    return Numbers(np.full(1, seconds, np.float32))


def stall_cost(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    return Cost(params.get("says", 0.0), 1000, 1000)


def unsendable_steps(model: Any, tokens: tuple[int, ...]) -> Steps[Numbers]:
    yield Progress(0, 1)
    return Numbers(np.array([object()]))


ANALYSES = {
    "sweep": Analysis(sweep_steps, _cost, Numbers),
    "steer": Analysis(steer_steps, _cost, Numbers),
    "fail": Analysis(fail_steps, _cost, Numbers),
    "stall": Analysis(stall_steps, stall_cost, Numbers),
    "kill": Analysis(kill_steps, _cost, Numbers),
    "unsendable": Analysis(unsendable_steps, _cost, Numbers),
    "impossible": Analysis(sweep_steps, _cost, Numbers, requires=("telepathy",)),
}
