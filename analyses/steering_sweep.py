"""Where does a vector work, and where does it break? Effect and damage for every layer and coefficient.

Effect: how much the log-odds of the target tokens rise at the end of the prompts (without targets: how far the last stream moves
along the direction, in lengths of the stream there). Damage: KL and loss on neutral sentences, as in analyses/steering_damage.py.
A row of the same lengths along a random direction, at the vector's own layer, says what size alone does.

All cells are rows of a few batches that leave the plain run at their layer (analyses/_variants.py), not one forward pass each.

Identity: every cell is what `run_steering` and, on the same neutral texts (by default the first four), `run_steering_damage`
say of it; coefficient 0 is exactly zero.

Limit: the largest effect is not the best vector: late layers act almost directly on the logits and change words, middle layers
change what the text is about. Judge by generated text too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32

from analyses._arrays import check_ids
from analyses._contrast_texts import read_texts
from analyses._steer import reference_norms
from analyses._steer_runs import reading_share, steered_cost, steered_steps
from analyses._steer_words import read_words
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._sweep_cells import Cells, Table
from analyses.neutral_texts import NEUTRAL_TEXTS
from analyses.steering_damage import text_lengths

COEFFICIENTS = (-0.6, -0.3, 0.15, 0.3, 0.6, 1.0)
TEXTS = 4  # of the neutral ones: half of them rank cells as all do, in half the time
BREAKS_NATS = (
    2.0  # a rise of the loss on neutral text, from which the embedded model's own text falls apart (docs/log.md)
)


@dataclass(frozen=True, eq=False)
class SteeringSweep:
    """A row per layer, a column per coefficient. While it runs, means over the texts so far; NaN where nothing is known."""

    layers: Int32[np.ndarray, " layer"]
    coefficients: Float32[np.ndarray, " coefficient"]
    unit: str  # of the effect: "log-odds (nats)" or "lengths of the stream"
    effect: Float32[np.ndarray, "layer coefficient"]
    kl_nats: Float32[np.ndarray, "layer coefficient"]
    loss_change_nats: Float32[np.ndarray, "layer coefficient"]
    random_layer: int
    random_effect: Float32[np.ndarray, " coefficient"]
    random_kl_nats: Float32[np.ndarray, " coefficient"]
    random_loss_change_nats: Float32[np.ndarray, " coefficient"]
    baseline_log_odds: float  # NaN without targets
    reference_norms: Float32[np.ndarray, " layer"]  # the stream's length before each of `layers`

    @property
    def breaks(self) -> Bool[np.ndarray, "layer coefficient"]:
        """Where neutral text loses more than `BREAKS_NATS`."""
        return self.loss_change_nats > BREAKS_NATS

    @property
    def best(self) -> tuple[int, float] | None:
        """Layer and coefficient of the largest effect that does not break; None when all break."""
        shown = np.where(self.breaks | ~np.isfinite(self.effect), -np.inf, self.effect)
        if not np.isfinite(shown).any():
            return None
        row, column = np.unravel_index(int(shown.argmax()), shown.shape)
        return int(self.layers[row]), float(self.coefficients[column])

    def to_frame(self) -> Any:
        """A pandas table, one row per cell and then the random ones: direction, layer, coefficient, and the three measures."""
        import pandas as pd

        rows, columns = np.meshgrid(self.layers, self.coefficients, indexing="ij")
        n_random = len(self.coefficients)

        def both(name: str) -> Any:
            return np.concatenate([getattr(self, name).ravel(), getattr(self, f"random_{name}")])

        return pd.DataFrame(
            {
                "direction": ["vector"] * rows.size + ["random"] * n_random,
                "layer": np.concatenate([rows.ravel(), np.full(n_random, self.random_layer)]),
                "coefficient": np.concatenate([columns.ravel(), self.coefficients]),
                "effect": both("effect"),
                "kl_nats": both("kl_nats"),
                "loss_change_nats": both("loss_change_nats"),
            }
        )


def steering_sweep_steps(
    model: Any,
    tokens: Any,
    *,
    vector: Any,
    layers: Any = None,
    coefficients: Any = COEFFICIENTS,
    targets: Any = (),
    against: Any = (),
    prompts: Any = (),
    texts: Any = None,
    where: str = "both",
    seed: Any = 0,
) -> Steps[SteeringSweep]:
    """The steps of `run_steering_sweep`: for every text a plain run, then a step per block of a batch of cells."""
    config = model.config
    cells = Cells(model, vector, layers, coefficients, where, seed, spread_layers(config.n_layers))
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    every = [ids, *(read_texts(model, prompts, "prompt", at_least=1) if prompts else ())]
    neutral = read_texts(model, NEUTRAL_TEXTS[:TEXTS] if texts is None else texts, "neutral")
    words = read_words(model, targets, against)
    model.require("resid_writable", "readout")
    total = float(1 + sum(map(len, every)) + sum(map(len, neutral)))
    yield Progress(0.0, total, note="lengths of the stream")
    norms = reference_norms(model)
    table, done = Table(model, cells, *words), 1.0
    for text, read_text, variants in [
        *((text, table.read_prompt, cells.variants) for text in every),
        *((text, table.read_neutral, cells.on_neutral) for text in neutral),
    ]:
        yield Progress(done, total, note="the plain model", partial=table.shaped())
        calls = model.capture_calls(text)
        read, n_read = read_text(text, calls)
        reading = reading_share(model, n_read, len(text))
        for part in steered_steps(model, text, variants, calls, read, reading=reading):
            yield Progress(done + len(text) * part.done / part.total, total, note="steered")
        done += len(text)
    yield Progress(total, total, partial=table.shaped())
    return SteeringSweep(
        layers=np.array(cells.layers, dtype=np.int32),
        coefficients=np.array(cells.coefficients, dtype=np.float32),
        unit="log-odds (nats)" if words[0] else "lengths of the stream",
        random_layer=cells.base.layers[0],
        baseline_log_odds=float(np.mean(table.baseline)),
        reference_norms=norms[list(cells.layers)],
        **table.shaped(),
    )


def run_steering_sweep(
    model: Any,
    tokens: Any,
    vector: Any,
    *,
    layers: Any = None,
    coefficients: Any = COEFFICIENTS,
    targets: Any = (),
    against: Any = (),
    prompts: Any = (),
    texts: Any = None,
    where: str = "both",
    seed: Any = 0,
) -> SteeringSweep:
    """Effect and damage of a vector at several layers and coefficients.

    Args:
        model: a HookedModel.
        tokens: the prompt at whose end the effect is read: ids, or the `Tokens` of `run_tokenization`.
        vector: a `SteeringVector`, or its `wire` form. The same direction is added at every layer.
        layers: where; about ten spread ones when None.
        coefficients: in mean lengths of the stream at that layer.
        targets: tokens that should become likelier (ids, or texts that are one token); none reads the projection instead.
        against: tokens to compare them with; all others when there are none.
        prompts: more prompts (ids or strings); the effect is the mean over all.
        texts: neutral texts, as ids or strings; four of analyses/neutral_texts.py when None.
        where: of the prompts: "prompt", "new" or "both".
        seed: of the random control.

    Raises:
        ValueError: as `run_steering`, or too many cells.
    """
    return drain(
        steering_sweep_steps(
            model,
            tokens,
            vector=vector,
            layers=layers,
            coefficients=coefficients,
            targets=targets,
            against=against,
            prompts=prompts,
            texts=texts,
            where=where,
            seed=seed,
        )
    )


def cost_steering_sweep(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Of every prompt and neutral text one plain run, then the blocks from each cell's layer on."""
    layers = params.get("layers")
    layers = spread_layers(profile.n_layers) if layers is None else layers
    coefficients = params.get("coefficients", COEFFICIENTS)
    starts = [int(layer) for layer in layers for _ in coefficients] + [0] * len(coefficients)
    prompts = [n_tokens, *(text_lengths(params["prompts"]) if params.get("prompts") else ())]
    texts = params.get("texts")
    neutral = text_lengths(None)[:TEXTS] if texts is None else text_lengths(texts)
    parts = [steered_cost(profile, n, starts, n_read=1) for n in prompts]
    parts += [steered_cost(profile, n, starts, n_read=n) for n in neutral]
    return Cost(
        seconds=sum(part.seconds for part in parts) + profile.forward_seconds(97),
        peak_bytes=max(part.peak_bytes for part in parts),
        result_bytes=12 * len(starts) + 400,
    )


def spread_layers(n_layers: int, n: int = 10) -> list[int]:
    """About ten layers from the first to the last."""
    return sorted({round(i * (n_layers - 1) / max(1, n - 1)) for i in range(min(n, n_layers))})
