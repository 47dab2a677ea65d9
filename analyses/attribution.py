"""Who wrote the answer? One logit, or the difference of two, split over everything that was added to the stream.

The stream after the last block is a sum: the embedding, and what every attention and every MLP added. The final norm
divides it by one number; with that number held at its value in this run, norm and unembedding are linear, and the logit
is the sum of what each part gives alone. Attention is split further, into its heads ("direct logit attribution";
Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; nostalgebraist 2020, "interpreting GPT: the
logit lens").

A part's own biases count with it: an MLP's, and those of queries, keys and values with the heads. Where a family norms
what a sublayer writes (Gemma 2, OLMo 2), that norm is held too.

Identity: embedding + all heads + all MLPs + bias = logit, and each attention = its heads + its own bias.

Limit: only direct effects. What a part does through later layers, by being read there, is not seen, and holding the norm hides
that each part also rescales the others. One token's logit has no zero point, because only differences of logits change
probabilities: compare it with a second token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._arrays import check_ids
from analyses._decompose import BEFORE_TRANSFORM, HeadShares, freeze, split_heads
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._targets import token_id


@dataclass(frozen=True, eq=False)
class Attribution:
    """What each part of the stream at one position gives to a token's logit (minus another's), in logits."""

    position: int  # from zero: the token after this one is predicted
    target_id: int
    distractor_id: int | None
    embedding: float  # the stream at depth 0: token, and position where a family adds one
    attention: Float32[np.ndarray, " layer"]  # all that attention writes: its heads and its own bias
    mlp: Float32[np.ndarray, " layer"]
    head: Float32[np.ndarray, "layer head"] | None  # None where a family's attention cannot be split
    heads_reason: str  # "" or why not
    attention_bias: Float32[np.ndarray, " layer"]  # what attention writes beside its heads; 0 where it cannot be split
    bias: float  # all of attention_bias, the final norm's bias and the unembedding's
    logit: float  # the target's (minus the distractor's) as the unembedding gives it, its bias included
    model_logit: float  # as the model returns it: after a softcap or scale, which some families have
    error: float  # how far the sum of the parts is from `logit`

    @property
    def output_bias(self) -> float:
        """The final norm's bias and the unembedding's: what is left to add when attentions are not split."""
        return self.bias - float(self.attention_bias.sum(dtype=np.float64))

    def to_frame(self) -> Any:
        """A pandas table, one row per part: part, kind, layer, head, contribution_logits.

        Rows of the kinds embedding, head, mlp and bias sum to the logit. Those of the kind attention are sums of heads and
        attention_bias, which is also within bias; where there are no heads, they take the heads' place.
        """
        import pandas as pd

        rows: list[tuple[str, str, int | None, int | None, float]] = [
            ("embedding", "embedding", None, None, self.embedding)
        ]
        for layer, (attention, mlp) in enumerate(zip(self.attention, self.mlp, strict=True)):
            rows.append((f"L{layer} attention", "attention", layer, None, attention))
            if self.head is not None:
                rows += [(f"L{layer}H{h}", "head", layer, h, value) for h, value in enumerate(self.head[layer])]
                rows.append((f"L{layer} attention bias", "attention_bias", layer, None, self.attention_bias[layer]))
            rows.append((f"L{layer} MLP", "mlp", layer, None, mlp))
        rows.append(("bias", "bias", None, None, self.bias))
        frame = pd.DataFrame(rows, columns=["part", "kind", "layer", "head", "contribution_logits"])
        return frame.astype({"layer": "Int64", "head": "Int64", "contribution_logits": "float64"})


def attribution_steps(
    model: Any,
    tokens: Any,
    *,
    target: int | str | None = None,
    distractor: int | str | None = None,
    position: int = -1,
) -> Steps[Attribution]:
    """The steps of `run_attribution`: one forward pass, then the heads of every layer."""
    ids = check_ids(tokens, d_vocab=model.config.d_vocab, n_ctx=model.config.n_ctx)
    model.require("attn_out", "mlp_out", "readout")
    if not -len(ids) <= position < len(ids):
        raise ValueError(f"needs a position from 0 to {len(ids) - 1}; found {position}; choose a token of the prompt.")
    position %= len(ids)
    target = None if target is None else token_id(model, target)
    distractor = None if distractor is None else token_id(model, distractor, "distractor")
    if target is not None:
        _check_two(target, distractor)
    yield Progress(0, 2, note="one forward pass")
    rows = _read(model, ids[: position + 1])
    if target is None:
        target = int(rows["logits"].argmax())
        _check_two(target, distractor)
    yield Progress(1, 2, note="splitting the logit")
    return _split(model, rows, position, target, distractor)


def run_attribution(
    model: Any,
    tokens: Any,
    *,
    target: int | str | None = None,
    distractor: int | str | None = None,
    position: int = -1,
) -> Attribution:
    """Which part of the model gave how much to a token's logit at one position.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        target: an id, or a text that is one token; None takes the model's own answer.
        distractor: a second token, whose logit is taken off: then only what tells the two apart counts.
        position: of the last token that is read; negative ones count from the end.

    Raises:
        ValueError: no tokens, too many, text instead of ids, a position or token that is not there, target and
            distractor the same, or a model whose sublayers' writes cannot be read.
    """
    return drain(attribution_steps(model, tokens, target=target, distractor=distractor, position=position))


def cost_attribution(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass of the tokens up to the position, read out once; each head through its output matrix alone."""
    position = params.get("position", -1)
    n_read = min(max(position + 1 if position >= 0 else n_tokens + position + 1, 1), max(n_tokens, 1))
    n_rows = profile.n_heads + 2  # per layer, through one matrix of the about seven to twelve that a block has
    held = profile.n_layers * 3 * profile.d_model + 6 * n_rows * profile.d_model
    # Small steps between the layers add up: a sixth of the fixed part of a forward pass (SmolLM2: 0.04 s).
    splitting = profile.base / 6 + profile.per_token * n_rows / 6
    return Cost(
        seconds=profile.forward_seconds(n_read) + profile.per_readout + splitting,
        peak_bytes=profile.forward_bytes(n_read) + 8 * held,
        result_bytes=4 * profile.n_layers * (profile.n_heads + 3) + 100,
    )


def _check_two(target: int, distractor: int | None) -> None:
    if target == distractor:
        raise ValueError(f"needs two different tokens; found {target} as target and distractor; change one of them.")


def _read(model: Any, ids: tuple[int, ...]) -> dict[str, Float[Any, "..."]]:
    """What was added to the stream at the last of these positions, and the stream's two ends; no other position is kept."""
    found: dict[str, Any] = {}

    def keep(name: str) -> Any:
        def note(tensor: Any, hook: Any) -> None:
            found[name] = tensor[0, -1].clone()  # a view would keep every position alive

        return note

    last = model.config.n_layers - 1
    points = ("attn_out", "mlp_out", *(() if model.capabilities["head_output"] else ("head_output",)))
    places = {f"{point} {i}": model.hook_name(point, i) for point in points for i in range(last + 1)}
    places |= {"start": model.hook_name("resid_pre", 0), "end": model.hook_name("resid_post", last)}
    places["unembedded"] = BEFORE_TRANSFORM
    with model.hooks(*((place, keep(name)) for name, place in places.items())):
        found["logits"] = model.forward(ids, last_only=True)[0, -1]
    return found


def _split(model: Any, rows: Mapping[str, Any], position: int, target: int, distractor: int | None) -> Attribution:
    """The logit of the target (minus the distractor's) as a sum over the parts that were read."""
    import torch

    parts, n_layers = model.linear_parts(), model.config.n_layers
    final = freeze(parts.final_norm, rows["end"])
    after, output_bias = parts.unembedding(target)
    if distractor is not None:
        other, other_bias = parts.unembedding(distractor)
        after, output_bias = after - other, output_bias - other_bias
    output_bias += float(final.bias @ after)
    direction = final.pull_back(after)

    def along(point: str) -> Any:
        written = torch.stack([rows[f"{point} {layer}"] for layer in range(n_layers)])
        return (written.cpu().double() @ direction).numpy()

    embedding = float(rows["start"].cpu().double() @ direction)
    attention, mlp = along("attn_out"), along("mlp_out")
    head, attention_bias, reason = _heads(model, parts, rows, direction)
    by_attention = attention.sum() if head is None else head.sum() + attention_bias.sum()
    logit = _of(rows["unembedded"], target, distractor)
    return Attribution(
        position=position,
        target_id=target,
        distractor_id=distractor,
        embedding=embedding,
        attention=attention.astype(np.float32),
        mlp=mlp.astype(np.float32),
        head=None if head is None else head.astype(np.float32),
        heads_reason=reason,
        attention_bias=attention_bias.astype(np.float32),
        bias=float(attention_bias.sum() + output_bias),
        logit=logit,
        model_logit=_of(rows["logits"], target, distractor),
        error=abs(float(embedding + by_attention + mlp.sum() + output_bias) - logit),
    )


def _heads(model: Any, parts: Any, rows: Mapping[str, Any], direction: Any) -> tuple[Any, Any, str]:
    """Shares [layer, head], those of attention beside its heads [layer], and ""; or None, zeros, and why not."""
    n_layers = model.config.n_layers
    none = np.zeros(n_layers)
    if reason := model.capabilities["head_output"]:
        return None, none, reason
    shares = []
    for layer in range(n_layers):
        model.check()
        share = split_heads(parts, layer, rows[f"head_output {layer}"], rows[f"attn_out {layer}"], direction)
        if not isinstance(share, HeadShares):
            return None, none, share
        shares.append(share)
    return np.stack([s.head.numpy() for s in shares]), np.array([s.bias for s in shares]), ""


def _of(logits: Float[Any, " d_vocab"], target: int, distractor: int | None) -> float:
    return float(logits[target]) - (0.0 if distractor is None else float(logits[distractor]))
