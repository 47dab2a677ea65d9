"""What happened corrects what is estimated: per analysis, a factor on the seconds and one on the bytes.

A worker learns, the server is told, so that the estimate a page shows is the one that admission uses. The factors belong to one
loaded model: they go to the next worker when this one dies and are forgotten when another model is opened.
"""

import math
from dataclasses import replace

from analyses._steps import Cost

LEAST, MOST = 0.1, 10.0  # of the factor on seconds: one strange measurement must not close a view, nor open every door
WEIGHT = 0.3  # of the newest run, when it took a second or more
OUT_OF_MEMORY = 1.5  # factor on the bytes after each time the memory did not suffice
MOST_BYTES = OUT_OF_MEMORY**6  # 11.4: a machine that was full for other reasons must not close a view for good


class Corrections:
    """Factors by the name of the analysis; 1 where nothing has happened yet."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bytes: dict[str, float] = {}

    def apply(self, analysis: str, cost: Cost) -> Cost:
        """The estimate with what has been learnt."""
        seconds = cost.seconds * self.seconds.get(analysis, 1.0)
        return replace(cost, seconds=seconds, peak_bytes=int(cost.peak_bytes * self.bytes.get(analysis, 1.0)))

    def took(self, analysis: str, estimated: float, actual: float) -> None:
        """A run has ended: exponentially weighted mean of the logarithm of actual / estimated seconds.

        `estimated` is the analysis' own cost, uncorrected. Runs below a second weigh less, in proportion: their time is mostly
        overhead and says little about a long run.
        """
        if estimated <= 0 or actual <= 0:
            return
        weight = WEIGHT * min(1.0, max(estimated, actual))
        newest = math.log(min(max(actual / estimated, LEAST), MOST))
        self.seconds[analysis] = math.exp((1 - weight) * math.log(self.seconds.get(analysis, 1.0)) + weight * newest)

    def ran_out(self, analysis: str) -> None:
        """The memory did not suffice for what was let through."""
        self.bytes[analysis] = min(self.bytes.get(analysis, 1.0) * OUT_OF_MEMORY, MOST_BYTES)

    def learn(self, seconds: dict[str, float], bytes: dict[str, float]) -> None:
        """Take over what another has learnt."""
        self.seconds |= seconds
        self.bytes |= bytes
