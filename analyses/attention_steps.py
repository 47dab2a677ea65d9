"""What does each step of attention do? The same prompt with a step changed: the scale, the place of the mask, the soft lookup.

The model's real scores are kept, and only what turns them into weights is changed, in all heads, in one layer or in one head:

* scale     q . k times another factor: the larger, the nearer each row comes to a single 1 (saturation: there a softmax has
            hardly any slope, and training would stand still)
* mask      before the softmax (as it is), after it without rescaling the rows, after it with rescaling (the same as before),
            or none (each token then sees the answer)
* lookup    only the best match, as a dictionary would give it, instead of the weighted average

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.

Identity: the mask after the softmax with rescaled rows gives the model's own logits; so does a factor of 1.

Limit: the model was trained with its own scale, mask and softmax. What another choice does to it is a shock, not what a model
trained with that choice would do. A loss without the mask is no achievement: the token to be predicted is in sight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32

from analyses._arrays import check_ids, to_float32
from analyses._attention_edits import LOOKUP, MASKS, OPEN, UNCHANGED, Editor, make_weights
from analyses._head_steps import POINTS, head_steps
from analyses._heads import check_head, check_layer, without_mask
from analyses._readout import row_chunks
from analyses._steps import Cost, Profile, Progress, Steps, drain

MOST_FACTORS = 8


@dataclass(frozen=True, eq=False)
class AttentionSteps:
    """One row per variant; the first is the unchanged model."""

    variants: tuple[str, ...]  # "unchanged", "scale" (see `factor`), "mask after", ..., "hard lookup"
    factor: Float32[np.ndarray, " variant"]  # on the scores, beside the model's own scale; 1 where it is not changed
    own_scale: float | None  # what the model multiplies q . k by, measured; None where its scores cannot be taken apart
    layer: int | None  # None: every layer
    head: int | None  # None: every head
    loss_nats: Float32[np.ndarray, " variant"]  # mean over the prompt; NaN for one token
    largest_logit_change: Float32[np.ndarray, " variant"]  # over all positions and tokens
    row_sum: Float32[np.ndarray, " variant"]  # mean over the changed heads' rows
    largest_weight: Float32[
        np.ndarray, " variant"
    ]  # mean over the changed heads' rows but the first: 1 is a hard choice
    top_ids: Int32[np.ndarray, "variant k"]  # after the prompt
    top_log_probability: Float32[np.ndarray, "variant k"]  # nats
    weights: Float32[np.ndarray, "variant query key"] | None  # of the one head, where one was chosen

    @property
    def scale(self) -> Float32[np.ndarray, " variant"] | None:
        """What q . k is multiplied by in each variant; None where the model's own scale is not known."""
        return None if self.own_scale is None else self.factor * np.float32(self.own_scale)

    def to_frame(self) -> Any:
        """A pandas table, one row per variant: variant, factor, scale, loss_nats, largest_logit_change, row_sum, ..."""
        import pandas as pd

        columns: dict[str, Any] = {"variant": self.variants, "factor": self.factor}
        if self.scale is not None:
            columns["scale"] = self.scale
        for name in ("loss_nats", "largest_logit_change", "row_sum", "largest_weight"):
            columns[name] = getattr(self, name)
        columns["top_id"] = self.top_ids[:, 0]
        columns["top_log_probability_nats"] = self.top_log_probability[:, 0]
        return pd.DataFrame(columns)


def attention_steps_steps(
    model: Any,
    tokens: Any,
    *,
    layer: int | None = None,
    head: int | None = None,
    factors: Sequence[float] | None = None,
    top_k: int = 10,
) -> Steps[AttentionSteps]:
    """The steps of `run_attention_steps`: one forward pass, and one more for each variant."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    _check(config, layer, head, factors, top_k)
    model.require("scores", "pattern_writable", "replay")
    yield Progress(0, 1, note="one forward pass")
    measured = 0 if layer is None else layer
    seen: dict[str, Any] = {}
    names = {point: model.hook_name(point, measured) for point in POINTS}
    with model.hooks(
        *((name, lambda t, hook, point=p: seen.update({point: t})) for p, name in names.items() if model.has_hook(name))
    ):
        calls = model.capture_calls(ids)
    steps, _ = head_steps(model, calls, seen, measured, head or 0)
    own = None if steps is None else steps.scale
    # Without a choice: half, twice, and no scaling at all (a scale of 1).
    given = tuple(factors) if factors is not None else (0.5, 2.0, *(() if own in (None, 1.0) else (1 / own,)))
    plan = [(UNCHANGED, 1.0), *(("scale", float(f)) for f in given), *((m, 1.0) for m in MASKS), (LOOKUP, 1.0)]
    done: list[_Outcome] = []
    for number, (kind, factor) in enumerate(plan):
        yield Progress(number, len(plan), note=kind)
        done.append(_run(model, ids, calls, kind, factor, layer, head, top_k))
    return AttentionSteps(
        variants=tuple(kind for kind, _ in plan),
        factor=np.array([factor for _, factor in plan], dtype=np.float32),
        own_scale=own,
        layer=layer,
        head=head,
        **{
            name: np.array([getattr(outcome, name) for outcome in done], dtype=np.float32)
            for name in ("loss_nats", "largest_logit_change", "row_sum", "largest_weight")
        },
        top_ids=np.stack([outcome.top_ids for outcome in done]),
        top_log_probability=np.stack([outcome.top_log_probability for outcome in done]),
        weights=None if head is None else np.stack([outcome.weights for outcome in done]),
    )


def run_attention_steps(
    model: Any,
    tokens: Any,
    *,
    layer: int | None = None,
    head: int | None = None,
    factors: Sequence[float] | None = None,
    top_k: int = 10,
) -> AttentionSteps:
    """Change one step of attention at a time and see what becomes of the loss and of the answer.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        layer: to change; None for all.
        head: of that layer; None for all.
        factors: on the scores as the softmax gets them (after a soft cap and ALiBi's bias, where there are any), beside the
            model's own scale; None for 0.5, 2 and the one that undoes the scale.
        top_k: how many of the most probable next tokens to list.

    Raises:
        ValueError: a model whose attention cannot be edited, no tokens, too many, or a parameter out of range.
    """
    return drain(attention_steps_steps(model, tokens, layer=layer, head=head, factors=factors, top_k=top_k))


def weights_at_scale(
    raw: Float[np.ndarray, "query key"], scale: float, mask: str = "before", window: int | None = None
) -> Float32[np.ndarray, "query key"]:
    """The rows of one head at any scale, from the raw products of `run_attention(..., layer=, head=)`; for a slider.

    Args:
        raw: q . k of every pair.
        scale: what to multiply it by.
        mask: "before" the softmax, or one of `MASKS`.
        window: tokens that a query sees, its own among them; None for all up to its own.

    Raises:
        ValueError: another mask.
    """
    if mask not in ("before", *MASKS):
        raise ValueError(f"needs the mask before, {', '.join(MASKS)}; found {mask!r}; choose one of them.")
    query, key = np.indices(raw.shape)
    visible = (key <= query) & (query - key < (window or len(raw)))
    scores = scale * raw.astype(np.float64)
    return make_weights(scores if mask in OPEN else np.where(visible, scores, -np.inf), visible, mask, None).astype(
        np.float32
    )


@dataclass(frozen=True, eq=False)
class _Outcome:
    loss_nats: float
    largest_logit_change: float
    row_sum: float
    largest_weight: float
    top_ids: Int32[np.ndarray, " k"]
    top_log_probability: Float32[np.ndarray, " k"]
    weights: Float32[np.ndarray, "query key"] | None


def _run(
    model: Any,
    ids: tuple[int, ...],
    calls: Any,
    kind: str,
    factor: float,
    layer: int | None,
    head: int | None,
    top_k: int,
) -> _Outcome:
    """One variant from the first changed layer to the last."""
    n_layers = model.config.n_layers
    changed = range(n_layers) if layer is None else range(layer, layer + 1)
    opened = without_mask(calls)
    rows = calls.resid[changed[0]]
    sums: list[float] = []
    largest: list[float] = []
    last: list[Float[np.ndarray, "query key"]] = []
    for number in range(changed[0], n_layers):
        if number not in changed:
            rows = model.run_block(number, rows, calls)
            continue
        editor = Editor(model, calls, number, kind, factor, head)
        with model.hooks(*editor.hooks(model, number)):
            rows = model.run_block(number, rows, opened if kind in OPEN else calls)
        weights = editor.weights if head is None else editor.weights[head : head + 1]
        sums.append(float(weights.sum(-1).mean()))
        largest.append(float(weights[:, min(1, len(ids) - 1) :].max(-1).mean()))
        last = [weights[0]]
    measured = (float(np.mean(sums)), float(np.mean(largest)), None if head is None else last[0])
    return _read(model, ids, calls, rows, top_k, measured)


def _read(
    model: Any,
    ids: tuple[int, ...],
    calls: Any,
    resid: Float[Any, "1 pos d_model"],
    top_k: int,
    measured: tuple[float, float, Float[np.ndarray, "query key"] | None],
) -> _Outcome:
    """Loss, distance from the unchanged logits and the answer, a few positions at a time."""
    import torch

    following = torch.tensor([*ids[1:], ids[-1]], device=resid.device)
    losses, largest = [], 0.0
    for rows in row_chunks(model, len(ids), held=3):
        logits = model.readout(resid[0, rows]).float()
        largest = max(largest, float((logits - calls.logits[0, rows]).abs().max()))
        losses.append(logits.logsumexp(-1) - logits.gather(-1, following[rows, None])[:, 0])
    last = to_float32(logits[-1].log_softmax(-1))
    top = np.argsort(-last, kind="stable")[:top_k]
    loss = float(torch.cat(losses)[:-1].mean()) if len(ids) > 1 else float("nan")
    row_sum, largest_weight, weights = measured
    kept = None if weights is None else weights.astype(np.float32)
    return _Outcome(loss, largest, row_sum, largest_weight, top.astype(np.int32), last[top], kept)


def cost_attention_steps(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """A forward pass and the readout of all positions for each variant."""
    factors = params.get("factors")
    n_variants = 2 + len(MASKS) + (3 if factors is None else len(factors))
    once = profile.forward_seconds(n_tokens) + profile.per_readout * n_tokens
    one_head = params.get("head") is not None
    return Cost(
        seconds=once * (1 + n_variants),
        # Weights are made in float64, all heads of a layer at once.
        peak_bytes=profile.forward_bytes(n_tokens, readouts=n_tokens) + 8 * 8 * profile.n_heads * n_tokens**2,
        result_bytes=n_variants * (24 + 8 * params.get("top_k", 10) + 4 * n_tokens**2 * one_head),
    )


def _check(config: Any, layer: int | None, head: int | None, factors: Sequence[float] | None, top_k: int) -> None:
    if head is not None and layer is None:
        raise ValueError(f"needs the layer of the head; found only head {head}; name the layer too.")
    if layer is not None:
        check_layer(config, layer)
        check_head(config, layer, head or 0)
    given = [] if factors is None else list(factors)
    if len(given) > MOST_FACTORS or not all(0 < f <= 1e4 for f in given):
        raise ValueError(f"needs at most {MOST_FACTORS} factors above 0 and up to 10,000; found {given}; change them.")
    if not 1 <= top_k <= config.d_vocab:
        raise ValueError(f"needs a top-k from 1 to {config.d_vocab:,}; found {top_k:,}; choose how many to list.")
