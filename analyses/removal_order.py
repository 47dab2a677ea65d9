"""In which order do the layers go, if each time the one goes that hurts least?

Greedy: of all blocks that are left, delete the one without which the loss is lowest, then look again (Song et al. 2024, "SLEB:
Streamlining LLMs through Redundancy Verification and Elimination of Transformer Blocks"). Loss, KL divergence and agreement
are always against the whole model.

Identity: the first one is the cheapest of all single deletions; after `n` steps the loss is that of the set deleted at once.

Limit: greedy is not the best set: two blocks can be cheap alone and dear together. The order belongs to this text; nothing is
trained afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int32

from analyses._addends import whole_blocks
from analyses._damage import Damage, Yardstick, check_text, no_damage_yet
from analyses._deletion_run import choose_replay, deletion_cost, hooked_steps, without
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._variants import Start, variant_steps

STEPS = 8  # layers removed when nothing is said


@dataclass(frozen=True, eq=False)
class RemovalOrder:
    """One row per step; a step removes one more block."""

    order: Int32[np.ndarray, " step"]  # layers, the one that hurts least first
    positions: str  # "all": chosen by loss; "last": by the KL divergence at the last position
    baseline_loss_nats: float  # per token; NaN for "last"
    loss_nats: Float32[np.ndarray, " step"]  # after that step
    kl_nats: Float32[np.ndarray, " step"]  # KL(whole || what is left)
    top1_agreement: Float32[np.ndarray, " step"]  # of 1
    candidate_loss_nats: Float32[np.ndarray, "step layer"]  # had that layer gone; NaN for those that were gone already
    candidate_kl_nats: Float32[np.ndarray, "step layer"]
    uniform_loss_nats: float  # ln(vocabulary)

    @property
    def loss_change_nats(self) -> Float64[np.ndarray, " step"]:
        """How much the loss has risen after each step."""
        return self.loss_nats.astype(np.float64) - self.baseline_loss_nats

    def to_frame(self) -> Any:
        """A pandas table, one row per step: the layer that goes and what is left."""
        import pandas as pd

        return pd.DataFrame(
            {
                "step": np.arange(1, len(self.order) + 1),
                "layer": self.order,
                "loss_nats": self.loss_nats,
                "loss_change_nats": self.loss_change_nats,
                "kl_nats": self.kl_nats,
                "top1_agreement": self.top1_agreement,
            }
        )


def removal_order_steps(
    model: Any, tokens: Any, *, n_remove: int | None = None, positions: str = "all", method: str = "auto"
) -> Steps[RemovalOrder]:
    """The steps of `run_removal_order`; `partial` holds the finished steps."""
    ids, n_layers = check_text(model, tokens, positions), model.config.n_layers
    n_steps = _n_steps(n_remove, n_layers)
    replay = choose_replay(model, method)
    yield Progress(0.0, n_steps, note="the whole model")
    calls = model.capture_calls(ids)
    whole = Yardstick(model, calls.logits[0], ids, positions)
    resid = list(calls.resid)
    rows = {name: np.full((n_steps, n_layers), np.nan, np.float32) for name in ("loss", "kl", "same")}
    order: list[int] = []
    for step in range(n_steps):
        left = [layer for layer in range(n_layers) if layer not in order]
        damage = no_damage_yet(len(left), whole.n_targets, 0)
        variants = [whole_blocks([*order, layer]) for layer in left]

        def read(which: Sequence[int], streams: Any, damage: Damage = damage) -> None:
            whole.read(damage, which, streams)

        if replay:
            starts = [Start(layer + 1, layer) for layer in left]
            trial = variant_steps(model, resid, starts, without(model, calls, variants), read)
        else:
            trial = hooked_steps(model, ids, variants, read)
        for progress in trial:
            yield Progress(step + progress.done / max(progress.total, 1), n_steps, note=f"step {step + 1}")
        rows["loss"][step, left], rows["kl"][step, left] = damage.loss_nats, damage.kl_nats
        rows["same"][step, left] = damage.top1_agreement
        order.append(int(np.nanargmin(rows["loss" if positions == "all" else "kl"][step])))
        if replay:
            resid = yield from _shortened(model, calls, resid, order, Progress(step + 1, n_steps))
        yield Progress(step + 1, n_steps, partial=_so_far(order, rows))
    return RemovalOrder(
        **_so_far(order, rows),
        positions=positions,
        baseline_loss_nats=whole.loss_nats,
        candidate_loss_nats=rows["loss"],
        candidate_kl_nats=rows["kl"],
        uniform_loss_nats=float(np.log(model.config.d_vocab)),
    )


def run_removal_order(
    model: Any, tokens: Any, *, n_remove: int | None = None, positions: str = "all", method: str = "auto"
) -> RemovalOrder:
    """Remove blocks one after the other, each time the one that hurts least.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        n_remove: how many blocks to remove; None is eight, or all of a model with fewer.
        positions: "all" that have a next token: chosen by loss; "last" alone: chosen by KL divergence.
        method: see `run_layer_deletion`.

    Raises:
        ValueError: a number out of range, or as `run_layer_deletion`.
    """
    return drain(removal_order_steps(model, tokens, n_remove=n_remove, positions=positions, method=method))


def cost_removal_order(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Every step tries all blocks that are left: about layers / 2 forward passes and a reading of each."""
    n_layers, n_steps = profile.n_layers, _n_steps(params.get("n_remove"), profile.n_layers)
    singles = [whole_blocks([layer]) for layer in range(n_layers)]
    one = deletion_cost(profile, n_tokens, singles, params, 8 * n_steps * (n_layers + 3))
    # Which blocks will have gone is not known: each step has one candidate fewer, and one block fewer to run.
    share = sum(((n_layers - step) / n_layers) ** 2 for step in range(n_steps))
    return Cost(one.seconds * share, one.peak_bytes, one.result_bytes)


def _shortened(
    model: Any, calls: Any, resid: Sequence[Any], order: Sequence[int], progress: Progress
) -> Steps[list[Any]]:
    """Streams by depth of the model without the last layer of `order` too, given those without the others."""
    layer, gone = order[-1], whole_blocks(order)
    streams = list(resid[: layer + 1]) + [resid[layer]]
    run = without(model, calls, [gone])
    for later in range(layer + 1, model.config.n_layers):
        if later not in order:
            yield progress
        streams.append(run(later, streams[-1], [0]))
    return streams


def _so_far(order: Sequence[int], rows: Mapping[str, Float32[np.ndarray, "step layer"]]) -> dict[str, Any]:
    steps, layers = np.arange(len(order)), np.array(order, dtype=np.int32)
    names = {"loss_nats": "loss", "kl_nats": "kl", "top1_agreement": "same"}
    return {"order": layers} | {name: rows[key][steps, layers] for name, key in names.items()}


def _n_steps(n_remove: int | None, n_layers: int) -> int:
    if n_remove is None:
        return min(STEPS, n_layers)
    if isinstance(n_remove, bool) or not isinstance(n_remove, int) or not 1 <= n_remove <= n_layers:
        raise ValueError(f"needs a number of layers to remove from 1 to {n_layers}; found {n_remove!r}; choose one.")
    return n_remove
