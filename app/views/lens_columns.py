"""The lens grid while it is read: the columns that are known, in the place where they belong."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analyses.logit_lens import LogitLens
from app.ui.run import Outcome

SAME = ("target", "distractor", "top_k", "lens")  # parameters that decide what a column says


def known_columns(old: Outcome | None, tokens: tuple[int, ...], params: Mapping[str, Any]) -> LogitLens | None:
    """What the grid showed before, where its columns say the same as those of the new request and some are asked for."""
    if old is None or old.tokens != tokens or any(old.params[name] != params[name] for name in SAME):
        return None
    lens: LogitLens = old.result
    shared = np.isin(lens.positions, params["positions"]).any()
    return lens if shared and (lens.exact or not params["exact"]) else None


def spread(parts: Sequence[LogitLens], positions: Sequence[int]) -> LogitLens:
    """One lens over all `positions`: the columns of `parts`, and -1 or NaN where nothing is known yet.

    Args:
        parts: of the same depths, asked with the same target; a later one wins.
        positions: ascending.
    """
    whole = dict(vars(parts[-1])) | {"positions": np.array(positions, dtype=np.int32)}
    arrays = [name for name, value in whole.items() if isinstance(value, np.ndarray) and name != "positions"]
    for name in arrays:
        like = whole[name]
        shape = (len(positions),) if like.ndim == 1 else (like.shape[0], len(positions), *like.shape[2:])
        whole[name] = np.full(shape, np.nan if np.issubdtype(like.dtype, np.floating) else -1, like.dtype)
    for part in parts:
        there = np.isin(part.positions, positions)
        at = np.searchsorted(positions, part.positions[there])
        for name in arrays:
            values = getattr(part, name)
            if values.ndim == 1:
                whole[name][at] = values[there]
            else:
                whole[name][:, at] = values[:, there]
    return LogitLens(**whole)


def adds_columns(part: Mapping[str, Any], drawn: LogitLens) -> bool:
    """Whether a part (the fields of a lens) knows columns that are still empty in what is drawn."""
    empty = drawn.positions[drawn.top_ids[-1, :, 0] < 0]
    return bool(np.isin(empty, part["positions"]).any())
