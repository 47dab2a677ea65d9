"""The kernel of the logit lens: what is kept of every stream and position, without their logits ever being there together.

Rows (streams of some positions) are read against a part of the vocabulary at a time, and each part leaves its k best, its sum of
exponentials and a few more sums behind; together they give what one softmax over the whole would have given.

Identity: the parts' sums, brought to a common maximum, are the sums over the whole vocabulary (the same step as in Milakov
and Gimelshein 2018, "Online normalizer calculation for softmax").
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, Int32

from analyses import _readout
from analyses._arrays import to_float32
from analyses._readout import Unembedding, even_slices

# On a CPU, measured on SmolLM2 (docs/log.md): 1,024 tokens of the vocabulary stay in the cache while 2,000 rows pass by.
ROWS, COLUMNS = 2048, 1024
NEAR = 256  # rows of a piece that are summed up at a time: ten passes over what is in the cache
HELD = 2  # arrays of the size of a piece of logits: the logits, and room for temporary ones
TICK = 4e9  # multiplications between two steps: about 0.1 s on one thread
CANDIDATES = 64  # tokens that are read again in float32 after a multiplication in bfloat16


@dataclass(frozen=True)
class Wanted:
    """What is asked about every cell."""

    top_k: int
    ids: Int[Any, "pos wanted"]  # tokens whose log-probability is wanted, by position
    n_ranked: int  # the first so many of them get a rank too


@dataclass(frozen=True)
class Cells:
    """What is known about every cell, filled piece by piece."""

    top_ids: Int32[np.ndarray, "stream pos k"]
    top_log_probability: Float32[np.ndarray, "stream pos k"]
    entropy_nats: Float32[np.ndarray, "stream pos"]
    kl_nats: Float32[np.ndarray, "stream pos"]
    rank: Int32[np.ndarray, "stream pos ranked"]
    log_probability: Float32[np.ndarray, "stream pos wanted"]

    @classmethod
    def empty(cls, n_streams: int, n_positions: int, wanted: Wanted) -> "Cells":
        """Room for so many cells."""
        shape, k, n_ranked, n_wanted = (n_streams, n_positions), wanted.top_k, wanted.n_ranked, wanted.ids.shape[1]
        widths = {"top_ids": (k,), "top_log_probability": (k,), "rank": (n_ranked,), "log_probability": (n_wanted,)}
        whole = {"top_ids", "rank"}
        return cls(
            **{
                name: np.zeros((*shape, *widths.get(name, ())), np.int32 if name in whole else np.float32)
                for name in cls.__dataclass_fields__
            }
        )

    def since(self, first: int) -> "Cells":
        """The same arrays from a position on."""
        return Cells(**{name: values[:, first:] for name, values in vars(self).items()})

    def fill(self, streams: slice, positions: slice, found: dict[str, Any]) -> None:
        """Take over the numbers of the rows [pos, stream]."""
        shape = (positions.stop - positions.start, streams.stop - streams.start)
        for name, rows in found.items():
            values = to_float32(rows) if rows.is_floating_point() else rows.cpu().numpy()
            values = values.reshape(*shape, *values.shape[1:])
            getattr(self, name)[streams, positions] = values.swapaxes(0, 1)


@dataclass(frozen=True)
class Known:
    """Rows whose logits are there already: the model's own output."""

    values: Float[Any, "rows d_vocab"]

    def logits(self, columns: slice) -> Float[Any, "rows columns"]:
        """A copy: the reader writes into it."""
        return self.values[:, columns].clone()

    def logits_at(self, ids: Int[Any, "rows k"]) -> Float[Any, "rows k"]:
        """The logits of some tokens of every row."""
        return self.values.gather(-1, ids)


@dataclass(frozen=True)
class Rows:
    """Rows of a stream after the final norm, multiplied with a part of the unembedding at a time."""

    parts: Unembedding
    normed: Float[Any, "rows d_model"]
    half: Float[Any, "d_vocab d_model"] | None = None  # the unembedding in bfloat16, for approximate logits

    @cached_property
    def rounded(self) -> Float[Any, "rows d_model"]:
        """The rows in bfloat16."""
        return self.normed.bfloat16()

    def logits(self, columns: slice) -> Float[Any, "rows columns"]:
        """float32 logits of a part of the vocabulary; with `half`, rounded to bfloat16 before softcap and scale."""
        from torch.nn.functional import linear

        if self.half is None:
            return self.parts.logits(self.normed, columns)
        values = linear(self.rounded, self.half[columns]).float()
        return self.parts.transform(values if self.parts.bias is None else values + self.parts.bias[columns])

    def logits_at(self, ids: Int[Any, "rows k"]) -> Float[Any, "rows k"]:
        """The logits of some tokens of every row, always in float32."""
        return self.parts.logits_at(self.normed, ids)


@dataclass(frozen=True)
class Final:
    """The model's own distribution at some positions, which every other one is compared with."""

    logits: Float[Any, "pos d_vocab"]
    log_total: Float[Any, " pos"]  # nats, float64
    entropy_nats: Float[Any, " pos"]  # float64

    def probability(self, columns: slice) -> Float[Any, "pos columns"]:
        """Probabilities of a part of the vocabulary."""
        return (self.logits[:, columns] - self.log_total[:, None].float()).exp()


@dataclass(frozen=True)
class _Sums:
    """What the parts of the vocabulary that were read so far leave behind."""

    top: Float[Any, "rows k"]
    ids: Int[Any, "rows k"]
    greater: Float[Any, "rows ranked"]  # tokens above each ranked one
    peak: Float[Any, "part rows"]  # largest logit
    total: Float[Any, "part rows"]  # sum of exp(z - peak)
    weighted: Float[Any, "part rows"]  # sum of (z - peak) exp(z - peak)
    crossed: Float[Any, "part rows"]  # sum of p_final (z - peak)
    mass: Float[Any, "part pos"]  # of the final distribution

    @classmethod
    def empty(cls, like: Float[Any, "rows wanted"], wanted: Wanted, k: int, n_parts: int) -> "_Sums":
        """Nothing read yet."""
        n_rows = len(like)
        by_part = (like.new_zeros(n_parts, n_rows) for _ in range(4))
        best = like.new_full((n_rows, k), -float("inf"))
        return cls(
            best,
            wanted.ids.new_zeros(n_rows, k),
            like.new_zeros(n_rows, wanted.n_ranked),
            *by_part,
            like.new_zeros(n_parts, len(wanted.ids)),
        )


def read(
    model: Any, source: Known | Rows, wanted: Wanted, final: Final | None
) -> Generator[int, None, tuple[dict[str, Any], Any, Any]]:
    """Numbers of some rows over the whole vocabulary, in steps.

    Args:
        model: a HookedModel, asked before each part whether to stop.
        source: the rows, position by position, all streams of one after the other.
        wanted: what is asked, by position.
        final: the model's own output at these positions; None while it is the one being read.

    Yields:
        Multiplications done since the last step.

    Returns:
        Numbers by the names of `Cells`; log of the total and entropy of every row (nats, float64).
    """
    d_vocab, d_model = model.config.d_vocab, model.config.d_model
    exact = not (isinstance(source, Rows) and source.half is not None)
    n_positions = len(wanted.ids)
    n_rows = len(source.values if isinstance(source, Known) else source.normed)
    ids = wanted.ids.repeat_interleave(n_rows // n_positions, dim=0)
    at = source.logits_at(ids)
    fits = _readout.CHUNK_BYTES // (4 * HELD * n_rows)
    parts = list(even_slices(d_vocab, min(fits, COLUMNS) if at.device.type == "cpu" else fits))
    k = wanted.top_k if exact else min(d_vocab, max(CANDIDATES, 4 * wanted.top_k))
    sums = _Sums.empty(at, wanted, k, len(parts))
    near = n_positions if at.device.type != "cpu" else NEAR * n_positions // n_rows
    since = 0
    for part, columns in enumerate(parts):
        model.check()
        z = source.logits(columns)
        final_part = None if final is None else final.probability(columns)
        for places in even_slices(n_positions, near):
            _add(sums, z, part, columns, places, ids, at, final_part)
        since += n_rows * (columns.stop - columns.start) * d_model
        if since >= TICK:
            yield since
            since = 0
    yield since
    return _combine(sums, source, wanted, at, final, exact)


def _add(
    sums: _Sums,
    logits: Float[Any, "rows columns"],
    part: int,
    columns: slice,
    places: slice,
    ids: Int[Any, "rows wanted"],
    at: Float[Any, "rows wanted"],
    final: Float[Any, "pos columns"] | None,
) -> None:
    """Take a part of the vocabulary into account at some positions; these rows of `logits` are used up."""
    import torch

    n_streams = len(logits) // sums.mass.shape[1]
    rows = slice(places.start * n_streams, places.stop * n_streams)
    z = logits[rows]
    peak = z.amax(-1)
    _keep_best(sums, z, rows, peak, columns.start)
    room = torch.empty_like(z)
    for i in range(sums.greater.shape[1]):
        torch.gt(z, at[rows, i : i + 1], out=room)
        # A token is not above itself, although the two ways to its logit may round differently.
        own = ((ids[rows, i] >= columns.start) & (ids[rows, i] < columns.stop)).nonzero()[:, 0]
        room[own, ids[rows][own, i] - columns.start] = 0
        sums.greater[rows, i] += room.sum(-1)
    z -= peak[:, None]
    torch.exp(z, out=room)
    sums.peak[part, rows] = peak
    sums.total[part, rows] = room.sum(-1)
    sums.weighted[part, rows] = room.mul_(z).sum(-1)
    if final is not None:
        by_position = (-1, n_streams, z.shape[1])
        torch.mul(z.view(by_position), final[places, None], out=room.view(by_position))
        sums.crossed[part, rows] = room.sum(-1)
        sums.mass[part, places] = final[places].sum(-1)


def _keep_best(sums: _Sums, z: Float[Any, "near columns"], rows: slice, peak: Float[Any, " near"], first: int) -> None:
    """Merge a part's best tokens. Few rows have any: the most frequent tokens stand at the front of a vocabulary."""
    import torch

    better = (peak > sums.top[rows, -1]).nonzero()[:, 0]
    if not len(better):
        return
    k, at = sums.top.shape[1], better + rows.start
    top, ids = z[better].topk(min(k, z.shape[1]), dim=-1)
    best, order = torch.cat([sums.top[at], top], dim=1).topk(k, dim=-1)
    sums.top[at] = best
    sums.ids[at] = torch.cat([sums.ids[at], ids + first], dim=1).gather(1, order)


def _combine(
    sums: _Sums, source: Known | Rows, wanted: Wanted, at: Float[Any, "rows wanted"], final: Final | None, exact: bool
) -> tuple[dict[str, Any], Any, Any]:
    """The parts together. In float64 and relative to the largest logit: differences of large numbers would lose digits."""
    import torch

    wide = torch.float32 if at.device.type == "mps" else torch.float64
    peaks = sums.peak.to(wide)
    peak = peaks.amax(0)
    below = peaks - peak
    total = (sums.total.to(wide) * below.exp()).sum(0)
    weighted = ((sums.weighted.to(wide) + below * sums.total) * below.exp()).sum(0)
    top, ids, moved = sums.top, sums.ids, 0.0
    if not exact:
        right = source.logits_at(ids)
        old, new = top.to(wide) - peak[:, None], right.to(wide) - peak[:, None]
        total = total + (new.exp() - old.exp()).sum(-1)
        weighted = weighted + (new * new.exp() - old * old.exp()).sum(-1)
        if final is not None:
            shape = (len(final.logits), -1, ids.shape[1])
            chosen = final.logits.gather(1, ids.view(len(final.logits), -1)).view(shape)
            weight = (chosen.to(wide) - final.log_total[:, None, None]).exp()
            moved = (weight * (right - top).view(shape)).sum(-1)
        top, order = right.topk(wanted.top_k, dim=-1)
        ids = ids.gather(1, order)
    log_total = peak + total.log()
    entropy = total.log() - weighted / total
    found = {
        "top_ids": ids.int(),
        "top_log_probability": top - log_total[:, None],
        "entropy_nats": entropy,
        "kl_nats": torch.zeros_like(entropy),  # of the final distribution to itself
        "rank": sums.greater.int(),
        "log_probability": at - log_total[:, None],
    }
    if final is not None:
        by_position = (len(peaks), len(final.logits), -1)
        crossed = sums.crossed.to(wide).view(by_position) + (peaks - log_total).view(by_position) * sums.mass[..., None]
        crossed = crossed.sum(0) + moved
        found["kl_nats"] = (-final.entropy_nats[:, None] - crossed).reshape(-1)
    return found, log_total, entropy
