"""Seconds of single computations, and a budget of them.

A worker may leave an analysis between two yields, so only what runs inside `Stopwatch.time` counts, on the clock and in the
budget. Wall seconds are what a person waits. CPU seconds are those of all threads of the process (torch computes on several),
so on a machine that others use they say more about the work and less about the crowd.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

wall_clock: Callable[[], float] = time.perf_counter
cpu_clock: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Lap:
    """How long one computation took."""

    wall: float  # seconds
    cpu: float  # seconds of all threads of this process


class Stopwatch:
    """Times computations and knows how many seconds are left for more."""

    def __init__(self, budget_seconds: float) -> None:
        self.budget = budget_seconds
        self.spent = 0.0  # wall seconds inside `time`

    def time(self, run: Callable[[], Any]) -> tuple[Any, Lap]:
        """What `run` returns, and its lap. `run` must end with a number of its own, or a GPU has only been asked to begin."""
        wall, cpu = wall_clock(), cpu_clock()
        value = run()
        lap = Lap(wall_clock() - wall, cpu_clock() - cpu)
        self.spent += lap.wall
        return value, lap

    def allows(self, seconds: float) -> bool:
        """Whether a computation of that estimate still fits the budget."""
        return self.spent + seconds <= self.budget


def check_budget(budget_seconds: Any, most: float) -> float:
    """The budget as a number.

    Raises:
        ValueError: not a number above zero and at most `most`.
    """
    if (
        isinstance(budget_seconds, bool)
        or not isinstance(budget_seconds, int | float)
        or not 0 < budget_seconds <= most
    ):
        raise ValueError(
            f"needs a budget above 0 and at most {most:g} seconds; found {budget_seconds!r}; choose fewer points instead."
        )
    return float(budget_seconds)
