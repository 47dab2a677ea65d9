"""What do two groups of texts differ in, as a direction of the stream? How a steering vector is made.

Every text is run once (those of one length together) and its stream is read at all depths: the mean over positions from 1
("mean") or the last position ("last"). "difference" is the mean of the first group minus the mean of the second (Rimsky et al.
2023, "Steering Llama 2 via Contrastive Activation Addition"; with one pair: Turner et al. 2023, "Activation Addition").
"principal" is the first right singular vector of the paired differences, not centred, with the sign that most pairs have (Zou
et al. 2023, "Representation Engineering"), as long as the pairs are along it on average. Without texts: the direction that
raises a token's logit against the mean of all logits, which is its row of the unembedding minus the mean row, times the final
norm's gain.

Identity: for "difference", the mean projection of the first group minus that of the second is the vector's length.

Limit: with a few texts in hundreds of dimensions any two groups can be separated. `held_out_share` tells the group of each text
with a direction that was made without it. What separates two groups need not be what changes the output (Braun et al. 2025,
"Understanding (Un)Reliability of Steering Vectors in Language Models").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32

from analyses._contrast_math import DIRECTIONS, by_depth, held_out
from analyses._contrast_texts import equal_lengths, read_groups, read_streams
from analyses._steer import read_layers, reference_norms
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._targets import token_id
from analyses.direction_words import check_top_k, read_out, token_direction
from analyses.steering_vector import SteeringVector, random_vector_like


@dataclass(frozen=True, eq=False)
class Contrast:
    """A steering vector and what is known about it before it is used."""

    direction: Float32[np.ndarray, " d_model"]
    layer: int
    made: str
    read: str
    model: str
    fingerprint: str
    norm: float  # of the direction, in the stream's own units
    reference_norm: float  # mean length of the stream there, on a fixed text: what a coefficient of 1 adds
    explained: float  # share of the squared length of the paired differences along the direction; NaN without pairs
    positive: Float32[
        np.ndarray, " text"
    ]  # each text's stream along the direction (unit length), in the stream's own units
    negative: Float32[np.ndarray, " other_text"]
    positive_held_out: Bool[np.ndarray, " text"]  # on the right side with a direction made without it (and its partner)
    negative_held_out: Bool[np.ndarray, " other_text"]
    separation: Float32[
        np.ndarray, " depth"
    ]  # difference of the means over the pooled standard deviation, at every depth
    norm_by_depth: Float32[np.ndarray, " depth"]  # length of the difference of means over the stream's, at every depth
    # What each depth's difference of the groups reads as through the final norm and the unembedding: the cosine with every
    # token's own direction (`token_direction`). At middle depths this says little; the last ones name the contrast.
    promoted_ids: Int32[np.ndarray, "depth k"]
    promoted_cosine: Float32[np.ndarray, "depth k"]
    suppressed_ids: Int32[np.ndarray, "depth k"]
    suppressed_cosine: Float32[np.ndarray, "depth k"]
    random_cosine: float  # with the control of seed 0; about 1 / sqrt(d_model) by chance

    def vector(self, name: str = "my vector") -> SteeringVector:
        """The value that is added, saved and sent."""
        return SteeringVector(
            self.direction, self.layer, name, self.model, self.fingerprint, made=self.made, read=self.read
        )

    @property
    def held_out_share(self) -> float:
        """Share of the texts on the right side; NaN when there are too few to leave one out."""
        both = np.concatenate([self.positive_held_out, self.negative_held_out])
        return float(both.mean()) if min(len(self.positive), len(self.negative)) > 1 else float("nan")

    def to_frame(self) -> Any:
        """A pandas table, one row per text: group, text (from 0), projection, held_out."""
        import pandas as pd

        groups = (
            ("positive", self.positive, self.positive_held_out),
            ("negative", self.negative, self.negative_held_out),
        )
        rows = [
            (name, i, p, bool(h))
            for name, values, held in groups
            for i, (p, h) in enumerate(zip(values, held, strict=True))
        ]
        return pd.DataFrame(rows, columns=["group", "text", "projection", "held_out"])


def steering_vector_steps(
    model: Any,
    tokens: Any = (),
    *,
    positive: Any = (),
    negative: Any = (),
    token: Any = None,
    layer: Any = 12,
    read: str = "mean",
    method: str = "difference",
    top_k: int = 12,
) -> Steps[Contrast]:
    """The steps of `run_steering_vector`: one forward pass per batch of texts of one length."""
    config = model.config
    model.require("readout")
    layer = _one_layer(layer, config.n_layers)
    check_top_k(top_k, config.d_vocab)
    groups = [] if token is not None else read_groups(model, positive, negative, read, method)
    if token is not None:
        target = token_id(model, token, "token")
    texts = [ids for group in groups for ids in group]
    total = 2 + len(texts)
    yield Progress(0, total, note="lengths of the stream")
    norms = reference_norms(model)
    streams = np.zeros((len(texts), config.n_layers + 1, config.d_model))
    done = 1
    for batch in equal_lengths(texts):
        yield Progress(done, total, note="reading the texts")
        streams[batch] = read_streams(model, [texts[index] for index in batch], read)
        done += len(batch)
    if token is not None:
        found = _Found(token_direction(model, target), f"unembedding of token {target}")
    else:
        first = len(groups[0])
        found = _compare([streams[:first], streams[first:]], layer, method, norms)
    vector = SteeringVector(found.direction.astype(np.float32), layer, "", made=found.made)
    yield Progress(total - 1, total, note="reading the direction")
    ids, cosines = read_out(model, found.by_depth(len(norms)), top_k)
    nothing = np.full(len(norms), np.nan, dtype=np.float32)
    return Contrast(
        direction=vector.direction,
        layer=layer,
        made=found.made,
        read="" if token is not None else read,
        model=config.name,
        fingerprint=config.fingerprint,
        norm=vector.norm,
        reference_norm=float(norms[layer]),
        explained=found.explained,
        positive=found.along[0].astype(np.float32),
        negative=found.along[1].astype(np.float32),
        positive_held_out=found.held_out[0],
        negative_held_out=found.held_out[1],
        separation=nothing if found.depths is None else found.depths[0].astype(np.float32),
        norm_by_depth=nothing if found.depths is None else found.depths[1].astype(np.float32),
        promoted_ids=ids[0],
        promoted_cosine=cosines[0],
        suppressed_ids=ids[1],
        suppressed_cosine=cosines[1],
        random_cosine=vector.cosine(random_vector_like(vector)),
    )


def run_steering_vector(
    model: Any,
    *,
    positive: Any = (),
    negative: Any = (),
    token: Any = None,
    layer: Any = 12,
    read: str = "mean",
    method: str = "difference",
    top_k: int = 12,
) -> Contrast:
    """A direction from two groups of texts, or of one token, and what it reads as.

    Args:
        model: a HookedModel.
        positive: texts the vector points to: sequences of ids, or strings (tokenised as they are).
        negative: texts it points away from; for "principal" as many, paired in order.
        token: instead of texts, an id or a text that is one token.
        layer: the stream before this block is read.
        read: "mean" over positions from 1, or "last". A text needs two tokens: position 0 is never read.
        method: "difference" of the means, or "principal" direction of the paired differences.
        top_k: how many promoted and suppressed tokens to list.

    Raises:
        ValueError: an empty group, texts that are too short or too long, groups that do not differ, or a parameter out of range.
    """
    return drain(
        steering_vector_steps(
            model, positive=positive, negative=negative, token=token, layer=layer, read=read, method=method, top_k=top_k
        )
    )


def make_steering_vector(model: Any, *, name: str = "my vector", **params: Any) -> SteeringVector:
    """The vector alone; the parameters of `run_steering_vector`."""
    return run_steering_vector(model, **params).vector(name)


def cost_steering_vector(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass per text and one for the lengths; a text counts a token per three characters when it is not ids yet."""
    texts = [*params.get("positive", ()), *params.get("negative", ())] if params.get("token") is None else []
    lengths = [97] + [max(2, len(text) // 3 if isinstance(text, str) else len(text)) for text in texts]
    depths = (profile.n_layers + 1) * profile.d_model
    return Cost(
        seconds=sum(map(profile.forward_seconds, lengths)) + profile.per_readout * (len(lengths) + 1),
        peak_bytes=profile.forward_bytes(max(lengths)) + 24 * len(lengths) * depths + 16 * profile.d_vocab,
        result_bytes=4 * profile.d_model + 16 * params.get("top_k", 12) + 8 * len(lengths) + 8 * profile.n_layers,
    )


def _one_layer(layer: Any, n_layers: int) -> int:
    first, *more = read_layers(layer, n_layers)
    if more:
        raise ValueError(
            f"needs one layer to read at; found a range from {first}; give a range when the vector is applied."
        )
    return first


@dataclass(frozen=True, eq=False)
class _Found:
    """A direction and what the groups say about it."""

    direction: Float64[np.ndarray, " d_model"]
    made: str
    explained: float = float("nan")
    along: tuple[Any, Any] = (np.empty(0), np.empty(0))  # projections of both groups
    held_out: tuple[Any, Any] = (np.empty(0, dtype=bool), np.empty(0, dtype=bool))
    depths: Any = None  # [separation and length, depth]
    differences: Any = None  # [depth, d_model]: the direction of every depth

    def by_depth(self, n_depths: int) -> Float64[np.ndarray, "depth d_model"]:
        """The direction at every depth; a token's is the same at all."""
        return np.tile(self.direction, (n_depths, 1)) if self.differences is None else self.differences


def _compare(
    groups: Sequence[Float64[np.ndarray, "text depth d_model"]], layer: int, method: str, norms: Any
) -> _Found:
    rows = [group[:, layer] for group in groups]
    direction, explained = DIRECTIONS[method](*rows)
    unit = direction / np.linalg.norm(direction)
    return _Found(
        direction=direction,
        made=f"{method} of {len(rows[0])} and {len(rows[1])} texts",
        explained=explained,
        along=(rows[0] @ unit, rows[1] @ unit),
        held_out=tuple(held_out(*rows, method)),
        depths=by_depth(groups, norms),
        differences=groups[0].mean(0) - groups[1].mean(0),
    )
