"""From scores to weights in other ways than the model's, put in place of its own while a block runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from analyses._head_steps import softmax_with_sink
from analyses._heads import HIDDEN, visible_pairs

UNCHANGED, LOOKUP = "unchanged", "hard lookup"
AFTER, RESCALED, NONE = MASKS = ("mask after", "mask after, rescaled", "no mask")
OPEN = frozenset(MASKS)  # these need the scores of all pairs, so the block runs with its mask opened


def make_weights(
    scores: Float[np.ndarray, "... query key"],
    visible: Bool[np.ndarray, "... query key"],
    kind: str,
    sink: Float[np.ndarray, "... query 1"] | None,
) -> Float[np.ndarray, "... query key"]:
    """Scores (masked, or of all pairs for the kinds in `OPEN`) to weights."""
    if kind == LOOKUP:
        return np.eye(scores.shape[-1])[scores.argmax(-1)]
    weights = softmax_with_sink(scores, sink)
    if kind in (AFTER, RESCALED):
        kept = np.where(visible, weights, 0.0)
        # What the sink was given stays with it; the rows are rescaled to share the rest.
        aside = 0.0 if sink is None else 1 - weights.sum(-1, keepdims=True)
        weights = kept if kind == AFTER else kept / (kept.sum(-1, keepdims=True) + aside)
    return weights


class Editor:
    """Replaces the weights of one layer by those that a variant makes of its scores."""

    weights: Float[np.ndarray, "head query key"]

    def __init__(self, model: Any, calls: Any, layer: int, kind: str, factor: float, head: int | None) -> None:
        self._sinks = "sink" in model.capabilities["rows_sum_to_one"]
        self._kind, self._factor, self._head = kind, factor, head
        self._visible = visible_pairs(calls, layer)
        self._scores: Any = None

    def hooks(self, model: Any, layer: int) -> tuple[tuple[str, Callable[..., Any]], ...]:
        return (model.hook_name("scores", layer), self._note), (model.hook_name("pattern", layer), self._edit)

    def _note(self, tensor: Any, hook: Any) -> None:
        scores = tensor[0].double().cpu().numpy()
        self._scores = np.where(scores > HIDDEN, scores, -np.inf)

    def _edit(self, tensor: Float[Any, "1 head query key"], hook: Any) -> Any:
        own = tensor[0].double().cpu().numpy()
        sink = None
        if self._sinks:  # the score that explains what the rows lack to one
            total = np.logaddexp.reduce(self._scores, axis=-1, keepdims=True)
            kept = np.clip(own.sum(-1, keepdims=True), 1e-12, 1 - 1e-12)
            sink = total + np.log(1 / kept - 1)
        self.weights = make_weights(self._factor * self._scores, self._visible, self._kind, sink)
        if self._head is not None:  # the other heads stay as they are, also where the block's mask is open
            rest = make_weights(self._scores, self._visible, RESCALED, sink) if self._kind in OPEN else own
            rest[self._head] = self.weights[self._head]
            self.weights = rest
        if self._kind == UNCHANGED:
            return None
        return tensor.new_tensor(self.weights)[None]
