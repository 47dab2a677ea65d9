"""What the page "Running it" says: sizes, seconds, the finding, and the table of prefill against decode."""

import math
import time
from collections.abc import Mapping

import numpy as np

from analyses._running_formulas import (
    bytes_per_value,
    bytes_read_per_token,
    decode_bound,
    is_dense,
    pass_flops,
)
from analyses.model import ModelConfig
from analyses.timing import Timing
from app.views.running_live import Measured

MEASURED, COMPUTED, READ = "measured", "computed", "read from the config"


def two_digits(value: float) -> str:
    """A measured number with the digits that are true of it: `11`, `2.6`, `0.089`, `1,200`."""
    if not math.isfinite(value) or value <= 0:
        return "-"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.{max(0, 1 - math.floor(math.log10(rounded)))}f}"


def seconds_words(seconds: float) -> str:
    """`1.6 s`, `89 ms`."""
    if not math.isfinite(seconds):
        return "-"
    return f"{two_digits(seconds)} s" if seconds >= 0.995 else f"{two_digits(1000 * seconds)} ms"


def size_words(n_bytes: float) -> str:
    """Decimal units, three digits: 1 kB = 1000 bytes, 1 MB = 10⁶ bytes."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= 0.9995 * size:
            return f"{n_bytes / size:#.3g} {unit}".replace(". ", " ")
    return f"{n_bytes:,.0f} bytes"


def _giga(value: float, unit: str) -> str:
    shown = two_digits(value / 1e9)
    return shown if shown == "-" else f"{shown} {unit}"


def largest(result: Timing) -> int | None:
    """Place of the longest prompt that was measured."""
    return len(result.lengths) - 1 if len(result.lengths) else None


def cache_at(result: Timing, length: int) -> tuple[int, int] | None:
    """Measured and computed bytes of the cache after a prompt of that length."""
    places = np.flatnonzero(result.cache_tokens == length)
    return (int(result.cache_bytes[places[0]]), int(result.formula_bytes[places[0]])) if len(places) else None


def finding_words(config: ModelConfig, result: Timing) -> str:
    """Seconds of the longest prompt, the speed after it, and the cache beside its formula."""
    place = largest(result)
    if place is None:
        return "Nothing has been measured yet: the first pass was stopped."
    length = int(result.lengths[place])
    tokens = "1 token" if length == 1 else f"{length:,} tokens"
    words = f"{tokens} in {seconds_words(result.prefill_seconds[place])}"
    if np.isfinite(result.cached_seconds[place]):
        words += f", then {two_digits(1 / float(result.cached_seconds[place]))} tokens/s"
    elif np.isfinite(result.uncached_seconds[place]):
        words += f", then {two_digits(1 / float(result.uncached_seconds[place]))} tokens/s without a cache"
    if (weight := cache_at(result, length)) is None:
        return f"{words}."
    held, formula = weight
    agrees = "as the formula says" if held == formula else f"where the formula says {size_words(formula)}"
    return f"{words}; the cache holds {size_words(held)} ({config.dtype}), {agrees}."


def gain_words(result: Timing) -> str:
    """What the cache is worth at the longest prompt; "" when one of the two is missing."""
    place = largest(result)
    if place is None:
        return ""
    ratio = float(result.uncached_seconds[place]) / float(result.cached_seconds[place])
    if not math.isfinite(ratio):
        return ""
    return f"After {int(result.lengths[place]):,} tokens, a token without the cache takes {two_digits(ratio)} times as long."


def origin_words(measured: Measured) -> str:
    """When and how it was measured, and whether it is new."""
    result = measured.result
    clock = time.strftime("%H:%M:%S", time.gmtime(result.measured_at))
    threads = "1 thread" if result.n_threads == 1 else f"{result.n_threads} threads"
    words = f"Measured at {clock} UTC on {threads}, {result.spent_seconds:.1f} s of computing."
    if measured.cached:
        words += " This is a stored result: somebody asked for the same before."
    return words


def budget_words(measured: Measured) -> str:
    """What is missing and why; "" when everything planned was measured."""
    result = measured.result
    left = [n for n in result.planned if n not in result.lengths]
    fewer = len(result.repeats) and int(result.repeats.min()) < result.planned_repeats
    missing = f"; not measured: {', '.join(f'{n:,}' for n in left)} tokens" if left else ""
    if measured.stopped:
        return f"Stopped by hand{missing}. What was finished is shown."
    if result.ended_early:
        repeats = f" The longest had {int(result.repeats.min())} of {result.planned_repeats} repeats." if fewer else ""
        budget = (
            f"The budget of {result.budget_seconds:g} s ended it before the next pass, which was not expected to fit"
        )
        return f"{budget}{missing}.{repeats}"
    return ""


def facts(config: ModelConfig, result: Timing) -> Mapping[str, list[str]] | None:
    """Prefill against decode at the longest prompt, every row with where its figures come from."""
    place = largest(result)
    if place is None:
        return None
    length = int(result.lengths[place])
    prefill, decode = float(result.prefill_seconds[place]), float(result.cached_seconds[place])
    rows = [
        ("wall seconds", seconds_words(prefill), seconds_words(decode), f"{MEASURED}, median"),
        (
            "CPU seconds, all threads",
            seconds_words(result.prefill_cpu_seconds[place]),
            seconds_words(result.cached_cpu_seconds[place]),
            f"{MEASURED}, median",
        ),
        ("tokens per second", two_digits(length / prefill), two_digits(1 / decode), MEASURED),
    ]
    weight = cache_at(result, length)
    weights = config.n_parameters * bytes_per_value(config)
    rows.append(("all weights", size_words(weights), size_words(weights), f"{COMPUTED} from the parameters"))
    if weight is not None:
        held, formula = weight
        known = f"{MEASURED}, and {COMPUTED}: {'equal' if held == formula else size_words(formula)}"
        rows.append(("KV cache", f"writes {size_words(held)}", f"reads {size_words(held)}", known))
    rows += _arithmetic(config, result, length, prefill, decode, 0 if weight is None else weight[0])
    names = ("", f"prefill, {length:,} tokens", "decode, 1 token", "how it is known")
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}


def _arithmetic(
    config: ModelConfig, result: Timing, length: int, prefill: float, decode: float, cache: int
) -> list[tuple[str, str, str, str]]:
    """FLOPs, and what bandwidth allows."""
    if not is_dense(config):
        why = "not computed: this model's weights are not all used for every token"
        return [("FLOPs", "-", "-", why)]
    flops = (pass_flops(config, length), pass_flops(config, 1, past=length))
    rows = [
        ("FLOPs", *(_giga(n, "GFLOP") for n in flops), COMPUTED),
        (
            "FLOPs per second",
            _giga(flops[0] / prefill, "GFLOP/s"),
            _giga(flops[1] / decode, "GFLOP/s"),
            f"{COMPUTED} from both",
        ),
    ]
    read = bytes_read_per_token(config) + cache
    rows.append(("FLOPs per byte read", two_digits(flops[0] / read), two_digits(flops[1] / read), COMPUTED))
    if not result.read_bytes:
        return rows
    bandwidth = result.read_bytes / result.read_seconds
    bound = decode_bound(config, bandwidth, cache)
    how = f"{MEASURED}: the unembedding, {size_words(result.read_bytes)}, read for one row"
    rows.append(("bytes per second from memory", "-", f"{size_words(bandwidth)}/s", how))
    rows.append(("what that allows at most", "-", f"{two_digits(bound)} tokens/s", COMPUTED))
    share = 1 / decode / bound
    if math.isfinite(share):
        rows.append(("reached of that", "-", f"{100 * share:.0f} %", f"{COMPUTED} from both"))
    return rows
