"""Directions between two groups of rows, and how well they tell the groups apart: numpy only.

Rows are streams of texts, `positive` [text, d_model] and `negative` [other text, d_model]; with equally many they are pairs, in
order.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

Rows = Float64[np.ndarray, "text d_model"]
Direction = Float64[np.ndarray, " d_model"]


def _difference(positive: Rows, negative: Rows) -> tuple[Direction, float]:
    """The difference of the means, and its share of the pairs."""
    direction = positive.mean(0) - negative.mean(0)
    return _checked(direction, positive), _share(positive, negative, direction)


def _principal(positive: Rows, negative: Rows) -> tuple[Direction, float]:
    """The first right singular vector of the pairs' differences, as long as they are along it on average, and its share."""
    pairs = positive - negative
    unit = np.linalg.svd(pairs, full_matrices=False)[2][0]
    along = pairs @ unit
    balance = np.sign(along).sum() or along.sum()
    unit = unit if balance >= 0 else -unit
    return _checked(unit * abs(along.mean()), positive), _share(positive, negative, unit)


DIRECTIONS: Mapping[str, Callable[..., tuple[Direction, float]]] = {"difference": _difference, "principal": _principal}


def _checked(direction: Any, streams: Any) -> Any:
    if not np.linalg.norm(direction) > 1e-6 * np.linalg.norm(streams, axis=-1).mean():
        raise ValueError(
            "needs two groups that differ; found the same stream in both; write texts that differ in one thing."
        )
    return direction


def _share(positive: Any, negative: Any, direction: Any) -> float:
    """How much of the paired differences' squared length lies along the direction."""
    if len(positive) != len(negative):
        return float("nan")
    pairs = positive - negative
    return float(np.square(pairs @ direction).sum() / np.square(direction).sum() / np.square(pairs).sum())


def held_out(positive: Any, negative: Any, method: str) -> list[Bool[np.ndarray, " text"]]:
    """Whether each text is on its side of the middle of the others, along a direction that is made without it."""
    groups, right = (positive, negative), []
    for own in (0, 1):
        found = np.zeros(len(groups[own]), dtype=bool)
        for index in range(len(found)):
            # A pair leaves together: partners often share their words.
            rest = [
                np.delete(g, index, axis=0) if len(positive) == len(negative) or g is groups[own] else g for g in groups
            ]
            if min(map(len, rest)):
                direction = _direction_only(rest, method)
                middle = sum(g.mean(0) @ direction for g in rest) / 2
                found[index] = (groups[own][index] @ direction > middle) == (own == 0)
        right.append(found)
    return right


def _direction_only(groups: list[Any], method: str) -> Any:
    try:
        return DIRECTIONS[method](*groups)[0]
    except ValueError:  # without this text the groups are equal: nothing tells them apart
        return np.zeros(groups[0].shape[1])


def by_depth(
    groups: Sequence[Float64[np.ndarray, "text depth d_model"]], norms: Any
) -> Float64[np.ndarray, "two depth"]:
    """Separation (in pooled standard deviations) and length (over the stream's) of the difference of means, at every depth."""
    difference = groups[0].mean(0) - groups[1].mean(0)
    length = np.linalg.norm(difference, axis=-1)
    unit = difference / np.maximum(length, 1e-30)[:, None]
    along = [np.einsum("ntd,td->nt", g, unit) for g in groups]
    n = [len(g) for g in groups]
    pooled = sum(a.var(0) * len(a) for a in along) / max(1, sum(n) - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        separation = np.where(pooled > 0, length / np.sqrt(pooled), np.nan)
    return np.stack([separation, length / norms])
