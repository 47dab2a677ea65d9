"""What is lost without it? Blocks, or their attention or MLP alone, are left out of the sum that is the stream.

A block only adds: x = x + attention(norm(x)), then x = x + mlp(norm(x)). To delete one is to leave out what it adds, so the
stream passes by it (Veit, Wilber and Belongie 2016, "Residual Networks Behave Like Ensembles of Relatively Shallow Networks").
Multiplying a block's whole output by zero deletes the stream as well, and with it every earlier layer and the text itself.
`wrong=True` does that on purpose, as a contrast: it is what deletion would be in a pipeline.

Beside the damage stand two cheap guesses from the undamaged run (analyses/_layer_scores.py): angular distance (Gromov et al.
2024, "The Unreasonable Ineffectiveness of the Deeper Layers") and block influence (Men et al. 2024, "ShortGPT").

Identity: deleting nothing is the model; a deleted block is the same as both its addends at zero, and as transformers with that
layer taken out of its list.

Limit: which layers are cheap is not the same everywhere in the depth, differs between models, and one text is one text. Gromov et
al. (2024) report deep layers as cheap in models of 2.7 to 70 billion parameters, never the last one, and their larger cuts
rely on fine-tuning afterwards, which is not done here. Loss on a text is not ability.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int32

from analyses._addends import Addends, addend_hooks, check_wrong, deletion_hooks, name, read_variants
from analyses._damage import Damage, Yardstick, check_text, no_damage_yet
from analyses._deletion_run import deletion_cost, deletion_steps
from analyses._layer_scores import depth_change
from analyses._steps import Cost, Profile, Progress, Steps, drain

__all__ = ["LayerDeletion", "cost_layer_deletion", "deletion_hooks", "layer_deletion_steps", "run_layer_deletion"]


@dataclass(frozen=True, eq=False)
class LayerDeletion:
    """Every variant against the whole model, on one text. NaN or None is what was not asked for or is not defined."""

    deleted: tuple[tuple[int | str, ...], ...]  # one per variant: 10 is a whole block, "10.mlp" an addend of it
    positions: str  # "all": means over the positions with a next token; "last": the last position, which has no loss
    wrong: bool  # outputs replaced by zero instead of addends left out
    baseline_loss_nats: float  # per token
    loss_nats: Float32[np.ndarray, " variant"]
    kl_nats: Float32[np.ndarray, " variant"]  # KL(whole || deleted)
    top1_agreement: Float32[np.ndarray, " variant"]  # share of positions with the same first choice
    baseline_position_loss_nats: Float32[np.ndarray, " target"]  # of the token after each position; empty for "last"
    position_loss_nats: Float32[np.ndarray, "variant target"]
    baseline_top_ids: Int32[np.ndarray, " k"]  # predicted after the last position, most probable first
    baseline_top_log_probability: Float32[np.ndarray, " k"]  # nats
    top_ids: Int32[np.ndarray, "variant k"]
    top_log_probability: Float32[np.ndarray, "variant k"]
    first_log_probability: Float32[np.ndarray, "variant k"]  # what is left of the baseline's top k
    uniform_loss_nats: float  # ln(vocabulary): the loss of a guess that knows nothing
    angular_distance: Float32[np.ndarray, " layer"]  # of 1, over one block, mean over positions from 1
    angular_distance_last: Float32[np.ndarray, " layer"]  # at the last position
    block_influence: Float32[np.ndarray, " layer"]  # 1 - cosine, mean over positions from 1

    @property
    def loss_change_nats(self) -> Float64[np.ndarray, " variant"]:
        """How much the loss rises; below zero where the model is better without."""
        return self.loss_nats.astype(np.float64) - self.baseline_loss_nats

    @property
    def perplexity(self) -> Float64[np.ndarray, " variant"]:
        """exp(loss)."""
        return np.exp(self.loss_nats.astype(np.float64))

    @property
    def baseline_perplexity(self) -> float:
        """exp(loss) of the whole model."""
        return float(np.exp(self.baseline_loss_nats))

    def to_frame(self) -> Any:
        """A pandas table, one row per variant."""
        import pandas as pd

        return pd.DataFrame(
            {
                "deleted": [" ".join(map(str, variant)) or "nothing" for variant in self.deleted],
                "loss_nats": self.loss_nats,
                "loss_change_nats": self.loss_change_nats,
                "perplexity": self.perplexity,
                "kl_nats": self.kl_nats,
                "top1_agreement": self.top1_agreement,
            }
        )


def layer_deletion_steps(
    model: Any,
    tokens: Any,
    *,
    deleted: Any = None,
    positions: str = "all",
    top_k: int = 10,
    wrong: bool = False,
    compare: bool = True,
    method: str = "auto",
) -> Steps[LayerDeletion]:
    """The steps of `run_layer_deletion`: a base run, then a step per block and group of variants."""
    ids = check_text(model, tokens, positions)
    variants = read_variants(deleted, model.config.n_layers)
    if not 1 <= top_k <= model.config.d_vocab:
        raise ValueError(f"needs a top-k from 1 to {model.config.d_vocab:,}; found {top_k:,}; choose how many to list.")
    if compare:
        calls, whole, damage = yield from deletion_steps(
            model, ids, variants, positions=positions, top_k=top_k, wrong=wrong, method=method
        )
        change = depth_change(calls.resid, neighbours=True)
        scores = (*change.over_one_block(), change.block_influence)
    else:
        whole, scores = None, (np.full(model.config.n_layers, np.nan, dtype=np.float32),) * 3
        damage = yield from _alone_steps(model, ids, variants, positions=positions, top_k=top_k, wrong=wrong)
    n_targets = damage.position_loss_nats.shape[1]
    return LayerDeletion(
        deleted=tuple(name(variant) for variant in variants),
        positions=positions,
        wrong=wrong,
        baseline_loss_nats=whole.loss_nats if whole else float("nan"),
        loss_nats=damage.loss_nats.astype(np.float32),
        kl_nats=damage.kl_nats,
        top1_agreement=damage.top1_agreement,
        baseline_position_loss_nats=whole.position_loss_nats if whole else np.full(n_targets, np.nan, np.float32),
        position_loss_nats=damage.position_loss_nats,
        baseline_top_ids=whole.top_ids if whole else np.full(top_k, -1, np.int32),
        baseline_top_log_probability=whole.top_log_probability if whole else np.full(top_k, np.nan, np.float32),
        top_ids=damage.top_ids,
        top_log_probability=damage.top_log_probability,
        first_log_probability=damage.first_log_probability,
        uniform_loss_nats=float(np.log(model.config.d_vocab)),
        angular_distance=scores[0],
        angular_distance_last=scores[1],
        block_influence=scores[2],
    )


def run_layer_deletion(
    model: Any,
    tokens: Any,
    *,
    deleted: Any = None,
    positions: str = "all",
    top_k: int = 10,
    wrong: bool = False,
    compare: bool = True,
    method: str = "auto",
) -> LayerDeletion:
    """Loss, KL divergence, agreement and predictions of a text without some addends.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        deleted: variants, each a list of layers (whole blocks) and names such as "10.attention" and "10.mlp"; an empty list
            deletes nothing. None tries every single block.
        positions: "all" that have a next token, or the "last" one alone, which is cheaper and has no loss.
        top_k: how many of the most probable next tokens to list.
        wrong: replace the output of each block by zero, as if the model were a pipeline; whole blocks only.
        compare: without it there is no run of the whole model: one forward pass per variant gives loss and predictions, and all
            that compares is NaN.
        method: "auto" replays single blocks where the model can; "forward" makes one pass per variant; "replay" insists.

    Raises:
        ValueError: a text that is too short or too long, an unknown or doubled addend, a layer that is not there, a parameter out
            of range, or a model whose addends cannot be changed.
    """
    return drain(
        layer_deletion_steps(
            model,
            tokens,
            deleted=deleted,
            positions=positions,
            top_k=top_k,
            wrong=wrong,
            compare=compare,
            method=method,
        )
    )


def cost_layer_deletion(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """A base run, and of each variant the blocks from its first change on; see `deletion_cost`."""
    variants = read_variants(params.get("deleted"), profile.n_layers)
    top_k, n_targets = params.get("top_k", 10), n_tokens if params.get("positions", "all") == "all" else 0
    result_bytes = 4 * (len(variants) * (n_targets + 3 * top_k + 3) + n_targets + 3 * profile.n_layers)
    if params.get("compare", True):
        return deletion_cost(profile, n_tokens, variants, params, result_bytes)
    n_read = max(n_targets, 1)
    return Cost(
        seconds=len(variants) * (profile.forward_seconds(n_tokens) + profile.per_readout * n_read),
        peak_bytes=profile.forward_bytes(n_tokens, readouts=n_read) + (64 << 20),
        result_bytes=result_bytes,
    )


def _alone_steps(
    model: Any, ids: tuple[int, ...], variants: tuple[Addends, ...], *, positions: str, top_k: int, wrong: bool
) -> Steps[Damage]:
    """Loss and predictions of the variants, without the whole model: one forward pass each."""
    if wrong:
        check_wrong(variants)
    damage = no_damage_yet(len(variants), len(ids) - 1 if positions == "all" else 0, top_k)
    for index, variant in enumerate(variants):
        yield Progress(index, len(variants))
        with model.hooks(*addend_hooks(model, variant, wrong=wrong)):
            logits = model.forward(ids, last_only=positions == "last")[0]
        found = Yardstick(model, logits, ids, positions, top_k)
        damage.position_loss_nats[index] = found.position_loss_nats
        damage.top_ids[index], damage.top_log_probability[index] = found.top_ids, found.top_log_probability
    return damage
