"""What does running it cost? Seconds until the first token, seconds for each further one, and the bytes kept for it.

Measured live on this machine. Reading a prompt (prefill) is one pass over all its tokens; each new token (decode) is a pass over
one token that looks back into the KV cache, or, without a cache, over everything once more. Every number is a median over repeats
of the wall seconds of single passes, the choice of the most probable token included; time in which a worker serves somebody else
between two passes does not count. Prefill and decode apart: Pope et al. 2023, "Efficiently Scaling Transformer Inference".

Identity: the bytes of the cache's tensors equal 2 * layers * kv_heads * d_head * bytes per value * tokens, exactly, while it
grows; a layer with a sliding window of w keeps at most w - 1 tokens.

Limit: seconds belong to this machine, this minute and whoever else computes on it: read ratios within one run. CPU seconds are
those of all threads of the model's process. Bytes are those of the cached values, not of the allocator's reserve around them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32, Int64

from analyses._arrays import check_ids
from analyses._bench import CACHED, PREFILL, READS, UNCACHED, Bench
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._stopwatch import Stopwatch, check_budget

LENGTHS = (1, 16, 64, 128, 256, 512)  # tokens of the prompt
NEW_TOKENS = 3
REPEATS = 3
MOST_SECONDS = 20.0


@dataclass(frozen=True, eq=False)
class Timing:
    """Medians per prompt length; NaN where nothing was measured. A pass is `prefill`, `cached` or `uncached`."""

    lengths: Int32[np.ndarray, " length"]  # tokens of the prompt, only those that were measured
    prefill_seconds: Float32[np.ndarray, " length"]  # wall, until the first new token is chosen
    cached_seconds: Float32[np.ndarray, " length"]  # wall, per further token, with the cache
    uncached_seconds: Float32[np.ndarray, " length"]  # wall, per further token, without
    prefill_cpu_seconds: Float32[np.ndarray, " length"]
    cached_cpu_seconds: Float32[np.ndarray, " length"]
    uncached_cpu_seconds: Float32[np.ndarray, " length"]
    repeats: Int32[np.ndarray, " length"]  # prefills behind each median
    cache_tokens: Int32[np.ndarray, " step"]  # tokens in the cache when it was weighed, increasing
    cache_bytes: Int64[np.ndarray, " step"]  # of its tensors, measured
    formula_bytes: Int64[np.ndarray, " step"]
    read_bytes: int  # of the matrix that was read for the bandwidth; 0 when it was not
    read_seconds: float  # to read it once; NaN when it was not
    planned: tuple[int, ...]  # lengths that were asked for
    planned_repeats: int
    budget_seconds: float
    spent_seconds: float  # wall seconds of all passes
    ended_early: bool  # the budget did not suffice for everything that was planned
    measured_at: float  # seconds since 1970, when it began
    n_threads: int  # of torch

    def to_frame(self) -> Any:
        """A pandas table, one row per length: tokens, seconds (wall and CPU) of each kind of pass, repeats."""
        import pandas as pd

        columns: dict[str, Any] = {"tokens": self.lengths}
        for kind in (PREFILL, CACHED, UNCACHED):
            columns[f"{kind}_seconds"] = getattr(self, f"{kind}_seconds")
            columns[f"{kind}_cpu_seconds"] = getattr(self, f"{kind}_cpu_seconds")
        return pd.DataFrame(columns | {"repeats": self.repeats})

    def cache_frame(self) -> Any:
        """A pandas table, one row per weighing of the cache: tokens, measured_bytes, formula_bytes."""
        import pandas as pd

        columns = {"tokens": self.cache_tokens, "measured_bytes": self.cache_bytes}
        return pd.DataFrame(columns | {"formula_bytes": self.formula_bytes})


def timing_steps(
    model: Any,
    tokens: Any,
    *,
    lengths: Sequence[int] = LENGTHS,
    new_tokens: int = NEW_TOKENS,
    repeats: int = REPEATS,
    budget_seconds: float | int = MOST_SECONDS,
    again: int = 0,
) -> Steps[Timing]:
    """The steps of `run_timing`: one pass each. The first repeat of every length comes before the second of any."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    planned = _check(lengths, new_tokens, repeats, config.n_ctx)
    bench = Bench(model, ids, Stopwatch(check_budget(budget_seconds, MOST_SECONDS)))

    def so_far(ended_early: bool = False) -> dict[str, Any]:
        return bench.fields(planned) | {
            "planned_repeats": repeats,
            "budget_seconds": bench.watch.budget,
            "ended_early": ended_early,
        }

    for note in bench.warm_up():
        yield _progress(bench, note, so_far())
    for _ in range(repeats):
        for length in planned:
            passes = bench.length(length, new_tokens)
            for note in passes:
                if not note:
                    return Timing(**so_far(ended_early=True))
                yield _progress(bench, note, so_far())
    return Timing(**so_far())


def _progress(bench: Bench, note: str, so_far: Mapping[str, Any]) -> Progress:
    return Progress(min(bench.watch.spent, bench.watch.budget), bench.watch.budget, note=note, partial=so_far)


def run_timing(
    model: Any,
    tokens: Any,
    *,
    lengths: Sequence[int] = LENGTHS,
    new_tokens: int = NEW_TOKENS,
    repeats: int = REPEATS,
    budget_seconds: float | int = MOST_SECONDS,
    again: int = 0,
) -> Timing:
    """Time prefill and decode on this machine, and weigh the KV cache while it grows.

    Args:
        model: a HookedModel.
        tokens: ids, repeated until they are long enough: which tokens they are does not change the time.
        lengths: of the prompts, in tokens, increasing; with `new_tokens` they must fit the context.
        new_tokens: decoded after each prompt, with the cache.
        repeats: at most; fewer when the budget is spent.
        budget_seconds: wall seconds of computing, at most 20. The first prompt is read in any case; then a pass that is not
            expected to fit is left out, and all after it.
        again: any number; a worker answers a request it has seen from its store, and this makes a new one of it.

    Raises:
        ValueError: no tokens, lengths beyond the context or not increasing, or numbers out of range.
    """
    return drain(
        timing_steps(
            model,
            tokens,
            lengths=lengths,
            new_tokens=new_tokens,
            repeats=repeats,
            budget_seconds=budget_seconds,
            again=again,
        )
    )


def cost_timing(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Every pass that is planned, and never more than the budget."""
    lengths, new = params.get("lengths", LENGTHS), params.get("new_tokens", NEW_TOKENS)
    one = sum(2 * profile.forward_seconds(n) + new * profile.forward_seconds(1) for n in lengths)
    seconds = params.get("repeats", REPEATS) * one + (1 + READS) * profile.forward_seconds(1)
    longest = max(lengths, default=1) + new
    keys_and_values = 2 * profile.n_layers * longest * profile.d_model * profile.bytes_per_value
    return Cost(
        seconds=min(seconds, params.get("budget_seconds", MOST_SECONDS)),
        peak_bytes=profile.forward_bytes(longest) + keys_and_values,
        result_bytes=40 * len(lengths) + 20 * (1 + new) * len(lengths) + 400,
    )


def _check(lengths: Any, new_tokens: Any, repeats: Any, n_ctx: int) -> tuple[int, ...]:
    """The lengths, when all of it can be measured."""
    if not isinstance(new_tokens, int) or not 1 <= new_tokens < n_ctx:
        raise ValueError(f"needs 1 to {n_ctx - 1:,} new tokens; found {new_tokens!r}; choose a few.")
    if not isinstance(repeats, int) or not 1 <= repeats <= 100:
        raise ValueError(f"needs 1 to 100 repeats; found {repeats!r}; choose an odd number, such as 3.")
    most = n_ctx - new_tokens
    planned = tuple(lengths)
    if not planned or not all(isinstance(n, int) and 1 <= n <= most for n in planned):
        raise ValueError(
            f"needs lengths from 1 to {most:,} tokens ({new_tokens} new ones follow, within the context of {n_ctx:,}); "
            f"found {list(planned)}; leave the longer ones out."
        )
    if list(planned) != sorted(set(planned)):
        raise ValueError(f"needs increasing lengths; found {list(planned)}; sort them and name each once.")
    return planned
