"""The passes behind the timing of a model: which come when, what they took, and what the cache weighed after each."""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analyses._running_formulas import bytes_per_value, cache_bytes, layer_limits, measured_cache_bytes
from analyses._stopwatch import Lap, Stopwatch

READS = 3  # of the unembedding, for the bandwidth
GROWTH = 1.3  # a longer pass takes more than in proportion: the allowance with which a first one is let in
PREFILL, CACHED, UNCACHED = "prefill", "cached", "uncached"


class Bench:
    """The passes of one measurement. Its generators yield before every pass what comes, in words; "" when the budget is spent."""

    def __init__(self, model: Any, ids: tuple[int, ...], watch: Stopwatch) -> None:
        self.model, self.ids, self.watch = model, ids, watch
        self.begun = time.time()
        self._laps: dict[tuple[str, int], list[Lap]] = {}
        self._weighed: dict[int, tuple[int, int]] = {}
        self._reads: list[float] = []
        self._keeps_cache = not model.capabilities["kv_cache"]

    def warm_up(self) -> Iterator[str]:
        """A first pass, which also reads the weights from disk and is no measurement; then the bandwidth.

        The unembedding is the largest matrix of most models. To read out one row is to read it once.
        """
        yield "reading the weights in"
        self.watch.time(lambda: self._pass(self.ids[:1]))
        if self.model.capabilities["readout"]:
            return
        import torch

        config = self.model.config
        row = torch.zeros(1, 1, config.d_model, dtype=getattr(torch, config.dtype), device=config.device)
        for _ in range(READS):
            if not self.watch.allows(max(self._reads, default=0.0)):
                return
            yield "reading one matrix"
            self._reads.append(self.watch.time(lambda: float(self.model.readout(row)[0, 0, 0]))[1].wall)

    def length(self, length: int, new_tokens: int) -> Iterator[str]:
        """One prompt of this length, the tokens after it with the cache, and one without."""
        text, cache = fill(self.ids, length), None
        yield self._may(PREFILL, length, f"{length:,} tokens: the prompt")
        cache, chosen = self._time(PREFILL, length, text)
        self._weigh(cache, length)
        for step in range(new_tokens if cache is not None else 0):
            yield self._may(CACHED, length, f"{length:,} tokens: one more, with the cache")
            cache, chosen = self._time(CACHED, length, (chosen,), cache)
            self._weigh(cache, length + step + 1)
        cache = None  # its memory is free before the next pass
        yield self._may(UNCACHED, length, f"{length:,} tokens: one more, without a cache")
        self._time(UNCACHED, length, text, keep=False)

    def fields(self, planned: Sequence[int]) -> dict[str, Any]:
        """Every finished point, as the fields of a `Timing`."""
        done = [n for n in planned if (PREFILL, n) in self._laps]
        weighed = sorted(self._weighed.items())
        medians = {
            f"{kind}_{name}": np.array([self._median(kind, n, clock) for n in done], dtype=np.float32)
            for kind in (PREFILL, CACHED, UNCACHED)
            for name, clock in (("seconds", "wall"), ("cpu_seconds", "cpu"))
        }
        return medians | {
            "lengths": np.array(done, dtype=np.int32),
            "repeats": np.array([len(self._laps[PREFILL, n]) for n in done], dtype=np.int32),
            "cache_tokens": np.array([tokens for tokens, _ in weighed], dtype=np.int32),
            "cache_bytes": np.array([pair[0] for _, pair in weighed], dtype=np.int64),
            "formula_bytes": np.array([pair[1] for _, pair in weighed], dtype=np.int64),
            "read_bytes": self._matrix_bytes() if self._reads else 0,
            "read_seconds": statistics.median(self._reads) if self._reads else float("nan"),
            "planned": tuple(planned),
            "spent_seconds": self.watch.spent,
            "measured_at": self.begun,
            "n_threads": n_threads(),
        }

    def _pass(self, ids: tuple[int, ...], cache: Any = None, *, keep: bool = True) -> tuple[Any, int]:
        """One pass and the token it chooses; to take that number out is also to wait for a GPU."""
        if keep and self._keeps_cache:
            logits, cache = self.model.extend(ids, cache)
        else:
            logits = self.model.forward(ids, last_only=True)
        return cache, int(logits[0, -1].argmax())

    def _time(
        self, kind: str, length: int, ids: tuple[int, ...], cache: Any = None, *, keep: bool = True
    ) -> tuple[Any, int]:
        value, lap = self.watch.time(lambda: self._pass(ids, cache, keep=keep))
        self._laps.setdefault((kind, length), []).append(lap)
        return value

    def _weigh(self, cache: Any, n_tokens: int) -> None:
        if cache is not None:
            config = self.model.config
            formula = cache_bytes(
                config.n_kv_heads,
                config.d_head,
                n_tokens,
                limits=layer_limits(cache),
                bytes_per_value=bytes_per_value(config),
            )
            self._weighed[n_tokens] = (measured_cache_bytes(cache), formula)

    def _may(self, kind: str, length: int, note: str) -> str:
        """The note, or "" when this pass is not expected to fit the budget. The first one is run in any case."""
        return note if not self._laps or self.watch.allows(self._expected(kind, length)) else ""

    def _expected(self, kind: str, length: int) -> float:
        """Seconds, from the same pass before, or from the longest shorter one, in proportion and an allowance."""
        if (kind, length) in self._laps:
            return self._median(kind, length, "wall")
        if kind == UNCACHED:  # as much as the prompt that has just been read
            return self._median(PREFILL, length, "wall")
        shorter = [n for k, n in self._laps if k == kind and n < length]
        if not shorter:
            return 0.0
        growth = 1.0 if kind == CACHED else length / max(shorter)
        return GROWTH * growth * self._median(kind, max(shorter), "wall")

    def _median(self, kind: str, length: int, clock: str) -> float:
        laps = self._laps.get((kind, length))
        return statistics.median(getattr(lap, clock) for lap in laps) if laps else float("nan")

    def _matrix_bytes(self) -> int:
        config = self.model.config
        return config.d_vocab * config.d_model * bytes_per_value(config)


def fill(ids: Sequence[int], length: int) -> tuple[int, ...]:
    """The ids, repeated until there are `length` of them."""
    return tuple((tuple(ids) * -(-length // len(ids)))[:length])


def n_threads() -> int:
    """Threads that torch computes with."""
    import torch

    return torch.get_num_threads()
