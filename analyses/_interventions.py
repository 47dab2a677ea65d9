"""What is changed in the model while it computes, as data: read once, checked, and turned into hooks for any forward pass.

An intervention is a mapping with one key, its kind: {"delete": [10, "11.mlp"]} leaves addends out (analyses/_addends.py),
{"ablate_heads": ["L18H6", [17, 3]]} sets heads to zero before the output matrix, {"steer": {...}} adds a direction to the stream
(analyses/_steer.py).

Identity: a hook depends on absolute positions alone (`start` and `n_prompt`), so a run with a KV cache and one that reads
everything again change the same numbers.

Limit: a head that is set to zero leaves the rest of the model with a stream it was not trained on; so does every other kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyses._addends import addend_hooks, read_addends
from analyses._heads import parse_heads
from analyses._steer import read_steer, steer_hooks

Pair = tuple[str, Callable[..., Any]]  # hook name, function
Maker = Callable[[int, int], list[Pair]]  # (start, n_prompt) -> hooks of one forward pass

KINDS = '{"delete": [10, "11.mlp"]}, {"ablate_heads": ["L18H6"]} or {"steer": {...}}'


@dataclass(frozen=True, eq=False)
class Interventions:
    """What one run changes, checked for one model."""

    makers: tuple[Maker, ...] = ()

    def hooks(self, start: int, n_prompt: int) -> list[Pair]:
        """Hooks of one forward pass, for `with model.hooks(*pairs)`; call it outside every such context.

        Args:
            start: position in the whole text of the first column of this pass (0 without a cache).
            n_prompt: tokens of the prompt; its last position counts as new, because it predicts the first new token.
        """
        return [pair for make in self.makers for pair in make(start, n_prompt)]


def read_interventions(model: Any, interventions: Any) -> Interventions:
    """The interventions that a list of mappings describes, for this model.

    Raises:
        ValueError: not a list of mappings with one known key each, what that kind refuses, or a model that cannot be changed so.
    """
    if isinstance(interventions, str | Mapping) or not isinstance(interventions, Sequence):
        raise ValueError(f"needs a list of interventions; found {interventions!r}; write [{KINDS.split(', ')[0]}].")
    return Interventions(tuple(_read(model, item) for item in interventions))


def batch_hooks(variants: Sequence[Interventions], rows: int, start: int, n_prompt: int) -> list[Pair]:
    """Hooks of a batch in which each variant has `rows` rows, one variant after the other, and changes only these."""
    if len(variants) == 1:
        return variants[0].hooks(start, n_prompt)
    return [
        (name, _on_rows(function, index * rows, (index + 1) * rows))
        for index, variant in enumerate(variants)
        for name, function in variant.hooks(start, n_prompt)
    ]


def _read(model: Any, item: Any) -> Maker:
    found = item if isinstance(item, Mapping) and len(item) == 1 else {}
    if "delete" in found:
        pairs = addend_hooks(model, read_addends(found["delete"], model.config.n_layers))
        return lambda start, n_prompt: pairs
    if "ablate_heads" in found:
        silenced = _head_hooks(model, found["ablate_heads"])
        return lambda start, n_prompt: silenced
    if "steer" in found:
        steer = read_steer(model, found["steer"])
        steer_hooks(model, steer, start=0, n_prompt=1)  # refused now, not after the prompt has been paid for
        return lambda start, n_prompt: steer_hooks(model, steer, start=start, n_prompt=n_prompt)
    raise ValueError(f"needs interventions such as {KINDS}; found {item!r}; correct it.")


def _head_hooks(model: Any, heads: Any) -> list[Pair]:
    """Zero ablation: what these heads have read reaches nobody."""
    if not isinstance(heads, Sequence):
        raise ValueError(f'needs a list of heads; found {heads!r}; write ["L18H6", [17, 3]].')
    found = parse_heads(model.config, heads)
    if found:
        model.require("head_output")
    by_layer = {layer: [head for at, head in found if at == layer] for layer in sorted({layer for layer, _ in found})}
    return [(model.hook_name("head_output", layer), _silence(silenced)) for layer, silenced in by_layer.items()]


def _silence(heads: list[int]) -> Callable[..., Any]:
    def zero(tensor: Any, hook: Any) -> Any:
        changed = tensor.clone()
        changed[:, :, heads] = 0
        return changed

    return zero


def _on_rows(function: Callable[..., Any], first: int, end: int) -> Callable[..., Any]:
    """The hook on some rows of a batch; the others stay the very numbers they were."""

    def on_rows(tensor: Any, hook: Any) -> Any:
        part = function(tensor[first:end], hook=hook)
        if part is None:
            return None
        changed = tensor.clone()
        changed[first:end] = part
        return changed

    return on_rows
