"""What if we add a direction to the stream? The next token with a steering vector, without it, and with a random one.

Before block `layer` the stream of every position from 1 on becomes x + coefficient * r * v / |v|, where r is the mean length of
the stream there on a fixed text (Turner et al. 2023, "Activation Addition: Steering Language Models Without Optimization"; the
unit is ours: ActAdd and CAA state raw coefficients, which mean something else at every layer). The control is a random direction
of the same length: what it does too is the size's doing, not the direction's.

Identity: coefficient 0 is the plain model, bit for bit; the projection before block `layer` grows by exactly the length added.

Limit: that concepts are directions is a working hypothesis. Effects vary strongly by prompt and can reverse (Tan et al. 2024,
"Analyzing the Generalization and Reliability of Steering Vectors"; Braun et al. 2025, "Understanding (Un)Reliability of Steering
Vectors in Language Models"); for two Gemma 2 models prompting beat every steering method tried (Wu et al. 2025, "AxBench").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int32

from analyses._arrays import check_ids, to_float32
from analyses._steer import Steer, control_of, reference_norms, steer_hooks, steer_of
from analyses._steer_words import log_odds, read_words
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses.sampling import log_softmax

COEFFICIENT = 0.3  # what the embedded model's examples are best shown with
WORKING = (-0.6, 0.6)  # beyond, the embedded model's text breaks down (docs/log.md)
RUNS = ("baseline", "steered", "random")


@dataclass(frozen=True, eq=False)
class Steering:
    """What the last position predicts in each run; `runs` names the first axis."""

    runs: tuple[str, ...]  # RUNS, or "steered" alone without the comparison
    layers: tuple[int, ...]
    coefficient: float | None
    added: Float32[np.ndarray, " layer"]  # length added before each of `layers`; NaN when projecting out
    added_relative: Float32[np.ndarray, " layer"]  # of the stream's mean length there
    n_steered: int  # positions of the prompt that were changed
    logits: Float32[np.ndarray, "run d_vocab"]
    top_ids: Int32[np.ndarray, "run k"]
    top_log_probability: Float32[np.ndarray, "run k"]  # nats
    kl_nats: Float32[np.ndarray, " run"]  # KL(baseline || run); NaN without the comparison
    target_ids: tuple[int, ...]
    target_log_probability: Float32[np.ndarray, "run target"]
    against_ids: tuple[int, ...]
    against_log_probability: Float32[np.ndarray, "run opposite"]
    log_odds: Float64[np.ndarray, " run"]  # targets against opposites (or all others), nats; NaN without targets
    projection: Float32[
        np.ndarray, "run depth"
    ]  # last position's stream along the direction, in its own units; NaN as above
    reference_norms: Float32[np.ndarray, " depth"]

    @property
    def log_odds_change(self) -> Float64[np.ndarray, " run"]:
        """Against the baseline; NaN without it."""
        return self.log_odds - self.log_odds[0] if len(self.runs) > 1 else np.full(1, np.nan)

    def raised(self, run: str = "steered", k: int = 10, *, floor: float = 1e-3) -> tuple[Any, Any]:
        """Tokens whose probability rises most against the baseline, and those that fall most: two arrays of ids.

        Only tokens that have at least `floor` in one of the two.
        """
        before, after = (np.exp(log_softmax(self.logits[self.runs.index(name)])) for name in ("baseline", run))
        shown = np.flatnonzero(np.maximum(before, after) >= floor)
        order = shown[np.argsort((after - before)[shown], kind="stable")]
        up, down = order[::-1][:k], order[:k]
        return up[after[up] > before[up]], down[after[down] < before[down]]

    def to_frame(self) -> Any:
        """A pandas table, one row per run and listed token: run, rank, id, log_probability_nats."""
        import pandas as pd

        n_runs, k = self.top_ids.shape
        return pd.DataFrame(
            {
                "run": np.repeat(self.runs, k),
                "rank": np.tile(np.arange(k), n_runs),
                "id": self.top_ids.ravel(),
                "log_probability_nats": self.top_log_probability.ravel(),
            }
        )


def steering_steps(
    model: Any,
    tokens: Any,
    *,
    vector: Any,
    coefficient: Any = None,
    size: Any = None,
    layer: Any = None,
    where: str = "both",
    mode: str = "add",
    first: bool = False,
    targets: Any = (),
    against: Any = (),
    top_k: int = 10,
    seed: Any = 0,
    compare: bool = True,
) -> Steps[Steering]:
    """The steps of `run_steering`: one forward pass per run."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    if coefficient is None and size is None:
        coefficient = 1.0 if mode == "project_out" else COEFFICIENT
    steer = steer_of(
        model, vector, layer=layer, coefficient=coefficient, size=size, mode=mode, where=where, first=first
    )
    wanted, other = read_words(model, targets, against)
    if not 1 <= top_k <= config.d_vocab:
        raise ValueError(f"needs a top-k from 1 to {config.d_vocab:,}; found {top_k:,}; choose how many to list.")
    model.require("resid_writable")
    yield Progress(0, 4, note="lengths of the stream")
    norms = reference_norms(model)
    plans = {"baseline": None, "steered": steer, "random": control_of(steer, seed)} if compare else {"steered": steer}
    logits, projection = [], []
    for index, (name, plan) in enumerate(plans.items()):
        yield Progress(index + 1, len(plans) + 1, note=name)
        row, along = _last_position(model, ids, plan, steer if compare else None)
        logits.append(row)
        projection.append(along)
    return _result(steer, tuple(plans), np.stack(logits), np.stack(projection), norms, len(ids), (wanted, other), top_k)


def run_steering(
    model: Any,
    tokens: Any,
    vector: Any,
    *,
    coefficient: Any = None,
    size: Any = None,
    layer: Any = None,
    where: str = "both",
    mode: str = "add",
    first: bool = False,
    targets: Any = (),
    against: Any = (),
    top_k: int = 10,
    seed: Any = 0,
    compare: bool = True,
) -> Steering:
    """The next token after a prompt: plain, steered, and steered at random with the same length.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        vector: a `SteeringVector`, or its `wire` form.
        coefficient: what is added, in mean lengths of the stream at that layer; 0.3 unless a size is given. For
            "project_out" the share of the component that is taken away (1 unless given).
        size: instead, the length that is added in the stream's own units.
        layer: the block whose input is changed; [first, last] changes several; None takes the vector's.
        where: "prompt" (before its last position), "new" (the last position, which predicts the next token) or "both".
        mode: "add" or "project_out".
        first: change position 0 too, where many models keep a very long stream.
        targets: tokens that should become likelier: ids, or texts that are one token.
        against: tokens to compare them with; all others when there are none.
        top_k: how many predicted tokens to list.
        seed: of the random control.
        compare: False runs the steered model alone, for a slider that moves; what compares is NaN then.

    Raises:
        ValueError: a vector of another model or width, an amount, layer or place out of range, or words that are no token.
    """
    return drain(
        steering_steps(
            model,
            tokens,
            vector=vector,
            coefficient=coefficient,
            size=size,
            layer=layer,
            where=where,
            mode=mode,
            first=first,
            targets=targets,
            against=against,
            top_k=top_k,
            seed=seed,
            compare=compare,
        )
    )


def cost_steering(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Three forward passes, or one, read out at the last position."""
    runs = 3 if params.get("compare", True) else 1
    return Cost(
        seconds=runs * (profile.forward_seconds(n_tokens) + profile.per_readout),
        peak_bytes=profile.forward_bytes(n_tokens) + 40 * profile.d_vocab,
        result_bytes=runs * 4 * (profile.d_vocab + profile.n_layers + 2 * params.get("top_k", 10)) + 400,
    )


def _last_position(
    model: Any, ids: tuple[int, ...], plan: Steer | None, watched: Steer | None
) -> tuple[Float32[np.ndarray, " d_vocab"], Float32[np.ndarray, " depth"]]:
    """Logits of the last position, and the length of its stream along the watched direction at every depth."""
    import torch

    n_layers = model.config.n_layers
    along = np.full(n_layers + 1, np.nan, dtype=np.float32)
    pairs = [] if plan is None else steer_hooks(model, plan, start=0, n_prompt=len(ids))
    if watched is not None:
        unit = torch.tensor(watched.direction, device=model.config.device)

        def noting(depth: int) -> Callable[..., None]:
            def note(tensor: Float[Any, "1 pos d_model"], hook: Any) -> None:
                along[depth] = float(tensor[0, -1].float() @ unit)

            return note

        # After the steering hooks: what is read before block `layer` is what that block reads.
        pairs += [(model.hook_name("resid_pre", layer), noting(layer)) for layer in range(n_layers)]
        pairs.append((model.hook_name("resid_post", n_layers - 1), noting(n_layers)))
    with model.hooks(*pairs):
        logits = model.forward(ids, last_only=True)[0, -1]
    return to_float32(logits), along


def _result(
    steer: Steer,
    runs: tuple[str, ...],
    logits: Float32[np.ndarray, "run d_vocab"],
    projection: Float32[np.ndarray, "run depth"],
    norms: Float32[np.ndarray, " depth"],
    n_prompt: int,
    words: tuple[Sequence[int], Sequence[int]],
    top_k: int,
) -> Steering:
    log_p = np.stack([log_softmax(row) for row in logits])
    top = np.argpartition(-logits, top_k - 1, axis=1)[:, :top_k]
    top = np.stack([row[np.lexsort((row, -values[row]))] for row, values in zip(top, logits, strict=True)])
    kl = np.full(len(runs), np.nan)
    if len(runs) > 1:
        kl = np.maximum((np.exp(log_p[0]) * (log_p[0] - log_p)).sum(1), 0.0)
    at = steer.span(0, n_prompt, n_prompt)
    if steer.mode == "project_out":
        added = np.full(len(steer.layers), np.nan)
    elif steer.size is not None:
        added = np.full(len(steer.layers), steer.size)
    else:
        added = float(steer.coefficient or 0) * norms[list(steer.layers)].astype(np.float64)
    return Steering(
        runs=runs,
        layers=steer.layers,
        coefficient=steer.coefficient,
        added=added.astype(np.float32),
        added_relative=(added / norms[list(steer.layers)]).astype(np.float32),
        n_steered=0 if steer.is_nothing else at.stop - at.start,
        logits=logits,
        top_ids=top.astype(np.int32),
        top_log_probability=np.take_along_axis(log_p, top, axis=1).astype(np.float32),
        kl_nats=kl.astype(np.float32),
        target_ids=tuple(words[0]),
        target_log_probability=log_p[:, list(words[0])].astype(np.float32),
        against_ids=tuple(words[1]),
        against_log_probability=log_p[:, list(words[1])].astype(np.float32),
        log_odds=log_odds(log_p, *words),
        projection=projection,
        reference_norms=norms,
    )
