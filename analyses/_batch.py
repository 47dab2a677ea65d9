"""Token ids as the tensor that a forward pass reads."""

from typing import Any

from jaxtyping import Int64

from analyses._arrays import check_ids


def batch_of(ids: Any, *, d_vocab: int, n_ctx: int, device: str) -> Int64[Any, "batch pos"]:
    """One text, or texts of equal length, checked before a pass is paid for.

    Args:
        ids: ids of one text (tuple, list or `Tokens`), or a tensor [batch, pos].
        d_vocab: of the model.
        n_ctx: of the model.
        device: where the tensor goes.

    Raises:
        ValueError: no ids, too many, some outside the vocabulary, or a tensor of another shape or type.
    """
    import torch

    if not isinstance(ids, torch.Tensor):
        return torch.tensor([check_ids(ids, d_vocab=d_vocab, n_ctx=n_ctx)], device=device)
    if ids.ndim != 2 or ids.dtype != torch.int64:
        raise ValueError(
            f"needs int64 ids of shape [batch, pos]; found {ids.dtype} {list(ids.shape)}; pass a tuple of ids."
        )
    if ids.shape[0] == 0:
        raise ValueError("needs at least one text; found none; leave the batch out.")
    # Rows are equally long, and the extreme ids stand for all: one check, whatever the batch.
    check_ids(ids[0].tolist(), d_vocab=d_vocab, n_ctx=n_ctx)
    check_ids([int(ids.min()), int(ids.max())], d_vocab=d_vocab, n_ctx=2)
    return ids.to(device)
