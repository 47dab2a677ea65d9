"""Cheap guesses of what a deletion will cost, from the streams of one undamaged run, and how well they rank the layers.

* Angular distance: arccos(cos(x at depth s, x at depth s + n)) / pi, 0 for the same direction, 1 for the opposite one (Gromov et
  al. 2024, "The Unreasonable Ineffectiveness of the Deeper Layers"). They take the final token and average over many texts. With
  one text that is one number, so the mean over its positions stands beside it.
* Block influence: 1 - mean over positions of cos(stream before, stream after) (Men et al. 2024, "ShortGPT").

Position 0 is left out of the means: in many models it carries an activation of many times the size of all others (Sun et al.
2024, "Massive Activations in Large Language Models").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

POSITIONS_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class DepthChange:
    """Change of direction from each depth to each other one."""

    angular_distance: Float64[np.ndarray, "depth depth"]  # mean over positions from 1
    angular_distance_last: Float64[np.ndarray, "depth depth"]  # last position
    cosine: Float64[np.ndarray, "depth depth"]  # mean over positions from 1

    @property
    def angles(self) -> tuple[Float64[np.ndarray, "depth depth"], Float64[np.ndarray, "depth depth"]]:
        """Angular distance: mean over positions, and last position."""
        return self.angular_distance, self.angular_distance_last

    def over_one_block(self) -> tuple[Float32[np.ndarray, " layer"], Float32[np.ndarray, " layer"]]:
        """Angular distance by layer: mean over positions, and last position."""
        mean, last = (np.diagonal(a, offset=1).astype(np.float32) for a in self.angles)
        return mean, last

    @property
    def block_influence(self) -> Float32[np.ndarray, " layer"]:
        """1 - mean cosine over one block."""
        return (1 - np.diagonal(self.cosine, offset=1)).astype(np.float32)


def depth_change(resid: Sequence[Float[Any, "1 pos d_model"]], *, neighbours: bool = False) -> DepthChange:
    """Angles between the streams of one text.

    Args:
        resid: streams by depth, 0 to n_layers.
        neighbours: only from each depth to the next; all others are NaN. Cheaper.
    """
    n_depths, n_positions = len(resid), resid[0].shape[1]
    first = min(1, n_positions - 1)  # a single position is all there is
    angle, cosine = np.zeros((2, n_depths, n_depths))
    for start in range(first, n_positions, POSITIONS_AT_ONCE):
        stop = min(start + POSITIONS_AT_ONCE, n_positions)
        # float64: the arc cosine of nearly one loses half of the digits.
        streams = np.stack([r[0, start:stop].float().cpu().numpy() for r in resid], axis=1).astype(np.float64)
        streams /= np.linalg.norm(streams, axis=-1, keepdims=True).clip(min=1e-30)
        if neighbours:
            cosines = np.full((stop - start, n_depths, n_depths), np.nan)
            lower = np.arange(n_depths - 1)
            cosines[:, lower, lower + 1] = (streams[:, :-1] * streams[:, 1:]).sum(-1)
        else:
            cosines = streams @ streams.swapaxes(1, 2)
        cosines = cosines.clip(-1, 1)
        angles = np.arccos(cosines) / np.pi
        angle, cosine = angle + angles.sum(0), cosine + cosines.sum(0)
    n_counted = n_positions - first
    return DepthChange(angle / n_counted, angles[-1], cosine / n_counted)


def spearman(score: Float[np.ndarray, " item"], damage: Float[np.ndarray, " item"]) -> float:
    """Rank correlation (Spearman 1904): 1 the same order, -1 the reverse; equal values share the mean of their ranks.

    Items with a NaN on either side are left out. NaN when fewer than three are left, or when one side is constant.
    """
    known = ~(np.isnan(score) | np.isnan(damage))
    ranks = [_ranks(np.asarray(values, dtype=np.float64)[known]) for values in (score, damage)]
    if known.sum() < 3 or any(np.ptp(r) == 0 for r in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Float64[np.ndarray, " item"]) -> Float64[np.ndarray, " item"]:
    _, index, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[index]
