"""Whether a request fits this machine, decided before it is paid for, with the number and a way that fits.

Limits come from the environment: STREAMSCOPE_LIMIT_SECONDS (estimated seconds of one job, default 120) and
STREAMSCOPE_LIMIT_BYTES (extra memory of one job, default 80 % of what is free).
"""

import os
from dataclasses import dataclass, field

import psutil

from analyses._steps import Analysis, Profile
from app.backend.protocol import Refused, Request


def _seconds() -> float:
    return float(os.environ.get("STREAMSCOPE_LIMIT_SECONDS", "120"))


def _bytes() -> int:
    return int(os.environ.get("STREAMSCOPE_LIMIT_BYTES", "0")) or int(0.8 * psutil.virtual_memory().available)


@dataclass(frozen=True)
class Limits:
    """What one job may take."""

    seconds: float = field(default_factory=_seconds)
    peak_bytes: int = field(default_factory=_bytes)


def duration(seconds: float) -> str:
    """Seconds as people say them: "0.4 s", "12 s", "4 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def admit(request: Request, analysis: Analysis, profile: Profile, limits: Limits) -> None:
    """Let a request pass or refuse it in words.

    Raises:
        Refused: too many seconds or bytes, or parameters that the analysis does not accept.
    """
    n_tokens = len(request.tokens)
    try:
        cost = analysis.cost(profile, n_tokens, request.params)
        if cost.seconds <= limits.seconds and cost.peak_bytes <= limits.peak_bytes:
            return
        fits = _longest_that_fits(analysis, profile, request, limits)
    except (ValueError, TypeError, KeyError) as error:
        raise Refused("bad_request", str(error)) from error
    if cost.seconds > limits.seconds:
        what = f"needs about {duration(cost.seconds)} here; the limit is {duration(limits.seconds)}"
    else:
        what = f"needs about {cost.peak_bytes / 1e9:.1f} GB of memory; {limits.peak_bytes / 1e9:.1f} GB may be used"
    way = f"use at most {fits:,} tokens." if fits else "choose a smaller view."
    raise Refused("too_large", f"{what} ({n_tokens:,} tokens); {way}")


def _longest_that_fits(analysis: Analysis, profile: Profile, request: Request, limits: Limits) -> int:
    """Largest number of tokens within the limits, by bisection; costs grow with the number of tokens."""
    low, high = 0, len(request.tokens)
    while low < high:
        middle = (low + high + 1) // 2
        cost = analysis.cost(profile, middle, request.params)
        if cost.seconds <= limits.seconds and cost.peak_bytes <= limits.peak_bytes:
            low = middle
        else:
            high = middle - 1
    return low
