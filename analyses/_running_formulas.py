"""The arithmetic of running a model: bytes of its KV cache, FLOPs of a pass, and what memory bandwidth allows.

Per layer a token leaves one key and one value per KV head: 2 * layers * kv_heads * d_head values. A multiplication by a matrix of
n values costs 2n FLOPs per token (one product and one sum), and attention 4 * heads * d_head per layer and pair of tokens, over
all pairs because the masked ones are computed too. A decoded token has to read every weight once and the cache once, so
bandwidth / bytes is the most tokens per second that one row can reach (Pope et al. 2023, "Efficiently Scaling Transformer
Inference"; Williams, Waterman and Patterson 2009, "Roofline").
"""

from collections.abc import Sequence
from typing import Any

# The parameters that the formula leaves out (norms, biases, learned positions) are below a tenth of every dense family here;
# with experts there are several times as many.
OTHER_PARAMETERS = 1.1


def cache_bytes(
    n_kv_heads: int,
    d_head: int,
    n_tokens: int,
    *,
    limits: Sequence[int | None],
    bytes_per_value: int,
    rows: int = 1,
) -> int:
    """Bytes of keys and values after `n_tokens` tokens in each of `rows` rows.

    Args:
        n_kv_heads: per layer.
        d_head: values of one key or one value.
        n_tokens: read so far.
        limits: one entry per layer: the most tokens it keeps, None where it keeps all.
        bytes_per_value: 4 for float32, 2 for bfloat16 and float16.
        rows: texts in the batch.
    """
    kept = sum(n_tokens if limit is None else min(n_tokens, limit) for limit in limits)
    return 2 * rows * kept * n_kv_heads * d_head * bytes_per_value


def measured_cache_bytes(cache: Any) -> int:
    """Bytes of the tensors that a transformers cache holds now."""
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def layer_limits(cache: Any) -> tuple[int | None, ...]:
    """The most tokens each layer of a transformers cache keeps; None where it keeps all.

    A layer with a sliding window keeps one token fewer than the window: the newest is the window's last, and comes with the pass.
    """
    windows = [getattr(layer, "sliding_window", None) for layer in cache.layers]
    return tuple(None if window is None else window - 1 for window in windows)


def bytes_per_value(config: Any) -> int:
    """Bytes of one number of the model."""
    return 4 if config.dtype == "float32" else 2


def block_matrices(config: Any) -> int:
    """Values of all matrices of all blocks: Q, K, V, O and the MLP's two, or three where it is gated."""
    queries, keys = config.n_heads * config.d_head, config.n_kv_heads * config.d_head
    attention = 2 * config.d_model * queries + 2 * config.d_model * keys
    return config.n_layers * (attention + (3 if config.gated_mlp else 2) * config.d_model * config.d_mlp)


def is_dense(config: Any) -> bool:
    """Whether the matrices of the formula are all there are: not so with experts, of which only some run per token."""
    counted = block_matrices(config) + (1 if config.tied else 2) * config.d_vocab * config.d_model
    return counted <= config.n_parameters <= OTHER_PARAMETERS * counted


def pass_flops(config: Any, n_tokens: int, *, past: int = 0, readouts: int = 1) -> int:
    """FLOPs of one pass over `n_tokens` new tokens after `past` cached ones, with `readouts` positions unembedded.

    Raises:
        ValueError: a model whose matrices the formula does not describe.
    """
    if not is_dense(config):
        raise ValueError(
            f"needs a dense model, every weight used for every token; found {config.n_parameters:,} parameters where dense "
            "blocks of these widths would have fewer (experts, perhaps); count its active parameters instead."
        )
    pairs = n_tokens * (past + n_tokens)
    attention = 4 * config.n_layers * config.n_heads * config.d_head * pairs
    return 2 * n_tokens * block_matrices(config) + 2 * readouts * config.d_vocab * config.d_model + attention


def bytes_read_per_token(config: Any) -> int:
    """Weights that one decoded token reads: all, but for the embedding where it is a table apart (one row of it is read)."""
    looked_up = 0 if config.tied else config.d_vocab * config.d_model
    return (config.n_parameters - looked_up) * bytes_per_value(config)


def decode_bound(config: Any, bandwidth: float, cache: int) -> float:
    """The most tokens per second that reading weights and cache once per token allows, for one row.

    Args:
        config: of a dense model.
        bandwidth: bytes per second.
        cache: bytes of the KV cache.
    """
    return bandwidth / (bytes_read_per_token(config) + cache)
