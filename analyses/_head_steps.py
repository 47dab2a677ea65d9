"""The four steps of one head with its real numbers: scores, scaled, masked, softmax; and how far they are from the model's map.

Nothing is taken from a formula that can be measured. The factor on the scores is fitted to what the model reports (Granite's
is 1 instead of one over the root of the head's width), and so are a soft cap (Gemma 2) and ALiBi's slope (Bloom).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._heads import HIDDEN, without_mask

MOST_PAIRS = 4096  # two unknowns: more would only cost time
POINTS = ("scores", "pattern", "rotated_query", "rotated_key", "query", "key", "value")


@dataclass(frozen=True, eq=False)
class HeadSteps:
    """Steps of one head; raw, scaled and masked are float32 [query, key]."""

    raw: Float32[np.ndarray, "query key"]
    scaled: Float32[np.ndarray, "query key"]
    masked: Float32[np.ndarray, "query key"]  # minus infinity where a query must not look
    softmax: Float32[np.ndarray, "query key"]
    scale: float
    softcap: float | None
    slope: float  # added to the scaled scores per key position (ALiBi); 0 elsewhere


def head_steps(model: Any, calls: Any, seen: Mapping[str, Any], layer: int, head: int) -> tuple[HeadSteps | None, str]:
    """The steps of a head, or None and the reason.

    Args:
        model: a HookedModel.
        calls: of `capture_calls` for the prompt.
        seen: what the points `POINTS` of this layer reported in the same pass, as far as they fired.
        layer: of the head.
        head: in the layer.
    """
    if reason := model.capabilities["scores"]:
        return None, reason
    scores = _array(seen["scores"])
    visible = scores > HIDDEN
    if not model.capabilities["rotary"]:
        raw = _products(seen["rotated_query"], seen["rotated_key"])
        scale, softcap, slope = *_fit(raw[visible], scores[visible]), 0.0
    elif model.config.positions == "learned":
        raw = _products(seen["query"], seen["key"])
        scale, softcap, slope = *_fit(raw[visible], scores[visible]), 0.0
    elif reason := model.capabilities["replay"]:
        return None, reason
    else:
        # Rotation happens inside one step here. At equal positions it cancels, so the diagonal gives the factor,
        # and the scores without the mask, divided by it, give the products.
        scale, slope = _on_the_diagonal(_products(seen["query"], seen["key"]), scores, head)
        softcap = None
        raw = (unmasked_scores(model, calls, layer) - slope * np.arange(scores.shape[-1])) / scale
    raw, visible = raw[head], visible[head]
    scaled = scale * raw if softcap is None else softcap * np.tanh(scale * raw / softcap)
    masked = np.where(visible, scaled + slope * np.arange(raw.shape[-1]), -np.inf)
    softmax = softmax_with_sink(masked, _sink(scores[head], _array(seen["pattern"])[head]))
    parts = (part.astype(np.float32) for part in (raw, scaled, masked, softmax))
    return HeadSteps(*parts, scale=scale, softcap=softcap, slope=slope), ""


def unmasked_scores(model: Any, calls: Any, layer: int) -> Float[np.ndarray, "head query key"]:
    """Scores of all pairs, as if no mask were there: the block runs once more with its mask opened."""
    found: dict[str, Any] = {}
    with model.hooks((model.hook_name("scores", layer), lambda tensor, hook: found.update(scores=tensor))):
        model.run_block(layer, calls.resid[layer], without_mask(calls))
    return _array(found["scores"])


def softmax_with_sink(
    masked: Float[np.ndarray, "... query key"], sink: Any = None
) -> Float[np.ndarray, "... query key"]:
    """Softmax of each row in float64; a sink (a score, or one per row) takes part and is then dropped."""
    top = np.maximum(masked.max(-1, keepdims=True), -np.inf if sink is None else sink)
    weights = np.exp(masked - top)
    return weights / (weights.sum(-1, keepdims=True) + (0.0 if sink is None else np.exp(sink - top)))


def _sink(scores: Float[np.ndarray, "query key"], pattern: Float[np.ndarray, "query key"]) -> float | None:
    """The score of the sink that explains how much the rows lack to one: the same in every row; None where none lacks."""
    kept = pattern.sum(-1)
    rows = (kept > 0.01) & (kept < 0.99)  # where both shares have digits
    if kept.min() > 1 - 1e-3 or not rows.any():
        return None
    seen = np.where(scores > HIDDEN, scores, -np.inf)[rows]
    top = seen.max(-1)
    total = top + np.log(np.exp(seen - top[:, None]).sum(-1))
    return float(np.median(total + np.log(1 / kept[rows] - 1)))


def _fit(raw: Float[np.ndarray, " pair"], scores: Float[np.ndarray, " pair"]) -> tuple[float, float | None]:
    """Factor and soft cap c (None without one) with scores = c * tanh(factor * raw / c)."""
    apart = slice(None, None, max(1, len(raw) // MOST_PAIRS))
    raw, scores = raw[apart], scores[apart]

    def fit(cap: float) -> tuple[float, float]:
        bent = scores if cap == np.inf else cap * np.arctanh(np.clip(scores / cap, -1 + 1e-7, 1 - 1e-7))
        factor = float(raw @ bent / (raw @ raw))
        again = factor * raw if cap == np.inf else cap * np.tanh(factor * raw / cap)
        return float(np.abs(again - scores).max()), factor

    size = float(np.abs(scores).max())
    error, factor = fit(np.inf)
    if error <= 1e-6 * size or size == 0:
        return factor, None
    low, high = size, 1e3 * size
    cap = low
    for _ in range(12):  # each pass narrows the range of the cap to a sixteenth, in logarithms
        caps = np.geomspace(low, high, 33)
        best = int(np.argmin([fit(c)[0] for c in caps]))
        cap, low, high = float(caps[best]), float(caps[max(best - 1, 0)]), float(caps[min(best + 1, 32)])
    bent_error, bent_factor = fit(cap)
    return (bent_factor, cap) if bent_error < 0.1 * error else (factor, None)


def _on_the_diagonal(
    raw: Float[np.ndarray, "head query key"], scores: Float[np.ndarray, "head query key"], head: int
) -> tuple[float, float]:
    """Factor of the layer and slope of the head in scores = factor * raw + slope * position, on the diagonal."""
    n_heads, n = scores.shape[:2]
    products, found = (np.diagonal(x, axis1=1, axis2=2).ravel() for x in (raw, scores))
    columns = np.zeros((n_heads * n, 1 + n_heads))
    columns[:, 0] = products
    columns[np.arange(n_heads * n), 1 + np.arange(n_heads * n) // n] = np.tile(np.arange(n), n_heads)
    solved = np.linalg.lstsq(columns, found, rcond=None)[0]
    slope = float(solved[1 + head])
    return float(solved[0]), slope if abs(slope) > 1e-5 * max(1.0, float(np.abs(found).max())) else 0.0


def _products(query: Any, key: Any) -> Float[np.ndarray, "head query key"]:
    """Products q . k of every pair, in float64, with keys repeated for the heads that share them."""
    q, k = _array(query).swapaxes(0, 1), _array(key).swapaxes(0, 1)
    return q @ np.repeat(k, len(q) // len(k), axis=0).swapaxes(1, 2)


def _array(tensor: Any) -> Float[np.ndarray, "..."]:
    """The first row of a batch, in float64: the steps are compared with the model's own numbers."""
    return tensor[0].detach().double().cpu().numpy()
