"""What does a direction of the stream read as? Tokens whose own direction is most and least like it.

A token's own direction is its row of the unembedding minus the mean row, times the final norm's gain: along it, with the norm's
divisor held, this token's logit rises most against the mean of all logits. Likeness is the cosine, so that tokens with long rows
do not lead every list.

Identity: a token's own direction reads as that token, with cosine 1.

Limit: only the last stream is read through the unembedding. A direction of a middle layer is read by the layers after it first,
and what they make of it need not be among these tokens (the limit of the logit lens: Belrose et al. 2023, "Eliciting Latent
Predictions from Transformers with the Tuned Lens").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int32

from analyses._arrays import to_float32
from analyses._decompose import FrozenNorm, LinearParts, freeze
from analyses._steer import steer_of
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses.vocabulary import Vocabulary, printable

TOP_K = 12
READ_ROWS = 16384  # of the unembedding, read at once: a float32 copy of all of it would be large


@dataclass(frozen=True, eq=False)
class DirectionWords:
    """The tokens most and least like a direction."""

    promoted_ids: Int32[np.ndarray, " k"]  # most alike first
    promoted_cosine: Float32[np.ndarray, " k"]
    suppressed_ids: Int32[np.ndarray, " k"]  # most opposite first
    suppressed_cosine: Float32[np.ndarray, " k"]

    def to_frame(self, vocabulary: Vocabulary | None = None) -> Any:
        """A pandas table, one row per place in the lists: list, place (from 0), id, (token,) cosine."""
        import pandas as pd

        k = len(self.promoted_ids)
        ids = np.concatenate([self.promoted_ids, self.suppressed_ids])
        columns: dict[str, Any] = {
            "list": ["promoted"] * k + ["suppressed"] * k,
            "place": [*range(k), *range(k)],
            "id": ids,
        }
        if vocabulary is not None:
            columns["token"] = [printable(vocabulary.piece(int(i))) for i in ids]
        columns["cosine"] = np.concatenate([self.promoted_cosine, self.suppressed_cosine])
        return pd.DataFrame(columns)


def direction_words_steps(model: Any, tokens: Any = (), *, vector: Any, top_k: Any = TOP_K) -> Steps[DirectionWords]:
    """The steps of `run_direction_words`: one pass over the unembedding, none over the model."""
    model.require("readout")
    direction = steer_of(model, vector, coefficient=1).direction
    check_top_k(top_k, model.config.d_vocab)
    yield Progress(0, 1, note="reading the direction")
    ids, cosines = read_out(model, direction[None].astype(np.float64), top_k)
    return DirectionWords(ids[0][0], cosines[0][0], ids[1][0], cosines[1][0])


def run_direction_words(model: Any, vector: Any, *, top_k: Any = TOP_K) -> DirectionWords:
    """What a steering vector reads as through the final norm and the unembedding.

    Args:
        model: a HookedModel.
        vector: a `SteeringVector`, its `wire` form, or its intervention; only its direction counts.
        top_k: how many tokens to list at each end.

    Raises:
        ValueError: a vector of another model or width, or a top-k out of range.
    """
    return drain(direction_words_steps(model, vector=vector, top_k=top_k))


def cost_direction_words(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One row of readout, and the unembedding in float32, some rows at a time."""
    rows = min(READ_ROWS, profile.d_vocab)
    peak = 8 * rows * profile.d_model + 12 * profile.d_vocab
    return Cost(2 * profile.per_readout, peak, 16 * params.get("top_k", TOP_K))


def check_top_k(top_k: Any, d_vocab: int) -> None:
    """Refuse a list that is empty or longer than the vocabulary.

    Raises:
        ValueError: that.
    """
    if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= d_vocab:
        raise ValueError(f"needs a top-k from 1 to {d_vocab:,}; found {top_k!r}; choose how many to list.")


def token_direction(model: Any, token: int) -> Float64[np.ndarray, " d_model"]:
    """Row of the unembedding minus the mean row, pulled back through the final norm's gain (and centring, if it does).

    Added before the readout, with the norm's divisor held, it raises this token's logit against the mean of all logits most.
    """
    parts = model.linear_parts()
    towards = parts.unembedding(token)[0] - parts.weight.float().mean(0).double().cpu()
    return _gain(parts).pull_back(towards).numpy()


def _gain(parts: LinearParts) -> FrozenNorm:
    """The final norm with its divisor held at one, as on any row of mean zero and mean square one."""
    import torch

    row = torch.ones(parts.weight.shape[1], dtype=parts.weight.dtype, device=parts.weight.device)
    row[1::2] = -1
    return freeze(parts.final_norm, row)


def read_out(model: Any, directions: Float64[np.ndarray, "depth d_model"], top_k: int) -> tuple[Any, Any]:
    """Tokens whose own direction is most like each row, and most unlike: (ids of both, cosines of both)."""
    import torch

    parts = model.linear_parts()
    norm, mean = _gain(parts), parts.weight.float().mean(0)
    units = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-30)
    columns = torch.tensor(units.T, dtype=torch.float32, device=parts.weight.device)
    cosines = []
    for rows in parts.weight.split(READ_ROWS):
        model.check()
        own = (rows.float() - mean) * norm.gain.to(mean)
        own = own - own.mean(1, keepdim=True) if norm.centres else own
        cosines.append(own @ columns / own.norm(dim=1, keepdim=True).clamp(min=1e-12))
    whole = torch.cat(cosines).T
    found = [whole.topk(top_k), (-whole).topk(top_k)]
    ids = [top.indices.cpu().numpy().astype(np.int32) for top in found]
    return ids, [to_float32(found[0].values), to_float32(-found[1].values)]
