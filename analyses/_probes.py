"""The measurements behind analyses/capabilities.py: what is reported, what differs, which edits reach the logits."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int

from analyses._device import kl_nats
from analyses.model import HookedModel

READ = (
    "resid_pre",
    "resid_mid",
    "resid_post",
    "attn_out",
    "mlp_out",
    "scores",
    "pattern",
    "head_output",
    "rotated_query",
    "rotated_key",
)
# What a probe may raise on a family that lacks the thing; anything else (Cancelled, MemoryError) ends the load.
REFUSALS = (NotImplementedError, RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError)

Seen = Mapping[str, Sequence[Any]]  # point -> one tensor per layer, None where nothing was reported


SINKS = "attention sinks: each head may give part of its attention to a learned sink that is no token"


@dataclass(frozen=True)
class Limits:
    """Tolerances of one number format (docs/architecture.md)."""

    logits: float  # float32: largest difference; half formats: KL divergence in nats
    rows: float  # of the sum of an attention row
    parts: float  # of a sum of addends, relative to the largest value in it


FLOAT32 = Limits(logits=1e-3, rows=1e-5, parts=1e-5)
HALF = Limits(logits=5e-3, rows=0.01, parts=0.02)  # bfloat16 keeps 8 bits: 0.4 % at each of a few additions


@dataclass(frozen=True)
class Finding:
    """A measured figure and what follows from it."""

    value: float | None  # None: it could not be measured
    limit: float
    reason: str  # "" when all is well


def read(model: HookedModel, ids: Int[Any, "1 pos"]) -> tuple[Seen, Float[Any, "1 pos d_vocab"]]:
    """What every point of every layer reports in one forward pass, and its logits."""
    seen: dict[str, list[Any]] = {point: [None] * model.config.n_layers for point in READ}

    def reader(point: str, layer: int) -> Callable[..., None]:
        def note(tensor: Any, hook: Any) -> None:
            seen[point][layer] = tensor

        return note

    places = [(point, layer) for point in READ for layer in range(model.config.n_layers)]
    pairs = [(model.hook_name(p, i), reader(p, i)) for p, i in places if model.has_hook(model.hook_name(p, i))]
    with model.hooks(*pairs):
        logits = model.forward(ids)
    return seen, logits


def tried(measure: Callable[[], Finding]) -> Finding:
    """The measurement, or the reason why it could not be made."""
    try:
        return measure()
    except REFUSALS as error:
        detail = str(error).splitlines()[0][:120] if str(error) else "no message"
        return Finding(None, float("nan"), f"trying it failed: {type(error).__name__}: {detail}")


def gap(expected: Float[Any, "*pos d_vocab"], found: Float[Any, "*pos d_vocab"], limits: Limits) -> Finding:
    """Difference between two sets of logits, in the measure that suits the number format."""
    exact = limits is FLOAT32
    value = float((expected - found).abs().max()) if exact else kl_nats(expected, found)
    unit = "the logits differ by up to" if exact else "the predictions differ by up to (nats)"
    # Written so that "not a number" is a failure.
    return Finding(
        value, limits.logits, "" if value <= limits.logits else f"{unit} {value:.2g}, limit {limits.logits:g}"
    )


def replay_gap(model: HookedModel, ids: Int[Any, "1 pos"], limits: Limits) -> Finding:
    """Two copies of the text at once, from the embedding to the last layer: a batch is what replay is for."""
    calls = model.capture_calls(ids)
    streams = calls.resid[0].expand(2, -1, -1)
    for layer in range(model.config.n_layers):
        streams = model.run_block(layer, streams, calls)
    return gap(calls.logits.expand(2, -1, -1), model.readout(streams), limits)


def cache_gap(
    model: HookedModel, ids: Int[Any, "1 pos"], logits: Float[Any, "1 pos d_vocab"], limits: Limits
) -> Finding:
    """All but two tokens at once, then these one by one. Logits, not tokens: tokens can agree by luck."""
    import torch

    first, cache = model.extend(ids[:, :-2], last_only=False)
    second, cache = model.extend(ids[:, -2:-1], cache)
    third, cache = model.extend(ids[:, -1:], cache)
    return gap(logits, torch.cat([first, second, third], dim=1), limits)


def row_gap(seen: Seen, limits: Limits) -> Finding:
    """How far attention rows are from one. Less than one, but in the proportions of the softmax, means a sink."""
    sums = [pattern.float().sum(-1) for pattern in seen["pattern"]]
    value = _worst((s - 1).abs().max() for s in sums)
    if value <= limits.rows:
        return Finding(value, limits.rows, "")
    below = all(float(s.max()) <= 1 + limits.rows for s in sums)
    sinks = below and not softmax_gap(seen, limits).reason
    return Finding(value, limits.rows, SINKS if sinks else f"rows of attention maps are off one by up to {value:.2g}")


def softmax_gap(seen: Seen, limits: Limits) -> Finding:
    """Are the scores what the softmax turns into the map? Rows are rescaled first: a sink takes its share of them."""
    maps = zip(seen["scores"], seen["pattern"], strict=True)
    rescaled = ((scores.float().softmax(-1), p.float() / p.float().sum(-1, keepdim=True)) for scores, p in maps)
    value = _worst((a - b).abs().max() for a, b in rescaled)
    # Ten times the rounding of a row: the two are rounded apart from each other.
    limit = 10 * limits.rows
    return Finding(value, limit, "" if value <= limit else "what is reported as scores is already the attention map")


def sum_gap(seen: Seen, limits: Limits, total: str, parts: tuple[str, ...]) -> Finding:
    """Is the stream the plain sum of the parts, in every layer?"""
    differences = []
    for layer, stream in enumerate(seen[total]):
        added = sum(seen[part][layer].float() for part in parts)
        differences.append((stream.float() - added).abs().max() / stream.float().abs().max())
    value = _worst(differences)
    reason = f"{' + '.join(parts)} is not {total} here (off by {value:.2g} of the largest value)"
    return Finding(value, limits.parts, "" if value <= limits.parts else reason)


def _worst(values: Iterable[Any]) -> float:
    """The largest of several numbers in tensors; not a number if one of them is (Python's max would hide it)."""
    import torch

    return float(torch.stack([v.float().cpu() for v in values]).max())


def _another(tensor: Float[Any, "batch pos *rest"]) -> Float[Any, "batch pos *rest"]:
    """Another tensor of the same size: positions reversed, doubled, shifted. No model is blind to all three."""
    return 2 * tensor.flip(1) + 1


def _uniform(pattern: Float[Any, "batch head query key"]) -> Float[Any, "batch head query key"]:
    """Every query looks at all keys up to its own alike."""
    import torch

    ones = torch.ones_like(pattern).tril()
    return ones / ones.sum(-1, keepdim=True)


EDITS: Mapping[str, Callable[[Any], Any]] = {
    "resid_pre": _another,
    "resid_mid": _another,
    "attn_out": _another,
    "mlp_out": _another,
    "head_output": _another,
    "pattern": _uniform,
}


def effects(model: HookedModel, ids: Int[Any, "1 pos"]) -> dict[str, Finding]:
    """For every kind of edit: does it reach the logits? All in one batch; one by one where something refuses."""
    try:
        return _effects_of(model, ids, tuple(EDITS))
    except REFUSALS:
        return {point: tried(lambda p=point: _effects_of(model, ids, (p,))[p]) for point in EDITS}


def _effects_of(model: HookedModel, ids: Int[Any, "1 pos"], points: tuple[str, ...]) -> dict[str, Finding]:
    """Rows of one batch: two untouched, then one for each point and tried layer, edited there and nowhere else.

    The difference between the two untouched rows is the noise that an effect must exceed tenfold.
    """
    layers = sorted({0, model.config.n_layers // 2, model.config.n_layers - 1})

    def editor(row: int, edit: Callable[[Any], Any]) -> Callable[..., Any]:
        def change(tensor: Any, hook: Any) -> Any:
            changed = tensor.clone()
            changed[row] = edit(tensor[row : row + 1])[0]
            return changed

        return change

    places = [(point, layer) for point in points for layer in layers if model.has_hook(model.hook_name(point, layer))]
    pairs = [(model.hook_name(p, i), editor(2 + row, EDITS[p])) for row, (p, i) in enumerate(places)]
    with model.hooks(*pairs), warnings.catch_warnings():
        # The bridge warns where an edit is discarded; finding that out is the purpose here.
        warnings.filterwarnings("ignore", message="A hook on .* returned a modified tensor")
        logits = model.forward(ids.expand(2 + len(places), -1), last_only=True)[:, 0].float()
    noise = 10 * float((logits[1] - logits[0]).abs().max()) + 1e-6 * float(logits[0].abs().max())
    moves = {place: float((row - logits[0]).abs().max()) for place, row in zip(places, logits[2:], strict=True)}
    return {point: _effect({i: move for (p, i), move in moves.items() if p == point}, noise) for point in points}


def _effect(moves: Mapping[int, float], noise: float) -> Finding:
    """What follows from how far the edits of one point moved the logits, by layer."""
    ignored = [layer for layer, move in moves.items() if not move > noise]
    if not moves:
        return Finding(None, noise, "there is nothing to change")
    reason = f"a change is ignored: it does not reach the logits (tried in layers {', '.join(map(str, ignored))})"
    return Finding(min(moves.values()), noise, reason if ignored else "")
