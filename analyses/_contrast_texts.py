"""The texts that a steering vector is made from: checked, tokenised, and read once at every depth."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._arrays import check_ids, to_float32
from analyses.tokenization import run_tokenization

READ = ("mean", "last")
METHODS = ("difference", "principal")
MAX_TEXTS = 128  # of a group
BATCH_TOKENS = 256  # of one forward pass


def read_groups(model: Any, positive: Any, negative: Any, read: str, method: str) -> list[list[tuple[int, ...]]]:
    """Both groups as ids.

    Raises:
        ValueError: see `run_steering_vector`.
    """
    if read not in READ:
        raise ValueError(f"needs read to be one of {', '.join(READ)}; found {read!r}; choose one of them.")
    if method not in METHODS:
        raise ValueError(f"needs a method from {', '.join(METHODS)}; found {method!r}; choose one of them.")
    groups = [read_texts(model, texts, name) for name, texts in (("positive", positive), ("negative", negative))]
    if method == "principal" and len(groups[0]) != len(groups[1]):
        raise ValueError(
            f"needs pairs for the principal direction; found {len(groups[0])} and {len(groups[1])} texts; make the groups equal."
        )
    return groups


def read_texts(model: Any, texts: Any, name: str, *, at_least: int = 2) -> list[tuple[int, ...]]:
    """Texts or ids of a group, as ids.

    Raises:
        ValueError: none, too many, or one that is too short or too long; it says which, counted from 0.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not 1 <= len(texts) <= MAX_TEXTS:
        found = (
            "one text"
            if isinstance(texts, str)
            else len(texts)
            if isinstance(texts, Sequence)
            else type(texts).__name__
        )
        raise ValueError(f"needs a list of 1 to {MAX_TEXTS} {name} texts; found {found}; write one text a line.")
    limits = {"d_vocab": model.config.d_vocab, "n_ctx": model.config.n_ctx}
    ids = []
    for index, text in enumerate(texts):
        try:
            ids.append(check_ids(run_tokenization(model, text).ids if isinstance(text, str) else text, **limits))
        except ValueError as error:
            raise ValueError(f"{name} text {index}: {error}") from error
        if len(ids[-1]) < at_least:
            raise ValueError(
                f"needs at least {at_least} tokens in every {name} text (position 0 is not read); found {len(ids[-1])} in text "
                f"{index}; write more words."
            )
    return ids


def equal_lengths(texts: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Indices of texts of one length, a batch at a time: one pass of eight short texts costs little more than of one."""
    batches: list[list[int]] = []
    for length in sorted({len(text) for text in texts}):
        same = [index for index, text in enumerate(texts) if len(text) == length]
        size = max(1, BATCH_TOKENS // length)
        batches += [same[i : i + size] for i in range(0, len(same), size)]
    return batches


def read_streams(model: Any, texts: Sequence[tuple[int, ...]], read: str) -> Float32[np.ndarray, "text depth d_model"]:
    """The stream of texts of one length at every depth: mean over positions from 1, or the last position. One forward pass."""
    import torch

    n_layers = model.config.n_layers
    found: list[Any] = [None] * (n_layers + 1)

    def keeping(depth: int) -> Callable[..., None]:
        def keep(tensor: Float[Any, "batch pos d_model"], hook: Any) -> None:
            found[depth] = to_float32(tensor[:, 1:].float().mean(1) if read == "mean" else tensor[:, -1])

        return keep

    pairs = [(model.hook_name("resid_pre", layer), keeping(layer)) for layer in range(n_layers)]
    with model.hooks(*pairs, (model.hook_name("resid_post", n_layers - 1), keeping(n_layers))):
        model.forward(torch.tensor(list(texts)), last_only=True)
    return np.stack(found, axis=1)
