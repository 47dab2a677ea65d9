"""When does a model learn to copy from its context? One checkpoint of a tiny model, measured.

The tiny models are Llamas of width 64 with one or two layers, trained on the Python documentation (training/README.md). Measured
at one training step, as Olsson et al. 2022, "In-context Learning and Induction Heads", do for theirs:

* in-context-learning score: loss of tokens 200 to 255 minus loss of tokens 40 to 60 of the same held-out window, mean over the
  windows. Negative: the model uses what it has read. Windows differ more than checkpoints do, so two checkpoints are compared
  window by window (`paired_difference`).
* on 127 random tokens given twice: where every head looks (head_scores.py), and the loss on the first and on the second copy.
* the held-out loss.

With `ablate`, all of it with the output of one head, or of several, set to zero.

Identity: the loss of a window is the mean of its positions; the score is a difference of two parts of it.

Limit: two tiny models on one text. A quarter of the training windows repeated a passage; without that the two-layer model
showed no induction after 1,894 steps. For large models the same curves are correlation, not proof (Olsson et al. say so).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._arrays import to_float32
from analyses._heads import head_name
from analyses._repeated import copy_losses
from analyses._score_reader import ScoreReader, random_rows
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._tiny import (
    CHUNK,
    DEFAULT,
    Heads,
    check_tiny,
    held_out_windows,
    names_of,
    open_tiny,
    read_heads,
    repeated_rows,
    without_heads,
)

EARLY, LATE = slice(39, 60), slice(199, 255)  # columns of the loss: tokens 40 to 60, and 200 to 255
MOST_WINDOWS = 384
SECONDS_PER_WINDOW = 0.009  # measured on one thread of a shared server
OPENING_SECONDS, REPEAT_SECONDS = 1.0, 0.5


@dataclass(frozen=True, eq=False)
class TrainingDynamics:
    """One tiny model at one training step. Losses in nats per token, head scores from 0 to 1."""

    name: str
    step: int
    ablated: str  # the heads whose output was zero, such as "L1H0 L1H2"; "" for none
    n_windows: int
    held_out_loss_nats: float
    position_loss_nats: Float32[np.ndarray, " next"]  # of tokens 1 to 255, mean over the windows
    icl_windows_nats: Float32[np.ndarray, " window"]  # the in-context-learning score of every window
    icl_nats: float
    icl_error_nats: float  # standard error over windows: of this score, not of a difference of two
    induction: Float32[np.ndarray, "layer head"]
    previous_token: Float32[np.ndarray, "layer head"]
    first_copy_loss_nats: float
    second_copy_loss_nats: float  # without its first token

    def to_frame(self) -> Any:
        """A pandas table, one row per head: step, name, layer, head, induction, previous_token."""
        import pandas as pd

        layer, head = (index.ravel() for index in np.indices(self.induction.shape))
        columns: dict[str, Any] = {
            "step": self.step,
            "name": [head_name(int(i), int(j)) for i, j in zip(layer, head, strict=True)],
        }
        columns |= {"layer": layer, "head": head}
        return pd.DataFrame(
            columns | {"induction": self.induction.ravel(), "previous_token": self.previous_token.ravel()}
        )


def training_dynamics_steps(
    model: Any = None,
    tokens: Any = (),
    *,
    name: str = DEFAULT,
    step: int | None = None,
    ablate: Any = None,
    n_windows: int = MOST_WINDOWS,
) -> Steps[TrainingDynamics]:
    """The steps of `run_training_dynamics`: a forward pass per 16 windows, and one on repeated tokens."""
    step = check_tiny(name, step)
    if not 2 <= n_windows <= MOST_WINDOWS:
        raise ValueError(f"needs 2 to {MOST_WINDOWS} windows; found {n_windows}; choose how many to average over.")
    yield Progress(0, 1, note="opening the tiny model")
    return (yield from measured(lambda: open_tiny(name, step, asker=model), name, step, ablate, n_windows))


def run_training_dynamics(
    model: Any = None,
    tokens: Any = (),
    *,
    name: str = DEFAULT,
    step: int | None = None,
    ablate: Any = None,
    n_windows: int = MOST_WINDOWS,
) -> TrainingDynamics:
    """One tiny model at one training step, measured on held-out text and on random tokens given twice.

    Args:
        model: the open model, or None; it is not read, only asked whether to stop.
        tokens: not read.
        name: "tiny-induction" or "tiny-induction-1-layer".
        step: one of its checkpoints; the last when None.
        ablate: a pair [layer, head] whose output is set to zero everywhere, a list of such pairs, or None.
        n_windows: held-out windows, evenly spread over all 384; the same ones for the same number.

    Raises:
        ValueError: another name, a step that was not kept, a head that is not there, or a number of windows out of range.
    """
    return drain(training_dynamics_steps(model, tokens, name=name, step=step, ablate=ablate, n_windows=n_windows))


def cost_training_dynamics(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Its own model's passes, whatever model is open."""
    windows = params.get("n_windows", MOST_WINDOWS)
    seconds = OPENING_SECONDS + REPEAT_SECONDS + SECONDS_PER_WINDOW * windows
    return Cost(seconds, 150 << 20, 4 * (windows + 255 + 16) + 200)


def measured(
    at: Callable[[], Any], name: str, step: int, ablate: Any = None, n_windows: int = MOST_WINDOWS
) -> Steps[TrainingDynamics]:
    """The measurement itself, on the model that `at()` returns: at that step, also after another request has run."""
    import torch

    out = read_heads(at(), ablate)
    chosen = np.linspace(0, MOST_WINDOWS - 1, n_windows).round().astype(int)
    windows = torch.from_numpy(held_out_windows()[chosen].astype(np.int64))
    chunks = windows.split(CHUNK)
    losses = []
    for done, chunk in enumerate(chunks):
        yield Progress(done, len(chunks) + 1, note=f"step {step:,}: held-out text")
        tiny = at()
        with without_heads(tiny, out):
            losses.append(to_float32(token_losses(tiny.forward(chunk), chunk)))
    yield Progress(len(chunks), len(chunks) + 1, note=f"step {step:,}: repeated tokens")
    reader = read_repeated(at(), out)
    loss = np.concatenate(losses)
    icl = loss[:, LATE].mean(1) - loss[:, EARLY].mean(1)
    return TrainingDynamics(
        name=name,
        step=step,
        ablated=names_of(out),
        n_windows=n_windows,
        held_out_loss_nats=float(loss.mean(dtype=np.float64)),
        position_loss_nats=loss.mean(0),
        icl_windows_nats=icl,
        icl_nats=float(icl.mean()),
        icl_error_nats=float(icl.std(ddof=1) / len(icl) ** 0.5),
        induction=reader.score("induction"),
        previous_token=reader.score("previous_token"),
        first_copy_loss_nats=reader.losses[0],
        second_copy_loss_nats=reader.losses[1],
    )


def read_repeated(tiny: Any, out: Heads) -> ScoreReader:
    """Head scores and copy losses on random tokens given twice, with some heads taken out; one forward pass."""
    text = repeated_rows()
    reader = ScoreReader(tiny, random_rows(text))
    last: list[Any] = []
    with without_heads(tiny, out), tiny.hooks((tiny.hook_name("resid_post", tiny.config.n_layers - 1), _keep_in(last))):
        reader.run(tiny, text.ids)
    reader.losses = copy_losses(tiny, last[0], text)
    return reader


def _keep_in(kept: list[Any]) -> Callable[..., None]:
    return lambda tensor, hook: kept.append(tensor)


def token_losses(logits: Any, ids: Any) -> Any:
    """Loss in nats of every token but the first, [batch, pos - 1]."""
    log_probability = logits[:, :-1].log_softmax(-1)
    return -log_probability.gather(-1, ids[:, 1:, None])[..., 0]


def paired_difference(
    after: Float[np.ndarray, " window"],
    before: Float[np.ndarray, " same"],
) -> tuple[float, float]:
    """Mean and standard error of a difference, window by window: the same windows, so what they share drops out.

    Raises:
        ValueError: other windows, or fewer than two.
    """
    if after.shape != before.shape or len(after) < 2:
        raise ValueError(
            f"needs the same windows, two or more, on both sides; found {len(after)} and {len(before)}; measure both alike."
        )
    difference = np.subtract(after, before, dtype=np.float64)
    return float(difference.mean()), float(difference.std(ddof=1) / len(difference) ** 0.5)
