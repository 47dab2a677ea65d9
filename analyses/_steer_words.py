"""How far a distribution leans to the words that are wanted: log-odds of target tokens against others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float64

from analyses._targets import token_id

MAX_WORDS = 64  # of a list


def read_words(model: Any, targets: Any, against: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Target and opposite tokens as ids, each once.

    Raises:
        ValueError: no lists, lists that are too long, text that is not one token, or a token in both.
    """
    found = []
    for words, what in ((targets, "target"), (against, "opposite")):
        if isinstance(words, str) or not isinstance(words, Sequence) or len(words) > MAX_WORDS:
            raise ValueError(
                f"needs a list of at most {MAX_WORDS} {what} tokens; found {words!r:.60}; list ids or tokens."
            )
        found.append(tuple(dict.fromkeys(token_id(model, word, what) for word in words)))
    if both := set(found[0]) & set(found[1]):
        raise ValueError(f"needs targets and opposites that differ; found id {min(both)} in both; take it out of one.")
    if found[1] and not found[0]:
        raise ValueError("needs target tokens for the opposites; found none; list some, or leave the opposites out.")
    return found[0], found[1]


def log_odds(
    log_probability: Float[np.ndarray, "*rows d_vocab"], targets: Sequence[int], against: Sequence[int]
) -> Float64[np.ndarray, "*rows"]:
    """Log of the targets' total probability over that of `against`, in nats; over all other tokens when there are none.

    NaN without targets.
    """
    wide = np.asarray(log_probability, dtype=np.float64)
    if not targets:
        return np.full(wide.shape[:-1], np.nan)
    mine = _log_sum(wide[..., list(targets)])
    if against:
        return mine - _log_sum(wide[..., list(against)])
    rest = np.delete(wide, list(targets), axis=-1)
    return mine - _log_sum(rest)


def _log_sum(values: Float64[np.ndarray, "*rows n"]) -> Float64[np.ndarray, "*rows"]:
    top = values.max(-1, keepdims=True)
    return np.log(np.exp(values - top).sum(-1)) + top[..., 0]
