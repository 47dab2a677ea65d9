"""Attention heads: their names, which key-value head each reads, windows and masks; shared by the analyses of attention."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32

NAME = re.compile(r"L(\d+)H(\d+)")
HIDDEN = -1e30  # a score below this is masked: bridges use the lowest float of the number format


def head_name(layer: int, head: int) -> str:
    """The name of a head, such as L18H6: both numbers count from zero."""
    return f"L{layer}H{head}"


def check_head(config: Any, layer: int, head: int) -> None:
    """Refuse a head that is not there.

    Raises:
        ValueError: a layer or a head out of range.
    """
    if not (0 <= layer < config.n_layers and 0 <= head < config.n_heads):
        raise ValueError(
            f"needs a head from L0H0 to {head_name(config.n_layers - 1, config.n_heads - 1)}; "
            f"found {head_name(layer, head)}; layers and heads count from zero."
        )


def parse_heads(config: Any, heads: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """(layer, head) of each, in the order given.

    Args:
        config: of the model.
        heads: each a text such as "L18H6" or a pair (layer, head).

    Raises:
        ValueError: something else, a head that is not there, or one twice.
    """
    if isinstance(heads, str):
        raise ValueError(f"needs a list of heads; found the text {heads!r}; put it in brackets.")
    found: list[tuple[int, int]] = []
    for given in heads:
        match = NAME.fullmatch(given) if isinstance(given, str) else None
        pair = match.groups() if match else given
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"needs heads such as L18H6 or (18, 6); found {given!r}; write the layer and the head.")
        layer, head = int(pair[0]), int(pair[1])
        check_head(config, layer, head)
        if (layer, head) in found:
            raise ValueError(f"needs each head once; found {head_name(layer, head)} twice; remove one.")
        found.append((layer, head))
    return tuple(found)


def check_layer(config: Any, layer: int) -> None:
    """Refuse a layer that is not there.

    Raises:
        ValueError: a layer out of range.
    """
    if not 0 <= layer < config.n_layers:
        raise ValueError(f"needs a layer from 0 to {config.n_layers - 1}; found {layer}; layers count from zero.")


def kv_heads(n_heads: int, n_kv_heads: int) -> Int32[np.ndarray, " head"]:
    """Which key-value head serves each head: groups of neighbours share one (Ainslie et al. 2023, "GQA")."""
    return (np.arange(n_heads) // (n_heads // n_kv_heads)).astype(np.int32)


def layer_windows(model: Any) -> tuple[int | None, ...]:
    """Tokens that each layer sees, its own among them; None where it sees all before it.

    A prompt shorter than the window cannot show it, so this is what the model's config says.
    """
    n_layers, window = model.config.n_layers, model.config.sliding_window
    if window is None:
        return (None,) * n_layers
    text = model._bridge.original_model.config.get_text_config()
    kinds = getattr(text, "layer_types", None) or getattr(text, "attention_layers", None) or ["sliding"] * n_layers
    return tuple(window if kind.startswith(("sliding", "local")) else None for kind in kinds)


def without_mask(calls: Any) -> Any:
    """The captured calls with every attention mask opened: each position then sees all, also later ones."""
    n = calls.logits.shape[1]

    def opened(value: Any) -> Any:
        if not _is_mask(value, n):
            return value
        return value.new_ones(value.shape) if _is_bool(value) else value.new_zeros(value.shape)

    arguments = (
        (tuple(opened(value) for value in tail), {name: opened(value) for name, value in named.items()})
        for tail, named in calls.arguments
    )
    return replace(calls, arguments=tuple(arguments))


def visible_pairs(calls: Any, layer: int) -> Bool[np.ndarray, "query key"]:
    """What the mask of a layer leaves open on this prompt."""
    n = calls.logits.shape[1]
    tail, named = calls.arguments[layer]
    for value in (*tail, *named.values()):
        if _is_mask(value, n):
            mask = value[0, 0]
            return (mask if _is_bool(mask) else mask > HIDDEN).cpu().numpy()
    return np.tri(n, dtype=bool)


def _is_mask(value: Any, n_tokens: int) -> bool:
    """Every family hands its blocks one argument with four axes whose last two are positions."""
    return getattr(value, "ndim", 0) == 4 and tuple(value.shape[-2:]) == (n_tokens, n_tokens)


def _is_bool(tensor: Any) -> bool:
    return str(tensor.dtype) == "torch.bool"


def sink_share(model: Any, layer: int, least_row_sum: float) -> bool:
    """Whether a layer gives part of its attention to a learned sink, as far as this prompt shows."""
    limit = 1e-4 if model.config.dtype == "float32" else 0.02
    return "sink" in model.capabilities["rows_sum_to_one"] and least_row_sum < 1 - limit
