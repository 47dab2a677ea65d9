"""Does attention know the order of the tokens? By itself it does not: order comes from the mask and from positions.

Two experiments on one layer's attention, f, with the model's own weights and the prompt's own stream x:

* permutation   shuffle the rows of x by P. Without positions and without the mask f(P x) = P f(x): the outputs are only shuffled
                along. With either, they are not.
* distance      in models that rotate queries and keys (RoPE), the score of a pair depends on the distance between the two tokens
                only: moved together by k positions, all scores stay; with the key alone moved by one, they change
                (Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding").

"Attention is permutation-equivariant" therefore needs the words: without mask and positions (Vaswani et al. 2017, "Attention
Is All You Need", section 3.5, adds positions for that reason).

Identity: max |f(P x) - P f(x)| without both is rounding; so is every difference of scores after a common shift.

Limit: one layer's attention. The order reaches later layers through the stream too: a model with a mask and no positions can tell
order. Where positions are added to the embedding (GPT-2), they are in x and are shuffled with it, so the row "without positions"
cannot be shown.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32

from analyses._arrays import check_ids, to_float32
from analyses._heads import check_head, visible_pairs, without_mask
from analyses._steps import Cost, Profile, Progress, Steps, drain

SHIFTS = (10, 100, 1000)
MOST_SHIFTS = 6


@dataclass(frozen=True, eq=False)
class AttentionPosition:
    """Figures of one layer; scores are those of one head."""

    layer: int
    head: int
    permutation: Int32[np.ndarray, " pos"]
    # max |f(P x) - P f(x)|: rows without and with positions, columns without and with the mask; NaN where it cannot be shown
    permutation_gap: Float32[np.ndarray, "positions mask"]
    output_size: float  # largest |f(x)|, to judge the gaps by
    permutation_reason: str  # why some of them are NaN
    query: int | None  # position of the pair that is followed; None where the second experiment cannot be made
    key: int | None
    score: float | None  # of the pair in the prompt, before the softmax, scaled
    shifts: tuple[int, ...]
    shifted_score: Float32[np.ndarray, " shift"]  # of the same two vectors, both moved by each shift
    shifted_gap: Float32[np.ndarray, " shift"]  # largest difference over all pairs and heads of the layer
    moved_key_score: float | None  # of the pair with the key alone one position later
    distance_reason: str  # why the second experiment cannot be made

    def to_frame(self) -> Any:
        """A pandas table, one row per figure: experiment, positions, mask, shift, value."""
        import pandas as pd

        rows = [
            ("max |f(Px) - Pf(x)|", bool(p), bool(m), 0, float(self.permutation_gap[p, m]))
            for p in (0, 1)
            for m in (0, 1)
        ]
        if self.score is not None:
            shifted = zip(self.shifts, self.shifted_score.tolist(), strict=True)
            rows += [("score", True, True, 0, self.score), *(("score", True, True, k, value) for k, value in shifted)]
            rows.append(("score, key alone moved by one", True, True, 1, self.moved_key_score))
        return pd.DataFrame(rows, columns=["figure", "positions", "mask", "shift", "value"])


def attention_position_steps(
    model: Any,
    tokens: Any,
    *,
    layer: int = 0,
    head: int = 0,
    query: int = -1,
    key: int = 0,
    shifts: Sequence[int] | None = None,
    seed: int = 0,
) -> Steps[AttentionPosition]:
    """The steps of `run_attention_position`: one forward pass, and one longer one for each shift."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx, at_least=3)
    check_head(config, layer, head)
    n = len(ids)
    query, key = (position % n if -n <= position < n else position for position in (query, key))
    if not 0 <= key < query - 1 < n - 1:
        raise ValueError(
            f"needs a key two or more tokens before its query, both of the {n} tokens; found {key} and {query}; change one."
        )
    moves = _shifts(shifts, config.n_ctx - n)
    model.require("replay", "attn_out")
    yield Progress(0, 1 + len(moves), note="the prompt, shuffled")
    calls = model.capture_calls(ids)
    gaps, size, order, reason = _permute(model, calls, layer, seed)
    why = _no_distance(model, calls, layer, query, key)
    moved: list[tuple[float, float]] = []
    score = moved_key = None
    if not why:
        base = _scores(model, calls, layer, calls.resid[layer])
        score = float(base[head, query, key])
        stream = calls.resid[layer].clone()
        stream[:, key + 1] = calls.resid[layer][:, key]
        moved_key = float(_scores(model, calls, layer, stream)[head, query, key + 1])
        for done, shift in enumerate(moves):
            yield Progress(1 + done, 1 + len(moves), note=f"the prompt, moved by {shift}")
            moved.append(_shifted(model, ids, calls, layer, base, shift, (head, query, key)))
    return AttentionPosition(
        layer=layer,
        head=head,
        permutation=order,
        permutation_gap=gaps,
        output_size=size,
        permutation_reason=reason,
        query=None if why else query,
        key=None if why else key,
        score=score,
        shifts=() if why else moves,
        shifted_score=np.array([value for value, _ in moved], dtype=np.float32),
        shifted_gap=np.array([gap for _, gap in moved], dtype=np.float32),
        moved_key_score=moved_key,
        distance_reason=why,
    )


def run_attention_position(
    model: Any,
    tokens: Any,
    *,
    layer: int = 0,
    head: int = 0,
    query: int = -1,
    key: int = 0,
    shifts: Sequence[int] | None = None,
    seed: int = 0,
) -> AttentionPosition:
    """Shuffle a prompt's rows, and move a pair of tokens along the context.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`; three at least.
        layer: whose attention is tried.
        head: whose scores are shown.
        query: position of the token that looks; negative ones count from the end.
        key: position of the token looked at, two or more before `query`.
        shifts: positions to move both by; None for 10, 100 and 1000 as far as the context goes.
        seed: of the permutation.

    Raises:
        ValueError: a model whose blocks cannot be run alone, too few tokens, too many, or a parameter out of range.
    """
    named = dict(layer=layer, head=head, query=query, key=key, shifts=shifts, seed=seed)
    return drain(attention_position_steps(model, tokens, **named))


def cost_attention_position(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass of the prompt, and one of each longer text."""
    given = params.get("shifts")
    longer = [n_tokens + shift for shift in _shifts(given, profile.n_ctx - n_tokens)]
    most = max([n_tokens, *longer])
    return Cost(
        seconds=sum(profile.forward_seconds(n) + profile.per_readout * n for n in [n_tokens, *longer]),
        peak_bytes=2 * profile.forward_bytes(most, readouts=most),
        result_bytes=256 + 4 * n_tokens,
    )


def _shifts(given: Sequence[int] | None, room: int) -> tuple[int, ...]:
    if given is None:
        return tuple(shift for shift in SHIFTS if shift <= room)
    if len(given) > MOST_SHIFTS or not all(1 <= shift <= room for shift in given):
        raise ValueError(
            f"needs at most {MOST_SHIFTS} shifts from 1 to {max(room, 0):,} (what the context leaves); found {list(given)}; "
            "choose smaller ones."
        )
    return tuple(int(shift) for shift in given)


def _no_distance(model: Any, calls: Any, layer: int, query: int, key: int) -> str:
    """Why the second experiment cannot be made here, or ""."""
    if model.config.positions != "rotary":
        return f"positions are {model.config.positions} in this model, not rotary"
    if not visible_pairs(calls, layer)[query, key]:
        return "the window of this layer hides that key from the query"
    return model.capabilities["scores"]


def _permute(
    model: Any, calls: Any, layer: int, seed: int
) -> tuple[Float32[np.ndarray, "positions mask"], float, Int32[np.ndarray, " pos"], str]:
    """The four gaps, the size of the output, the permutation, and why some gaps are missing."""
    n = calls.logits.shape[1]
    order = list(range(n))
    draw = random.Random(seed)
    while order == sorted(order):
        draw.shuffle(order)
    reasons = [] if model.config.positions in ("rotary", "alibi") else ["positions are in the stream and move with it"]
    gaps = np.full((2, 2), np.nan, dtype=np.float32)
    x = calls.resid[layer]
    masked = _attention(model, calls, layer, x)
    opens = bool((_attention(model, without_mask(calls), layer, x) - masked).abs().max() > 0)
    if not opens:  # GPT-Neo has a mask of its own inside attention
        reasons.append("the mask is inside attention and cannot be taken off")
    for positions in range(len(reasons) - (not opens), 2):
        for mask in range(0 if opens else 1, 2):
            changed = calls if positions else without_positions(calls)
            changed = changed if mask else without_mask(changed)
            plain, shuffled = (_attention(model, changed, layer, rows) for rows in (x, x[:, order]))
            gaps[positions, mask] = float((shuffled - plain[:, order]).abs().max())
    return gaps, float(masked.abs().max()), np.array(order, dtype=np.int32), "; ".join(reasons)


def without_positions(calls: Any) -> Any:
    """The captured calls with every token at position 0: rotation by nothing, and no bias of ALiBi's."""

    def level(name: str, value: Any) -> Any:
        if name == "position_embeddings":
            return tuple(table[:, :1].expand_as(table) for table in value)
        if name in ("position_ids", "alibi") and value is not None:
            return value.new_zeros(value.shape)
        return value

    named = ((tail, {name: level(name, value) for name, value in rest.items()}) for tail, rest in calls.arguments)
    return replace(calls, arguments=tuple(named))


def _attention(model: Any, calls: Any, layer: int, rows: Float[Any, "1 pos d_model"]) -> Float[Any, "1 pos d_model"]:
    """What attention adds to each row of a stream."""
    found: dict[str, Any] = {}
    with model.hooks((model.hook_name("attn_out", layer), lambda tensor, hook: found.update(added=tensor))):
        model.run_block(layer, rows, calls)
    return found["added"]


def _scores(
    model: Any, calls: Any, layer: int, rows: Float[Any, "1 pos d_model"]
) -> Float32[np.ndarray, "head query key"]:
    """Scaled, masked scores of all heads of a layer."""
    found: dict[str, Any] = {}
    with model.hooks((model.hook_name("scores", layer), lambda tensor, hook: found.update(scores=tensor))):
        model.run_block(layer, rows, calls)
    return to_float32(found["scores"][0])


def _shifted(
    model: Any, ids: tuple[int, ...], calls: Any, layer: int, base: Any, shift: int, pair: tuple[int, int, int]
) -> tuple[float, float]:
    """The pair's score `shift` positions later, and the largest difference over all visible pairs and heads."""
    import torch

    # Any text of the right length will do in front: only its masks and rotary tables are used.
    longer = model.capture_calls((ids * (1 + shift // len(ids)))[:shift] + ids)
    x = calls.resid[layer]
    moved = _scores(model, longer, layer, torch.cat([longer.resid[layer][:, :shift], x], dim=1))[:, shift:, shift:]
    seen = visible_pairs(calls, layer)
    head, query, key = pair
    return float(moved[head, query, key]), float(np.abs(moved - base)[:, seen].max())
