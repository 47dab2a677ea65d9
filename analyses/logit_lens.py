"""What would the model say if it stopped here?

The stream before every block, read as the last one is: final norm (its statistics computed anew), unembedding, the family's
softcap or scale, softmax. Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; the KL divergence in the direction
of Belrose, Furman, Smith, Halawi, Ostrovsky, McKinney, Biderman and Steinhardt 2023, "Eliciting Latent Predictions from
Transformers with the Tuned Lens". With a linear lens (analyses/linear_lens.py) each stream is first mapped to the last one's
basis.

Identity: the last depth is the model's output exactly: it is computed from the forward pass' own float32 logits.

Limit: the lens reads early layers in the last layer's basis, and can mislead there. On SmolLM2 it is worse than guessing
(10.8 nats) through depth 24. That is a property of the lens (streams drift from layer to layer; Belrose et al. 2023), no proof
that the model does not know yet; and a low entropy there is over-confidence, no knowledge.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses import _readout
from analyses._addends import deletion_hooks
from analyses._arrays import check_ids
from analyses._lens import Cells, Wanted
from analyses._lens_run import capture, read_all
from analyses._positions import WINDOW, choose_positions
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._targets import token_id
from analyses.vocabulary import Vocabulary, printable

TOGETHER = 0.6  # of `per_readout`, which is measured on 32 rows: many rows at once are cheaper (0.5 to 0.6 on SmolLM2)
LENS = re.compile(r"plain|linear|own:[0-9a-f]{16}")


@dataclass(frozen=True, eq=False)
class LogitLens:
    """Every depth at some positions. The column at a position predicts the token after it.

    `depth` d is the stream before block d, the last one the model's output; `mid_` arrays hold the stream after attention in
    each layer and are None unless asked for, `distractor_` arrays likewise. Log-probabilities are of the whole vocabulary.
    """

    positions: Int32[np.ndarray, " pos"]  # in the text, from zero, ascending
    top_ids: Int32[np.ndarray, "depth pos k"]  # most probable first
    top_log_probability: Float32[np.ndarray, "depth pos k"]  # nats
    entropy_nats: Float32[np.ndarray, "depth pos"]
    kl_nats: Float32[np.ndarray, "depth pos"]  # KL(output || this depth)
    next_loss_nats: Float32[np.ndarray, "depth pos"]  # of the token that follows; NaN after the last one
    target_ids: Int32[np.ndarray, " pos"]
    target_rank: Int32[np.ndarray, "depth pos"]  # tokens with a larger logit
    target_log_probability: Float32[np.ndarray, "depth pos"]
    distractor_ids: Int32[np.ndarray, " pos"] | None
    distractor_rank: Int32[np.ndarray, "depth pos"] | None
    distractor_log_probability: Float32[np.ndarray, "depth pos"] | None
    mid_top_ids: Int32[np.ndarray, "layer pos k"] | None
    mid_top_log_probability: Float32[np.ndarray, "layer pos k"] | None
    mid_entropy_nats: Float32[np.ndarray, "layer pos"] | None
    mid_kl_nats: Float32[np.ndarray, "layer pos"] | None
    mid_next_loss_nats: Float32[np.ndarray, "layer pos"] | None
    mid_target_rank: Int32[np.ndarray, "layer pos"] | None
    mid_target_log_probability: Float32[np.ndarray, "layer pos"] | None
    mid_distractor_rank: Int32[np.ndarray, "layer pos"] | None
    mid_distractor_log_probability: Float32[np.ndarray, "layer pos"] | None
    exact: bool  # False: rank, entropy, KL and the tail's share come from logits in bfloat16 (not at the last depth)
    lens: str  # "plain", "linear" or "own:<digest>"

    @property
    def n_depths(self) -> int:
        """Layers + 1."""
        return len(self.entropy_nats)

    @property
    def top_probability(self) -> Float32[np.ndarray, "depth pos k"]:
        """Probability of the most probable tokens."""
        return np.exp(self.top_log_probability)

    @property
    def target_probability(self) -> Float32[np.ndarray, "depth pos"]:
        """Probability of the target."""
        return np.exp(self.target_log_probability)

    @property
    def leads_from(self) -> Int32[np.ndarray, " pos"]:
        """First depth from which the target has rank 0 up to the end; -1 where it has not even there."""
        stays = np.logical_and.accumulate(self.target_rank[::-1] == 0, axis=0)[::-1]
        return np.where(stays[-1], stays.argmax(axis=0), -1).astype(np.int32)

    def to_frame(self, vocabulary: Vocabulary | None = None) -> Any:
        """A pandas table, one row per depth and position, and per half-way stream: see the columns below.

        depth; half_way (True: after attention in the block of this number); position; entropy_nats, kl_nats, next_loss_nats;
        target_id, (target,) target_rank, target_probability, target_log_probability_nats, and the same of a distractor;
        then id_0, (token_0,) probability_0 and so on. Those in parentheses need the vocabulary.
        """
        import pandas as pd

        if self.mid_entropy_nats is None:
            return pd.DataFrame(self._columns("", vocabulary))
        halves = [pd.DataFrame(self._columns(prefix, vocabulary)) for prefix in ("", "mid_")]
        # Stable: a depth's whole stream stands before its half-way one.
        return pd.concat(halves).sort_values(["depth", "half_way"], kind="stable", ignore_index=True)

    def _columns(self, prefix: str, vocabulary: Vocabulary | None) -> dict[str, Any]:
        n_streams, n_positions = getattr(self, f"{prefix}entropy_nats").shape

        def tokens(ids: Any) -> Any:
            few, where = np.unique(ids, return_inverse=True)
            return np.array([printable(vocabulary.piece(i)) for i in few], dtype=object)[where]

        columns: dict[str, Any] = {
            "depth": np.repeat(np.arange(n_streams), n_positions),
            "half_way": np.full(n_streams * n_positions, prefix == "mid_"),
            "position": np.tile(self.positions, n_streams),
        }
        for name in ("entropy_nats", "kl_nats", "next_loss_nats"):
            columns[name] = getattr(self, prefix + name).ravel()
        for name in ("target", "distractor"):
            ids = getattr(self, f"{name}_ids")
            if ids is None:
                continue
            columns[f"{name}_id"] = np.tile(ids, n_streams)
            if vocabulary is not None:
                columns[name] = tokens(columns[f"{name}_id"])
            columns[f"{name}_rank"] = getattr(self, f"{prefix}{name}_rank").ravel()
            log_probability = getattr(self, f"{prefix}{name}_log_probability").ravel()
            columns[f"{name}_probability"] = np.exp(log_probability)
            columns[f"{name}_log_probability_nats"] = log_probability
        top_ids, top = getattr(self, f"{prefix}top_ids"), getattr(self, f"{prefix}top_log_probability")
        for i in range(top_ids.shape[-1]):
            columns[f"id_{i}"] = top_ids[..., i].ravel()
            if vocabulary is not None:
                columns[f"token_{i}"] = tokens(columns[f"id_{i}"])
            columns[f"probability_{i}"] = np.exp(top[..., i]).ravel()
        return columns


def logit_lens_steps(
    model: Any,
    tokens: Any,
    *,
    positions: str | Sequence[int] = "window",
    target: int | str | None = None,
    distractor: int | str | None = None,
    top_k: int = 10,
    mid: bool = False,
    exact: bool = True,
    lens: str = "plain",
    deleted: Sequence[Any] = (),
) -> Steps[LogitLens]:
    """The steps of `run_logit_lens`: one forward pass, then the readout a tenth of a second at a time.

    `partial` holds the fields of a `LogitLens` of the positions that are known so far, the last ones.
    """
    import torch

    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    places = choose_positions(positions, len(ids))
    if not 1 <= top_k <= config.d_vocab:
        raise ValueError(
            f"needs a top-k from 1 to {config.d_vocab:,}; found {top_k:,}; choose how many tokens to list."
        )
    named = {"target": target, "distractor": distractor}
    fixed = {name: token_id(model, given, name) for name, given in named.items() if given is not None}
    apply = _lens_maps(model, lens, mid)
    changes = deletion_hooks(model, deleted)

    done = len(ids) * config.n_parameters
    total = done + len(places) * (config.n_layers * (1 + mid) + 1) * config.d_vocab * config.d_model
    yield Progress(0, total, note="one forward pass")
    streams, logits = capture(model, ids, places, mid, changes)
    if apply is not None:
        for depth in range(config.n_layers):
            model.check()
            streams[:, depth] = apply(depth, streams[:, depth])
    yield Progress(done, total, note="reading the layers")

    followed = {"target": logits.argmax(-1).tolist()} | {name: [one] * len(places) for name, one in fixed.items()}
    following = [(*ids, 0)[place + 1] for place in places]  # nothing follows the last one: its loss is made NaN below
    wanted = Wanted(top_k, torch.tensor([*followed.values(), following], device=logits.device).T, len(followed))
    cells = Cells.empty(streams.shape[1] + 1, len(places), wanted)
    half = None if exact else _readout.half_weight(model)
    about = {"n_layers": config.n_layers, "n_tokens": len(ids), "exact": half is None, "lens": lens}
    told = len(places)
    for work, known_from in read_all(model, streams, logits, wanted, half, cells):
        done += work
        news = 0 < known_from < told
        partial = vars(_result(cells, places, followed, known_from, **about)) if news else None
        told = known_from
        yield Progress(done, total, note="reading the layers", partial=partial)
    return _result(cells, places, followed, 0, **about)


def _result(
    cells: Cells,
    places: Sequence[int],
    followed: Mapping[str, Sequence[int]],
    first: int,
    *,
    n_layers: int,
    n_tokens: int,
    exact: bool,
    lens: str,
) -> LogitLens:
    """What is known of the positions from the `first` of those asked for."""
    cells, places = cells.since(first), places[first:]
    followed = {name: ids[first:] for name, ids in followed.items()}
    if places[-1] + 1 == n_tokens:  # nothing follows the last token
        cells.log_probability[:, -1, -1] = np.nan
    fields: dict[str, Any] = {}
    for prefix, streams in ("", [*range(n_layers), -1]), ("mid_", [*range(n_layers, len(cells.rank) - 1)]):
        there = len(streams) > 0
        for name in ("top_ids", "top_log_probability", "entropy_nats", "kl_nats"):
            fields[prefix + name] = getattr(cells, name)[streams] if there else None
        fields[prefix + "next_loss_nats"] = -cells.log_probability[streams, :, -1] if there else None
        for i, name in enumerate(("target", "distractor")):
            asked = there and i < len(followed)
            fields[f"{prefix}{name}_rank"] = cells.rank[streams, :, i] if asked else None
            fields[f"{prefix}{name}_log_probability"] = cells.log_probability[streams, :, i] if asked else None
    for name in ("target", "distractor"):
        fields[f"{name}_ids"] = np.array(followed[name], dtype=np.int32) if name in followed else None
    return LogitLens(positions=np.array(places, dtype=np.int32), exact=exact, lens=lens, **fields)


def run_logit_lens(
    model: Any,
    tokens: Any,
    *,
    positions: str | Sequence[int] = "window",
    target: int | str | None = None,
    distractor: int | str | None = None,
    top_k: int = 10,
    mid: bool = False,
    exact: bool = True,
    lens: str = "plain",
    deleted: Sequence[Any] = (),
) -> LogitLens:
    """Read every depth of the stream as if it were the last.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        positions: "window" (the last 32), "all", "last", or positions from zero (negative ones count from the end).
        target: the token to follow through the depths: an id, or a text that is one token. None takes the model's own answer
            at each position.
        distractor: another one beside it.
        top_k: how many of the most probable tokens to keep of every cell.
        mid: read the stream after attention of each layer too (capability `resid_mid`).
        exact: False allows a multiplication in bfloat16 where the processor is fast at it. The most probable tokens are then
            read again in float32; rank, entropy and KL are approximate. The last depth is exact in any case.
        lens: "plain", "linear" (fitted on the built-in text), or "own:" and the digest of one fitted on a text of yours.
        deleted: layers and addends that are left out of the run that is read, e.g. [10, "11.mlp"], named as in
            `run_layer_deletion`; its output is then the last depth.

    Raises:
        ValueError: no tokens, too many, a position, token or lens that is not there, or a half-way stream that this model
            (or a linear lens) does not have.
    """
    named = dict(positions=positions, target=target, distractor=distractor, top_k=top_k)
    return drain(logit_lens_steps(model, tokens, **named, mid=mid, exact=exact, lens=lens, deleted=deleted))


def cost_logit_lens(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass, and one readout per depth and position."""
    positions = params.get("positions", "window")
    few = {"window": min(WINDOW, n_tokens), "all": n_tokens, "last": 1}
    n_positions = few.get(positions, n_tokens) if isinstance(positions, str) else min(len(positions), n_tokens)
    n_streams, top_k = profile.n_layers * (1 + bool(params.get("mid"))), params.get("top_k", 10)
    cells = n_positions * (n_streams + 1)
    seconds = profile.forward_seconds(n_tokens) + profile.per_readout * n_positions * (1 + TOGETHER * n_streams)
    streams = n_positions * n_streams * profile.d_model * profile.bytes_per_value
    result = cells * 4 * (2 * top_k + 5 + 2 * (params.get("distractor") is not None))
    peak = profile.forward_bytes(n_tokens, readouts=n_positions) + streams + _readout.CHUNK_BYTES + result
    return Cost(seconds=seconds, peak_bytes=peak, result_bytes=result + 12 * n_positions)


def _lens_maps(model: Any, lens: str, mid: bool) -> Callable[[int, Any], Any] | None:
    """What maps the stream of a depth to the last one's basis; None for the plain lens."""
    if not isinstance(lens, str) or not LENS.fullmatch(lens):
        raise ValueError(
            f'needs a lens "plain", "linear" or "own:" and 16 hexadecimal digits; found {lens!r}; choose one of these.'
        )
    if mid and lens != "plain":
        raise ValueError(
            f"needs the plain lens for the stream after attention; found {lens!r}, which is fitted on whole layers; "
            "leave the half-way rows out or choose the plain lens."
        )
    if mid:
        model.require("resid_mid")
    if lens == "plain":
        return None
    from analyses.linear_lens import load_maps

    return load_maps(model, lens).apply
