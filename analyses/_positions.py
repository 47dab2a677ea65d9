"""Which positions of a text does a person mean?"""

from collections.abc import Sequence
from typing import Any

import numpy as np

WINDOW = 32  # positions that are read by default: the last ones


def choose_positions(positions: Any, n_tokens: int) -> tuple[int, ...]:
    """Positions in the text, ascending.

    Raises:
        ValueError: a word that means nothing here, no positions, one outside the text, or one named twice.
    """
    named = {"window": range(max(0, n_tokens - WINDOW), n_tokens), "all": range(n_tokens), "last": [n_tokens - 1]}
    if isinstance(positions, str) and positions in named:
        return tuple(named[positions])
    whole = isinstance(positions, Sequence | np.ndarray) and not isinstance(positions, str)
    if not whole or not len(positions) or not all(_is_whole(p) for p in positions):
        raise ValueError(
            f'needs "window", "all", "last" or a list of positions; found {positions!r}; choose the tokens to read at.'
        )
    if outside := [p for p in positions if not -n_tokens <= p < n_tokens]:
        raise ValueError(
            f"needs positions from 0 to {n_tokens - 1}; found {outside[0]}; choose tokens of the prompt (from zero)."
        )
    places = sorted(int(p) % n_tokens for p in positions)
    if twice := [a for a, b in zip(places, places[1:], strict=False) if a == b]:
        raise ValueError(f"needs each position once; found {twice[0]} twice; name it once (-1 is the last one).")
    return tuple(places)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
