"""Which layers can be left out? Every single one, its attention or its MLP alone, and every run of neighbouring layers.

Beside the damage stand the cheap guesses from one undamaged run, with their rank correlation: how well they order the layers.

Sources: Gromov et al. 2024, "The Unreasonable Ineffectiveness of the Deeper Layers" (runs of layers chosen by angular distance);
Men et al. 2024, "ShortGPT" (block influence). "Rethinking Layer Relevance ... Beyond Cosine Similarity"
(2026, arXiv 2605.14075) finds that a layer which hardly turns the stream can still be crucial.

Identity: a run of one layer is the single layer's deletion.

Limit: as in analyses/layer_deletion.py. No cosine sees a layer that writes a very large value into one position: in SmolLM2-135M
layer 11 is the third most harmful to lose, and in the middle by every score. A rank correlation over 30 layers is rough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from analyses._addends import PARTS, Addends, whole_blocks
from analyses._damage import Damage, check_text
from analyses._deletion_run import deletion_cost, deletion_steps
from analyses._layer_scores import depth_change, spearman
from analyses._steps import Cost, Profile, Steps, drain

SWEPT = ("block", *PARTS)


@dataclass(frozen=True, eq=False)
class LayerSweep:
    """One deletion per part and layer."""

    parts: tuple[str, ...]  # "block", "attention", "mlp"
    positions: str  # "all" that have a next token, or the "last" one, which has no loss
    baseline_loss_nats: float  # per token; NaN for "last"
    loss_nats: Float32[np.ndarray, "part layer"]
    kl_nats: Float32[np.ndarray, "part layer"]  # KL(whole || deleted)
    top1_agreement: Float32[np.ndarray, "part layer"]  # of 1
    uniform_loss_nats: float  # ln(vocabulary)
    angular_distance: Float32[np.ndarray, " layer"]  # of 1, over the block, mean over positions from 1
    angular_distance_last: Float32[np.ndarray, " layer"]  # at the last position
    block_influence: Float32[np.ndarray, " layer"]  # 1 - cosine, mean over positions from 1
    # Rank correlation of each guess with the damage: the rise of the loss, or the KL divergence for "last".
    spearman_angular: Float32[np.ndarray, " part"]
    spearman_angular_last: Float32[np.ndarray, " part"]
    spearman_influence: Float32[np.ndarray, " part"]

    @property
    def loss_change_nats(self) -> Float64[np.ndarray, "part layer"]:
        """How much the loss rises without it."""
        return self.loss_nats.astype(np.float64) - self.baseline_loss_nats

    def to_frame(self) -> Any:
        """A pandas table, one row per part and layer."""
        import pandas as pd

        n_parts, n_layers = self.kl_nats.shape
        return pd.DataFrame(
            {
                "part": np.repeat(self.parts, n_layers),
                "layer": np.tile(np.arange(n_layers), n_parts),
                "loss_nats": self.loss_nats.ravel(),
                "loss_change_nats": self.loss_change_nats.ravel(),
                "kl_nats": self.kl_nats.ravel(),
                "top1_agreement": self.top1_agreement.ravel(),
                "angular_distance": np.tile(self.angular_distance, n_parts),
                "block_influence": np.tile(self.block_influence, n_parts),
            }
        )


@dataclass(frozen=True, eq=False)
class LayerRuns:
    """Every run of n neighbouring blocks deleted; row n - 1, column of its first layer, NaN past the last layer."""

    positions: str
    baseline_loss_nats: float
    loss_nats: Float32[np.ndarray, "n start"]
    kl_nats: Float32[np.ndarray, "n start"]
    top1_agreement: Float32[np.ndarray, "n start"]
    uniform_loss_nats: float
    angular_distance: Float32[np.ndarray, "n start"]  # over the run, mean over positions from 1
    angular_distance_last: Float32[np.ndarray, "n start"]
    spearman_angular: Float32[
        np.ndarray, " n"
    ]  # rank correlation with the damage over the starts; NaN below three starts
    best_start: tuple[int, ...]  # by damage, one for each n
    angular_start: tuple[int, ...]  # where the angular distance is smallest: the choice of Gromov et al.

    @property
    def loss_change_nats(self) -> Float64[np.ndarray, "n start"]:
        """How much the loss rises without the run."""
        return self.loss_nats.astype(np.float64) - self.baseline_loss_nats

    def to_frame(self) -> Any:
        """A pandas table, one row per run."""
        import pandas as pd

        n, start = np.nonzero(~np.isnan(self.kl_nats))
        columns = ("loss_nats", "loss_change_nats", "kl_nats", "top1_agreement", "angular_distance")
        return pd.DataFrame({"n": n + 1, "start": start} | {c: getattr(self, c)[n, start] for c in columns})


def layer_sweep_steps(
    model: Any,
    tokens: Any,
    *,
    parts: Sequence[str] = SWEPT,
    positions: str = "all",
    method: str = "auto",
) -> Steps[LayerSweep]:
    """The steps of `run_layer_sweep`; `partial` holds the three tables with NaN where nothing is known yet."""
    ids, n_layers = check_text(model, tokens, positions), model.config.n_layers
    variants = _single(parts, n_layers)

    def tables(damage: Damage) -> dict[str, Any]:
        return {name: array.reshape(len(parts), n_layers) for name, array in _measures(damage).items()}

    calls, whole, damage = yield from deletion_steps(
        model, ids, variants, positions=positions, method=method, partial=tables
    )
    change, found = depth_change(calls.resid, neighbours=True), tables(damage)
    mean, last = change.over_one_block()
    harm = found["loss_nats"] if positions == "all" else found["kl_nats"]
    guesses = {"angular": mean, "angular_last": last, "influence": change.block_influence}
    ranks = {f"spearman_{k}": np.array([spearman(g, row) for row in harm], np.float32) for k, g in guesses.items()}
    return LayerSweep(
        parts=tuple(parts),
        positions=positions,
        baseline_loss_nats=whole.loss_nats,
        uniform_loss_nats=float(np.log(model.config.d_vocab)),
        angular_distance=mean,
        angular_distance_last=last,
        block_influence=change.block_influence,
        **found,
        **ranks,
    )


def run_layer_sweep(
    model: Any, tokens: Any, *, parts: Sequence[str] = SWEPT, positions: str = "all", method: str = "auto"
) -> LayerSweep:
    """Delete every block, every attention and every MLP, one at a time.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        parts: any of "block", "attention", "mlp".
        positions: "all" that have a next token, or the "last" one alone.
        method: see `run_layer_deletion`.

    Raises:
        ValueError: an unknown or doubled part, or as `run_layer_deletion`.
    """
    return drain(layer_sweep_steps(model, tokens, parts=parts, positions=positions, method=method))


def cost_layer_sweep(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """A base run and (layers - 1) / 2 forward passes for the blocks, two more layers' worth for each of the others."""
    variants = _single(params.get("parts", SWEPT), profile.n_layers)
    return deletion_cost(profile, n_tokens, variants, params, 12 * (len(variants) + profile.n_layers) + 100)


def layer_runs_steps(
    model: Any, tokens: Any, *, max_n: int | None = None, positions: str = "all", method: str = "auto"
) -> Steps[LayerRuns]:
    """The steps of `run_layer_runs`; `partial` holds the tables with NaN where nothing is known yet."""
    ids, n_layers = check_text(model, tokens, positions), model.config.n_layers
    runs = _runs(max_n, n_layers)
    row, column = np.array([(n - 1, start) for n, start in runs]).T

    def tables(damage: Damage) -> dict[str, Any]:
        return {name: _table(row, column, array, n_layers) for name, array in _measures(damage).items()}

    variants = [whole_blocks(range(start, start + n)) for n, start in runs]
    calls, whole, damage = yield from deletion_steps(
        model, ids, variants, positions=positions, method=method, partial=tables
    )
    change, found = depth_change(calls.resid), tables(damage)
    mean, last = (_table(row, column, a[column, column + row + 1], n_layers) for a in change.angles)
    harm = found["loss_nats"] if positions == "all" else found["kl_nats"]
    return LayerRuns(
        positions=positions,
        baseline_loss_nats=whole.loss_nats,
        uniform_loss_nats=float(np.log(model.config.d_vocab)),
        angular_distance=mean,
        angular_distance_last=last,
        spearman_angular=np.array([spearman(*pair) for pair in zip(mean, harm, strict=True)], np.float32),
        best_start=tuple(int(i) for i in np.nanargmin(harm, axis=1)),
        angular_start=tuple(int(i) for i in np.nanargmin(mean, axis=1)),
        **found,
    )


def run_layer_runs(
    model: Any, tokens: Any, *, max_n: int | None = None, positions: str = "all", method: str = "auto"
) -> LayerRuns:
    """Delete every run of 1 to `max_n` neighbouring blocks.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        max_n: longest run; None goes up to all layers, which takes about (layers^2) / 6 forward passes.
        positions: "all" that have a next token, or the "last" one alone.
        method: see `run_layer_deletion`.

    Raises:
        ValueError: a length out of range, or as `run_layer_deletion`.
    """
    return drain(layer_runs_steps(model, tokens, max_n=max_n, positions=positions, method=method))


def cost_layer_runs(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """A base run; of the run that ends before block e the blocks from e on; a reading for each."""
    runs = _runs(params.get("max_n"), profile.n_layers)
    variants = [whole_blocks(range(start, start + n)) for n, start in runs]
    return deletion_cost(profile, n_tokens, variants, params, 20 * profile.n_layers * (runs[-1][0] + 1))


def _single(parts: Sequence[str], n_layers: int) -> list[Addends]:
    if isinstance(parts, str) or not parts or set(parts) - set(SWEPT) or len(set(parts)) < len(parts):
        raise ValueError(f"needs a list of {', '.join(SWEPT)}, each at most once; found {parts!r}; correct it.")
    return [
        whole_blocks([layer]) if part == "block" else frozenset({(layer, part)})
        for part in parts
        for layer in range(n_layers)
    ]


def _runs(max_n: int | None, n_layers: int) -> list[tuple[int, int]]:
    """(n, start) of every run."""
    longest = n_layers if max_n is None else max_n
    if isinstance(longest, bool) or not isinstance(longest, int) or not 1 <= longest <= n_layers:
        raise ValueError(f"needs runs of 1 to {n_layers} layers; found {max_n!r}; choose the longest run.")
    return [(n, start) for n in range(1, longest + 1) for start in range(n_layers - n + 1)]


def _measures(damage: Damage) -> dict[str, Float32[np.ndarray, " variant"]]:
    found = {"loss_nats": damage.loss_nats, "kl_nats": damage.kl_nats, "top1_agreement": damage.top1_agreement}
    return {name: array.astype(np.float32) for name, array in found.items()}


def _table(row: Any, column: Any, values: Any, n_layers: int) -> Float32[np.ndarray, "n start"]:
    table = np.full((row.max() + 1, n_layers), np.nan, dtype=np.float32)
    table[row, column] = values
    return table
