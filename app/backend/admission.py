"""Whether a request is let in, decided before it is paid for: with the number, the limit and a way that fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyses._steps import Analysis, Cost, Profile
from app.backend.corrections import Corrections
from app.backend.limits import Limits
from app.backend.protocol import Refused, Request

KEPT_TIMES = 10  # a computation that is kept on disk for everybody may take so many times the seconds of others
TURN_SECONDS = 0.5  # a turn of somebody else that has begun is not interrupted


@dataclass(frozen=True)
class Line:
    """What is there already when a request comes, as its sender sees it."""

    heavy: int = 0  # the sender's own requests
    light: int = 0
    seconds: float = 0.0  # of the sender's own work that is left
    others: Sequence[float] = ()  # seconds of work left, one number per other person
    held_bytes: int = 0  # what the begun requests hold while others have their turn

    def wait(self, seconds: float) -> float:
        """Seconds that others compute before a request of that length is done.

        The queue is fair: until the sender has had what it needs, every other person gets at most as much, and a turn. So a short
        request never waits for somebody's long one.
        """
        fair = self.seconds + seconds + TURN_SECONDS
        return sum(min(left, fair) for left in self.others)


def duration(seconds: float) -> str:
    """Seconds as people say them: "0.4 s", "12 s", "4 min", "3 h"."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def size(n_bytes: float) -> str:
    """Bytes as people say them: "1.2 GB", "16 MB"."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def admit(
    request: Request, analysis: Analysis, profile: Profile, limits: Limits, corrections: Corrections, line: Line
) -> Cost:
    """Let a request in, or refuse it in words.

    Args:
        request: what is asked for.
        analysis: its line in the map.
        profile: how fast the model is here.
        limits: with `bytes` as they are here, not 0.
        corrections: what has been learnt about earlier estimates.
        line: what is there already.

    Returns:
        The corrected estimate.

    Raises:
        Refused: too large for this machine, too much at once, or parameters that the analysis does not accept.
    """
    if analysis.kept:
        longer = limits.seconds * KEPT_TIMES
        limits = replace(limits, seconds=longer, user_seconds=max(limits.user_seconds, longer))

    def price(n_tokens: int, params: Mapping[str, Any]) -> Cost:
        return corrections.apply(request.analysis, analysis.cost(profile, n_tokens, params))

    def fits(n_tokens: int, params: Mapping[str, Any]) -> bool:
        return not _too_much(price(n_tokens, params), limits)

    try:
        cost = price(len(request.tokens), request.params)
        if what := _too_much(cost, limits):
            ways = " or ".join(_ways(request, fits)) or "choose a smaller view"
            raise Refused("too_large", f"{what} ({len(request.tokens):,} tokens); {ways}.")
    except (ValueError, TypeError, KeyError) as error:
        raise Refused("bad_request", str(error)) from error
    if why := _too_many(cost, limits, line):
        raise Refused("busy", why)
    return cost


def _too_much(cost: Cost, limits: Limits) -> str:
    """The first limit that one request breaks, with both numbers; "" when none."""
    if cost.seconds > limits.seconds:
        return f"needs about {duration(cost.seconds)} here; the limit is {duration(limits.seconds)}"
    if cost.peak_bytes > limits.bytes:
        return f"needs about {size(cost.peak_bytes)} of memory; {size(limits.bytes)} may be used"
    if cost.result_bytes > limits.result_bytes:
        return f"needs a result of about {size(cost.result_bytes)}; the limit is {size(limits.result_bytes)}"
    return ""


def _too_many(cost: Cost, limits: Limits, line: Line) -> str:
    """Why a request that fits must wait outside, with when to come back; "" when it may come in."""
    heavy = cost.seconds > limits.heavy_seconds
    found, most, kind = (line.heavy, limits.heavy_jobs, "long ") if heavy else (line.light, limits.light_jobs, "")
    if found >= most:
        return (
            f"needs at most {most} {kind}requests of one person at a time; found {found} of yours, about "
            f"{duration(line.seconds)} of work; wait for one of them or stop it."
        )
    if heavy and line.seconds and line.seconds + cost.seconds > limits.user_seconds:
        over = line.seconds + cost.seconds - limits.user_seconds
        return (
            f"needs at most {duration(limits.user_seconds)} of waiting work of one person; found {duration(line.seconds)} of "
            f"yours and {duration(cost.seconds)} more; try again in about {duration(over)} or stop one."
        )
    wait = line.wait(cost.seconds)
    if wait > limits.wait_seconds:
        return (
            f"needs at most {duration(limits.wait_seconds)} of waiting; found {len(line.others):,} others before you, about "
            f"{duration(wait)}; try again in about {duration(wait - limits.wait_seconds)} or ask for less."
        )
    if line.held_bytes and cost.peak_bytes + line.held_bytes > limits.bytes:
        return (
            f"needs about {size(cost.peak_bytes)} of memory; found {size(limits.bytes - line.held_bytes)} while other requests "
            "run; try again when they are done."
        )
    return ""


def _ways(request: Request, fits: Any) -> list[str]:
    """What would fit, in words: a shorter prompt, fewer items of a list, a smaller number of something."""
    n_tokens, ways = len(request.tokens), []
    if longest := _largest(n_tokens, lambda n: fits(n, request.params)):
        ways.append(f"use at most {longest:,} tokens")
    for name, value in request.params.items():
        if isinstance(value, list | tuple) and len(value) > 1:
            make: Any = lambda n, value=value: value[:n]  # noqa: E731
            count = len(value)
        elif isinstance(value, int) and name.startswith(("max_", "n_")):
            make, count = int, value
        else:
            continue
        if most := _largest(count, lambda n, name=name, make=make: fits(n_tokens, {**request.params, name: make(n)})):
            ways.append(f"at most {most:,} for {name}")
    return ways


def _largest(count: int, fits: Any) -> int:
    """Largest number up to `count` that fits, by bisection (costs grow with it); 0 when not even 1 does."""
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
