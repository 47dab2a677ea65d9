"""What does steering cost? Neutral sentences read by the plain model, the steered one, and one steered at random.

KL(plain || steered) and the rise of the loss are means over the tokens of a sentence that have a next one, and of these over
eight neutral sentences. Every
position from 1 on is steered, whatever `where` says of a prompt: a neutral sentence stands for text that the model goes on with.
The control is a random direction of the same length at the same layers.

It also says what the vector raises in effect: tokens whose mean probability over all these positions grows by the largest factor,
among those that have at least one in 5,000 before or after.

Identity: coefficient 0 costs exactly nothing.

Limit: the loss on neutral text is not the quality of what is generated; repetition lowers it (see repetition.py).
Steering can also change answers and safety behaviour without any trace here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int32

from analyses._contrast_texts import read_texts
from analyses._readout import row_chunks
from analyses._steer import control_of, reference_norms, steer_of
from analyses._steer_runs import steered_cost, steered_steps
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses.neutral_texts import NEUTRAL_TEXTS, NEUTRAL_TOKENS
from analyses.steering import COEFFICIENT, RUNS

FLOOR = 2e-4  # mean probability from which a token is listed as raised or lowered


@dataclass(frozen=True, eq=False)
class SteeringDamage:
    """Per run (baseline, steered, random) and text; means over the tokens of a text that have a next one."""

    runs: tuple[str, ...]
    coefficient: float | None
    n_tokens: Int32[np.ndarray, " text"]
    kl_nats: Float32[np.ndarray, "run text"]  # KL(baseline || run)
    loss_nats: Float32[np.ndarray, "run text"]
    agreement: Float32[np.ndarray, "run text"]  # share of the positions with the baseline's first choice
    raised_ids: Int32[np.ndarray, " k"]  # by the vector, most first
    raised_change: Float32[np.ndarray, " k"]  # of the logarithm of its mean probability over all positions, nats
    lowered_ids: Int32[np.ndarray, " other_k"]
    lowered_change: Float32[np.ndarray, " other_k"]

    @property
    def mean_kl_nats(self) -> Float64[np.ndarray, " run"]:
        """Mean over the texts, each counted once."""
        return self.kl_nats.astype(np.float64).mean(1)

    @property
    def loss_change_nats(self) -> Float64[np.ndarray, " run"]:
        """Rise of the loss against the baseline, mean over the texts."""
        loss = self.loss_nats.astype(np.float64).mean(1)
        return loss - loss[0]

    def to_frame(self) -> Any:
        """A pandas table, one row per run and text: run, text (from 0), kl_nats, loss_nats, agreement."""
        import pandas as pd

        n_runs, n_texts = self.kl_nats.shape
        columns = {name: getattr(self, name).ravel() for name in ("kl_nats", "loss_nats", "agreement")}
        return pd.DataFrame(
            {"run": np.repeat(self.runs, n_texts), "text": np.tile(np.arange(n_texts), n_runs)} | columns
        )


def steering_damage_steps(
    model: Any,
    tokens: Any = (),
    *,
    vector: Any,
    coefficient: Any = None,
    size: Any = None,
    layer: Any = None,
    mode: str = "add",
    first: bool = False,
    texts: Any = None,
    seed: Any = 0,
    top_k: int = 12,
) -> Steps[SteeringDamage]:
    """The steps of `run_steering_damage`: a plain run of every text, and two rows that leave it at the steered layer."""
    if coefficient is None and size is None:
        coefficient = 1.0 if mode == "project_out" else COEFFICIENT
    steer = steer_of(model, vector, layer=layer, coefficient=coefficient, size=size, mode=mode, first=first)
    steer = replace(steer, where="both")
    every = read_texts(model, NEUTRAL_TEXTS if texts is None else texts, "neutral")
    if not 1 <= top_k <= model.config.d_vocab:
        raise ValueError(f"needs a top-k from 1 to {model.config.d_vocab:,}; found {top_k:,}; choose how many to list.")
    model.require("resid_writable", "readout")
    yield Progress(0, len(every) + 1, note="lengths of the stream")
    reference_norms(model)
    reader = _Reader(model, len(every))
    variants = [] if steer.is_nothing else [steer, control_of(steer, seed)]
    for index, ids in enumerate(every):
        yield Progress(index + 1, len(every) + 1, note=f"neutral sentence {index + 1} of {len(every)}")
        calls = model.capture_calls(ids)
        read = reader.begin(index, ids, calls.logits[0])
        for part in steered_steps(model, ids, variants, calls, read):
            yield Progress(index + 1 + part.done / part.total, len(every) + 1, note=part.note)
    change = reader.change()
    order = np.argsort(-change, kind="stable")
    up, down = order[:top_k], order[::-1][:top_k]
    up, down = up[change[up] > 0], down[change[down] < 0]
    return SteeringDamage(
        runs=RUNS,
        coefficient=steer.coefficient,
        n_tokens=np.array([len(ids) for ids in every], dtype=np.int32),
        kl_nats=reader.kl,
        loss_nats=reader.loss,
        agreement=reader.agreement,
        raised_ids=up.astype(np.int32),
        raised_change=change[up].astype(np.float32),
        lowered_ids=down.astype(np.int32),
        lowered_change=change[down].astype(np.float32),
    )


def run_steering_damage(
    model: Any,
    vector: Any,
    *,
    coefficient: Any = None,
    size: Any = None,
    layer: Any = None,
    mode: str = "add",
    first: bool = False,
    texts: Any = None,
    seed: Any = 0,
    top_k: int = 12,
) -> SteeringDamage:
    """What a steering vector does to text that has nothing to do with it.

    Args:
        model: a HookedModel.
        vector: a `SteeringVector`, or its `wire` form.
        coefficient: in mean lengths of the stream, or the share to project out; 0.3 (1) unless a size is given.
        size: instead, the length that is added.
        layer: the block whose input is changed, or [first, last]; None takes the vector's.
        mode: "add" or "project_out".
        first: change position 0 too.
        texts: other neutral texts, as ids or strings; the eight of analyses/neutral_texts.py when None.
        seed: of the random control.
        top_k: how many raised and lowered tokens to list.

    Raises:
        ValueError: as `run_steering`, or texts of fewer than two tokens.
    """
    how = {"coefficient": coefficient, "size": size, "layer": layer, "mode": mode, "first": first}
    return drain(steering_damage_steps(model, vector=vector, **how, texts=texts, seed=seed, top_k=top_k))


def cost_steering_damage(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Of every neutral text one plain run, and two rows from the steered layer on."""
    layer = first_layer(params)
    parts = [steered_cost(profile, n, [layer] * 2, n_read=n) for n in text_lengths(params.get("texts"))]
    return Cost(
        seconds=sum(part.seconds for part in parts) + profile.forward_seconds(97),
        peak_bytes=max(part.peak_bytes for part in parts) + 64 * profile.d_vocab,
        result_bytes=48 * len(parts) + 16 * params.get("top_k", 12),
    )


def text_lengths(texts: Sequence[Any] | None) -> list[int]:
    """Tokens of each text, estimated where it is not ids yet; the built-in texts when None."""
    if texts is None:
        return [NEUTRAL_TOKENS] * len(NEUTRAL_TEXTS)
    return [max(2, len(text) // 3 if isinstance(text, str) else len(text)) for text in texts] or [1]


def first_layer(params: Mapping[str, Any]) -> int:
    """The first steered layer that the parameters of an analysis name; 0 when they name none, which costs most."""
    vector, found = params.get("vector"), params.get("layer")
    if found is None:
        inner = vector.get("steer", vector) if isinstance(vector, Mapping) else None
        found = inner.get("layer", 0) if isinstance(inner, Mapping) else getattr(vector, "layer", 0)
    return int(min(found)) if isinstance(found, list | tuple) else int(found)


class _Reader:
    """Collects what the runs say of each text."""

    def __init__(self, model: Any, n_texts: int) -> None:
        self._model = model
        self.kl, self.loss = np.zeros((2, len(RUNS), n_texts), dtype=np.float32)
        self.agreement = np.ones((len(RUNS), n_texts), dtype=np.float32)
        self._shares = np.zeros((2, model.config.d_vocab))  # summed probability over positions: baseline, steered
        self._n_positions = 0

    def begin(self, text: int, ids: tuple[int, ...], logits: Any) -> Any:
        """Note the plain run; returns what reads the others."""
        import torch

        following = torch.tensor(ids[1:], device=logits.device)[:, None]
        plain = logits[:-1].float().log_softmax(-1)
        self.loss[:, text] = -float(plain.gather(-1, following).mean())

        def read(which: Sequence[int], rows: Any) -> None:
            for variant, row in zip(which, rows, strict=True):
                kl, loss, same = 0.0, 0.0, 0
                for at in row_chunks(self._model, len(ids) - 1, held=4):
                    found = self._model.readout(row[:-1][at]).float().log_softmax(-1)
                    shares = plain[at].exp()
                    kl += float((shares * (plain[at] - found)).sum())
                    loss -= float(found.gather(-1, following[at]).sum())
                    same += int((found.argmax(-1) == plain[at].argmax(-1)).sum())
                    if variant == 0:
                        self._shares += torch.stack([shares.sum(0), found.exp().sum(0)]).double().cpu().numpy()
                        self._n_positions += len(found)
                n = len(ids) - 1
                self.kl[variant + 1, text], self.loss[variant + 1, text] = max(kl / n, 0.0), loss / n
                self.agreement[variant + 1, text] = same / n

        return read

    def change(self) -> Float64[np.ndarray, " d_vocab"]:
        """Rise of the logarithm of every token's mean probability; zero for tokens that are rare in both."""
        mean = self._shares / max(1, self._n_positions)
        shown = mean.max(0) >= FLOOR
        return np.where(shown, np.log(np.maximum(mean[1], 1e-12)) - np.log(np.maximum(mean[0], 1e-12)), 0.0)
