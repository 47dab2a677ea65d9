"""Tensors to numpy, and token ids checked before a forward pass is paid for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float


def to_float32(tensor: Float[Any, "..."]) -> Float[np.ndarray, "..."]:
    """Copy of a tensor of any float type as float32 on the CPU (numpy has no bfloat16)."""
    return tensor.detach().float().cpu().numpy().copy()


def check_ids(tokens: Any, *, d_vocab: int, n_ctx: int, at_least: int = 1) -> tuple[int, ...]:
    """Token ids of a tuple, list, array or `Tokens`, as a tuple of Python ints.

    Raises:
        ValueError: text instead of ids, too few or too many of them, or an id outside the vocabulary.
    """
    found = getattr(tokens, "ids", tokens)
    if isinstance(found, str):
        raise ValueError("needs token ids; found text; tokenise it first with run_tokenization(model, text).")
    if not isinstance(found, Sequence | np.ndarray):
        raise ValueError(
            f"needs a sequence of token ids; found {type(found).__name__}; pass run_tokenization(model, text)."
        )
    ids = tuple(int(i) for i in found)
    if len(ids) < at_least:
        raise ValueError(
            f"needs at least {at_least} token{'s' if at_least > 1 else ''}; found {len(ids)}; write a longer prompt."
        )
    if len(ids) > n_ctx:
        raise ValueError(
            f"needs at most {n_ctx:,} tokens (the model's context); found {len(ids):,}; shorten the prompt or cut one end."
        )
    outside = [i for i in ids if not 0 <= i < d_vocab]
    if outside:
        raise ValueError(
            f"needs ids from 0 to {d_vocab - 1:,}; found {outside[0]:,}; tokenise with this model's tokenizer."
        )
    return ids
