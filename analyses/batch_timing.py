"""What do several texts at once cost? Tokens per second with one, two, four, eight rows, and the cache that they all keep.

A decoded token reads every weight once; in a batch all rows share that reading, so the total rises with the rows as long as
reading, and not computing, takes the time (Pope et al. 2023, "Efficiently Scaling Transformer Inference"). The cache is shared by
nobody: every row keeps its own keys and values.

Identity: the bytes of the cache's tensors are `rows` times those of one row, exactly.

Limit: the rows are equally long and run in step, as in this file; a server has rows of all lengths, which come and go. Seconds
belong to this machine and this minute: read ratios within one run.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32, Int64

from analyses._arrays import check_ids
from analyses._bench import GROWTH, fill, n_threads
from analyses._running_formulas import bytes_per_value, cache_bytes, layer_limits, measured_cache_bytes
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._stopwatch import Lap, Stopwatch, check_budget

ROWS = (1, 2, 4, 8)
MOST_ROWS = 64
LENGTH = 64  # tokens of every row's prompt
NEW_TOKENS = 8
MOST_SECONDS = 20.0


@dataclass(frozen=True, eq=False)
class BatchTiming:
    """Medians over the new tokens of each batch, in the order of the rows."""

    rows: Int32[np.ndarray, " batch"]  # texts side by side, only those that were measured
    prefill_seconds: Float32[np.ndarray, " batch"]  # wall, of all rows' prompts together
    step_seconds: Float32[np.ndarray, " batch"]  # wall, of one step: one new token in every row
    step_cpu_seconds: Float32[np.ndarray, " batch"]
    cache_bytes: Int64[np.ndarray, " batch"]  # of all rows, measured after the last step
    formula_bytes: Int64[np.ndarray, " batch"]
    length: int  # tokens of every row's prompt
    new_tokens: int
    planned: tuple[int, ...]
    budget_seconds: float
    spent_seconds: float
    ended_early: bool
    measured_at: float  # seconds since 1970
    n_threads: int

    @property
    def tokens_per_second(self) -> Float32[np.ndarray, " batch"]:
        """Of all rows together."""
        return (self.rows / self.step_seconds).astype(np.float32)

    def to_frame(self) -> Any:
        """A pandas table, one row per batch: rows, seconds, tokens per second in total and per row, bytes."""
        import pandas as pd

        total = self.tokens_per_second
        columns = {"rows": self.rows, "prefill_seconds": self.prefill_seconds, "step_seconds": self.step_seconds}
        columns |= {"step_cpu_seconds": self.step_cpu_seconds, "tokens_per_second": total}
        columns |= {"tokens_per_second_per_row": total / self.rows}
        return pd.DataFrame(columns | {"measured_bytes": self.cache_bytes, "formula_bytes": self.formula_bytes})


def batch_timing_steps(
    model: Any,
    tokens: Any,
    *,
    rows: Sequence[int] = ROWS,
    length: int = LENGTH,
    new_tokens: int = NEW_TOKENS,
    budget_seconds: float | int = MOST_SECONDS,
    again: int = 0,
) -> Steps[BatchTiming]:
    """The steps of `run_batch_timing`: one pass each."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    model.require("kv_cache")
    planned = _check(rows, length, new_tokens, config.n_ctx)
    watch, begun = Stopwatch(check_budget(budget_seconds, MOST_SECONDS)), time.time()
    text = fill(ids, length)
    done: list[dict[str, Any]] = []

    def fields(ended_early: bool = False) -> dict[str, Any]:
        return _fields(done) | {
            "length": length,
            "new_tokens": new_tokens,
            "planned": planned,
            "budget_seconds": watch.budget,
            "spent_seconds": watch.spent,
            "ended_early": ended_early,
            "measured_at": begun,
            "n_threads": n_threads(),
        }

    def progress(note: str) -> Progress:
        return Progress(min(watch.spent, watch.budget), watch.budget, note=note, partial=fields())

    yield progress("reading the weights in")
    watch.time(lambda: _step(model, [text[:1]], None))
    for n_rows in planned:
        if done and not watch.allows(_expected(done[-1], n_rows, new_tokens)):
            return BatchTiming(**fields(ended_early=True))
        yield progress(f"{n_rows} rows: the prompts")
        (cache, chosen), prefill = watch.time(lambda n_rows=n_rows: _step(model, [text] * n_rows, None))
        laps: list[Lap] = []
        while len(laps) < new_tokens and (not laps or watch.allows(laps[-1].wall)):
            yield progress(f"{n_rows} rows: one token each")
            (cache, chosen), lap = watch.time(lambda new=chosen, kept=cache: _step(model, new, kept))
            laps.append(lap)
        done.append(_row(config, n_rows, prefill, laps, cache, length + len(laps)))
        cache = None  # its memory is free before the next batch
        if len(laps) < new_tokens:
            return BatchTiming(**fields(ended_early=True))
    return BatchTiming(**fields())


def run_batch_timing(
    model: Any,
    tokens: Any,
    *,
    rows: Sequence[int] = ROWS,
    length: int = LENGTH,
    new_tokens: int = NEW_TOKENS,
    budget_seconds: float | int = MOST_SECONDS,
    again: int = 0,
) -> BatchTiming:
    """Decode several equal texts side by side.

    Args:
        model: a HookedModel that can keep a cache.
        tokens: ids, repeated until they are `length` long; every row is the same text.
        rows: how many texts, increasing.
        length: tokens of each prompt; with `new_tokens` within the context.
        new_tokens: steps behind each median.
        budget_seconds: wall seconds of computing, at most 20. A batch that is not expected to fit is left out, and all after it.
        again: any number; a worker answers a request it has seen from its store, and this makes a new one of it.

    Raises:
        ValueError: no tokens, numbers out of range, or a model without a cache.
    """
    return drain(
        batch_timing_steps(
            model,
            tokens,
            rows=rows,
            length=length,
            new_tokens=new_tokens,
            budget_seconds=budget_seconds,
            again=again,
        )
    )


def cost_batch_timing(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Every batch's prompts and steps, and never more than the budget."""
    rows, length = params.get("rows", ROWS), params.get("length", LENGTH)
    new = params.get("new_tokens", NEW_TOKENS)
    seconds = sum(profile.forward_seconds(length, n) + new * profile.forward_seconds(1, n) for n in rows)
    most = max(rows, default=1)
    keys_and_values = 2 * most * profile.n_layers * (length + new) * profile.d_model * profile.bytes_per_value
    return Cost(
        seconds=min(seconds, params.get("budget_seconds", MOST_SECONDS)),
        peak_bytes=profile.forward_bytes(length, most) + keys_and_values,
        result_bytes=40 * len(rows) + 400,
    )


def _step(model: Any, rows: Any, cache: Any) -> tuple[Any, Any]:
    """One pass over ids [row, pos], and the token that each row chooses, as ids [row, 1]; counting them waits for a GPU."""
    import torch

    ids = rows if isinstance(rows, torch.Tensor) else torch.tensor(rows)
    logits, cache = model.extend(ids, cache)
    chosen = logits[:, -1].argmax(-1)[:, None]
    int(chosen.sum())
    return cache, chosen


def _expected(before: Mapping[str, Any], n_rows: int, new_tokens: int) -> float:
    """Seconds of a batch, from a smaller one: prompts take in proportion to the rows, steps hardly more, and an allowance."""
    prompts = n_rows / before["rows"] * before["prefill_seconds"]
    return GROWTH * (prompts + new_tokens * before["step_seconds"])


def _row(config: Any, n_rows: int, prefill: Lap, laps: Sequence[Lap], cache: Any, n_tokens: int) -> dict[str, Any]:
    """What was measured of one batch."""
    formula = cache_bytes(
        config.n_kv_heads,
        config.d_head,
        n_tokens,
        limits=layer_limits(cache),
        bytes_per_value=bytes_per_value(config),
        rows=n_rows,
    )
    return {
        "rows": n_rows,
        "prefill_seconds": prefill.wall,
        "step_seconds": statistics.median(lap.wall for lap in laps),
        "step_cpu_seconds": statistics.median(lap.cpu for lap in laps),
        "cache_bytes": measured_cache_bytes(cache),
        "formula_bytes": formula,
    }


def _fields(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    kinds = {"rows": np.int32, "prefill_seconds": np.float32, "step_seconds": np.float32}
    kinds |= {"step_cpu_seconds": np.float32, "cache_bytes": np.int64, "formula_bytes": np.int64}
    return {name: np.array([row[name] for row in done], dtype=kind) for name, kind in kinds.items()}


def _check(rows: Any, length: Any, new_tokens: Any, n_ctx: int) -> tuple[int, ...]:
    """The rows, when all of it can be measured."""
    planned = tuple(rows)
    whole = all(isinstance(n, int) and 1 <= n <= MOST_ROWS for n in planned)
    if not planned or not whole or list(planned) != sorted(set(planned)):
        raise ValueError(
            f"needs increasing numbers of rows from 1 to {MOST_ROWS}; found {list(planned)}; correct them."
        )
    if not (isinstance(length, int) and isinstance(new_tokens, int)) or length < 1 or new_tokens < 1:
        raise ValueError(f"needs at least one token and one new one; found {length!r} and {new_tokens!r}; choose more.")
    if length + new_tokens > n_ctx:
        raise ValueError(
            f"needs prompt and new tokens within the context of {n_ctx:,}; found {length:,} + {new_tokens:,}; ask for fewer."
        )
    return planned
