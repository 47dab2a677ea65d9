"""Fitting a linear lens: reading windows of a text, adding up what decides the maps, and trying them on a held-out part.

Only analyses/linear_lens.py uses this file. Position 0 of a window is context and nothing else: models park a massive
activation there (Sun, Chen, Kolter, Liu 2024, "Massive Activations in Large Language Models").
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from analyses._encode import encode
from analyses._maps import Moments, apply_map
from analyses._readout import row_chunks
from analyses._steps import Progress, Steps

# Positions at which the lens is tried: two readouts of the whole vocabulary per depth each, spread over the held-out part.
TRIED = 256
# Sums of a depth are two square matrices. A model whose matrices fill this has weights several times as large.
GROUP_BYTES = 1 << 30
# A window takes about twenty times as long as reading one chunk at one depth, on SmolLM2.
WINDOW_SHARE = 20
HELD_LOGITS = 4  # arrays of their size at once: the model's probabilities, the lens' logits, two on the way


@dataclass
class Bar:
    """How far a fit is, in chunks read."""

    total: int
    done: int = 0

    def after(self, share: int, note: str) -> Progress:
        self.done += share
        return Progress(min(self.done, self.total), self.total, note=note)


def encoded(tokenizer: Any, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the tokenizer itself puts in front of a text, and the ids of the text."""
    rows = encode(tokenizer, text, added=True)
    inside = [i for i, (_, start, _) in enumerate(rows) if start >= 0]
    return tuple(row[0] for row in rows[: inside[0]]), tuple(rows[i][0] for i in inside)


def windows_of(ids: Sequence[int], front: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    """Pieces of at most `size` ids, each with the same ids in front; a rest without a position to count is left out."""
    step = size - len(front)
    found = [(*front, *ids[i : i + step]) for i in range(0, len(ids), step)]
    return [window for window in found if len(window) > 2]


def groups_of(n_layers: int, d_model: int) -> list[range]:
    """Depths whose sums fit the budget together."""
    size = max(1, GROUP_BYTES // (8 * d_model**2))
    return [range(i, min(i + size, n_layers)) for i in range(0, n_layers, size)]


def add_up(model: Any, windows: Sequence[tuple[int, ...]], depths: range, bar: Bar) -> Steps[dict[int, Moments]]:
    """The sums of every depth of a group over all windows, positions from 1 on."""
    moments: dict[int, Moments] = {}
    for number, window in enumerate(windows, 1):
        streams, last = streams_of(model, window, depths)
        last = last.float()
        for depth, rows in streams.items():
            if depth in moments:
                moments[depth].add(rows.float(), last)
            else:
                moments[depth] = Moments(rows.float(), last)
        yield bar.after(WINDOW_SHARE, f"reading the text, window {number} of {len(windows)}")
    return moments


def try_maps(
    model: Any,
    windows: Sequence[tuple[int, ...]],
    tried: Sequence[range],
    maps: Mapping[int, tuple[Any, Any]],
    sums: Float[np.ndarray, "figure lens depth"],
    bar: Bar,
) -> Steps[None]:
    """Add up KL and loss of both lenses over the positions tried, at the depths of `maps` and at the last one."""
    import torch

    kept: dict[int, list[Any]] = {depth: [] for depth in (*maps, -1)}
    for window, rows in zip(windows, tried, strict=True):
        streams, last = streams_of(model, window, maps)
        for depth, stream in (*streams.items(), (-1, last)):
            kept[depth].append(stream[list(rows)])
        yield bar.after(WINDOW_SHARE, "reading the held-out text")
    device = kept[-1][0].device
    stream = {depth: torch.cat(rows) for depth, rows in kept.items()}
    follows = torch.tensor([w[r + 2] for w, rows in zip(windows, tried, strict=True) for r in rows], device=device)
    placed = {depth: (weight.to(device), bias.to(device)) for depth, (weight, bias) in maps.items()}
    sums[:, :, -1] = 0  # every group computes the last depth again
    for rows in row_chunks(model, len(follows), held=HELD_LOGITS):
        final = model.readout(stream[-1][rows]).float().log_softmax(-1)
        sums[1, :, -1] -= float(final.gather(-1, follows[rows, None]).sum())
        probability = final.exp()
        entropy = -float((probability * final).sum())
        del final
        for depth, (weight, bias) in placed.items():
            plain = stream[depth][rows]
            for lens, carried in enumerate((plain, apply_map(plain, weight, bias))):
                cross_entropy, loss = _cross_entropy_and_loss(model, carried, probability, follows[rows])
                sums[:, lens, depth] += cross_entropy - entropy, loss
            yield bar.after(1, f"trying the lens at depth {depth}")


def _cross_entropy_and_loss(
    model: Any, resid: Float[Any, "rows d_model"], probability: Float[Any, "rows d_vocab"], follows: Int[Any, " rows"]
) -> tuple[float, float]:
    """Sums over rows of what is read from them: -sum p log q against the final p, and the loss on what follows.

    With logits z and q = softmax(z), -sum p log q = log sum exp z - sum p z: no array of log q is needed.
    """
    import torch

    logits = model.readout(resid).float()
    log_sum = float(logits.logsumexp(-1).sum())
    expected = float(torch.linalg.vecdot(probability, logits).sum())
    return log_sum - expected, log_sum - float(logits.gather(-1, follows[:, None]).sum())


def streams_of(model: Any, window: tuple[int, ...], depths: Iterable[int]) -> tuple[dict[int, Any], Any]:
    """One forward pass: the stream at these depths and at the last one, [pos, d_model], without position 0."""
    last, kept = model.config.n_layers, {}

    def keep(depth: int) -> Callable[..., None]:
        def note(stream: Any, hook: Any) -> None:
            kept[depth] = stream[0, 1:]

        return note

    pairs = [(model.hook_name("resid_pre", depth), keep(depth)) for depth in depths]
    with model.hooks(*pairs, (model.hook_name("resid_post", last - 1), keep(last))):
        model.forward(window, last_only=True)
    return kept, kept.pop(last)


def spread(windows: Sequence[tuple[int, ...]]) -> list[range]:
    """Rows of each held-out window at which the lens is tried; row r is position r + 1, whose next token is at r + 2."""
    lengths = [len(window) - 2 for window in windows]
    step, found, before = max(1, math.ceil(sum(lengths) / TRIED)), [], 0
    for length in lengths:
        found.append(range(-before % step, length, step))
        before += length
    return found
