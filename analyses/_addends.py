"""What a deletion leaves out: addends of the sum that is the stream, named, checked, and turned into hooks.

A block adds twice: attention(norm(x)), then mlp(norm(x)) (side by side in some families). An int names both addends of a
block, "10.attention" and "10.mlp" one of them. A variant is a set of them.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PARTS = ("attention", "mlp")
POINT = {"attention": "attn_out", "mlp": "mlp_out"}

Addends = frozenset[tuple[int, str]]  # (layer, part)
Pair = tuple[str, Callable[..., Any]]  # hook name, function


def whole_blocks(layers: Iterable[int]) -> Addends:
    """Both addends of each of these blocks."""
    return frozenset((layer, part) for layer in layers for part in PARTS)


def read_variants(deleted: Any, n_layers: int) -> tuple[Addends, ...]:
    """Variants as a user writes them: a list of lists of ints and strings.

    Args:
        deleted: e.g. [[10], [10, 11], ["3.attention"], []]; None is every single block.
        n_layers: blocks of the model.

    Raises:
        ValueError: not a list of lists, no variant, one twice, or what `read_addends` refuses.
    """
    if deleted is None:
        return tuple(whole_blocks([layer]) for layer in range(n_layers))
    if not _is_list(deleted):
        raise ValueError(f"needs a list of variants; found {deleted!r}; write [[10], [10, 11]].")
    if not deleted:
        raise ValueError("needs at least one variant; found none; write [[10]], or leave it out to try every layer.")
    variants = tuple(read_addends(variant, n_layers) for variant in deleted)
    for index, variant in enumerate(variants):
        if variant in variants[:index]:
            raise ValueError(f"needs each variant once; found {list(name(variant))} twice; leave one out.")
    return variants


def read_addends(variant: Any, n_layers: int) -> Addends:
    """The addends that one variant names.

    Args:
        variant: a list of layers (whole blocks), "10.attention", "10.mlp" or pairs (10, "attention").
        n_layers: blocks of the model.

    Raises:
        ValueError: not a list, an unknown name, a layer that is not there, or an addend twice.
    """
    if not _is_list(variant):
        raise ValueError(f"needs a list of what to delete; found {variant!r}; write [[10]], a list of lists.")
    found: set[tuple[int, str]] = set()
    for item in variant:
        layer, parts = _read_item(item)
        if not 0 <= layer < n_layers:
            raise ValueError(f"needs layers from 0 to {n_layers - 1}; found {layer}; layers count from zero.")
        for part in parts:
            if (layer, part) in found:
                raise ValueError(
                    f"needs each addend once; found {layer}.{part} twice; {layer} alone is the whole block."
                )
            found.add((layer, part))
    return frozenset(found)


def name(variant: Addends) -> tuple[int | str, ...]:
    """The shortest way to write a variant, by layer: an int where both addends are in it."""
    layers = sorted({layer for layer, _ in variant})
    both = {layer for layer in layers if all((layer, part) in variant for part in PARTS)}
    parts = [(layer, part) for layer, part in sorted(variant) if layer not in both]
    named = [(layer, layer) for layer in both] + [(layer, f"{layer}.{part}") for layer, part in parts]
    return tuple(item for _, item in sorted(named, key=lambda pair: pair[0]))


def check_wrong(variants: Sequence[Addends]) -> None:
    """Refuse what has no wrong form: only a whole block has an output that can be replaced.

    Raises:
        ValueError: a variant leaves out attention or MLP alone.
    """
    for variant in variants:
        halves = [item for item in name(variant) if isinstance(item, str)]
        if halves:
            raise ValueError(f"needs whole blocks for the pipeline contrast; found {halves[0]}; name the layer alone.")


def deletion_hooks(model: Any, deleted: Any, *, wrong: bool = False) -> list[Pair]:
    """Hooks that leave out what these addends add, for `with model.hooks(*pairs)`; works with and without a cache.

    Args:
        model: a HookedModel.
        deleted: one variant, e.g. [10, "11.mlp"]; an empty one needs no hooks.
        wrong: replace the output of each block by zero instead, as deletion would be in a pipeline; whole blocks only.

    Raises:
        ValueError: an unknown or doubled addend, or a model whose addends cannot be changed.
    """
    variant = read_addends(deleted, model.config.n_layers)
    return addend_hooks(model, variant, wrong=wrong)


def addend_hooks(model: Any, variant: Addends, *, wrong: bool = False) -> list[Pair]:
    """`deletion_hooks` of a variant that has been read."""
    if wrong:
        check_wrong([variant])
        return [(model.hook_name("resid_post", layer), _nothing) for layer in sorted({layer for layer, _ in variant})]
    if variant:
        model.require("attn_out", "mlp_out")
    return [(model.hook_name(POINT[part], layer), _nothing) for layer, part in sorted(variant)]


def _nothing(tensor: Any, hook: Any) -> Any:
    return tensor.new_zeros(tensor.shape)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _read_item(item: Any) -> tuple[int, tuple[str, ...]]:
    layer, part = item, None
    if isinstance(item, str):
        layer, _, part = item.partition(".")
        layer = int(layer) if layer.isdecimal() else None
    elif _is_list(item) and len(item) == 2:
        layer, part = item
    try:
        if (part is None or part in PARTS) and not isinstance(layer, bool):
            return operator.index(layer), PARTS if part is None else (part,)
    except TypeError:
        pass  # no whole number: refused below, like every other word
    raise ValueError(f"needs layers, or names such as '10.attention' and '10.mlp'; found {item!r}; correct it.")
