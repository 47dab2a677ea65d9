"""The shipped record of a training run: the loss of every step, and what was measured at the steps that were kept.

Read from training/log_<name>.json; no model is needed. training/measure.py wrote it from the float16 weights that ship, with the
functions that measure a checkpoint here (training_dynamics.py, training_causes.py).

Limit: one run each. The second seed shows that the moment differs and the course does not; two are no distribution.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses._tiny import FOLDER
from analyses.training_dynamics import paired_difference

LOGS = ("tiny-induction", "tiny-induction-1-layer", "tiny-induction-second-seed")
FIRST_BIN, BIN_RATIO = 50, 1.26  # of `loss_slope`: ten bins for a factor of ten in steps


@dataclass(frozen=True, eq=False)
class TrainingLog:
    """One run. `mark` counts the steps at which it was measured; losses in nats per token, head scores from 0 to 1."""

    name: str
    n_layers: int
    seed: int
    n_parameters: int
    tokens_per_step: int
    checkpoints: tuple[int, ...]  # steps whose weights ship; none for the second seed
    previous_head: tuple[int, int]  # layer 0's previous-token head: the one that scores highest at any mark
    induction_heads: tuple[
        tuple[int, int], ...
    ]  # the last layer's heads that score above 0.2 at the end, the highest first
    training_loss_nats: Float32[
        np.ndarray, " step"
    ]  # before each step, on its own batch: a quarter of the windows repeat
    marks: Int32[np.ndarray, " mark"]
    held_out_loss_nats: Float32[np.ndarray, " mark"]
    icl_windows_nats: Float32[np.ndarray, "mark window"]
    induction: Float32[np.ndarray, "mark layer head"]
    previous_token: Float32[np.ndarray, "mark layer head"]
    first_copy_loss_nats: Float32[np.ndarray, " mark"]
    second_copy_loss_nats: Float32[np.ndarray, " mark"]
    # As in training_causes.py: with one head's output zero, with all induction heads' and with all others' of their layer.
    ablated_second_copy_loss_nats: Float32[np.ndarray, "mark layer head"]
    ablated_induction: Float32[np.ndarray, "mark layer head"]
    together_second_copy_loss_nats: Float32[np.ndarray, " mark"]
    others_second_copy_loss_nats: Float32[np.ndarray, " mark"]
    # What each head of the layer below writes kept from the induction heads' query, key or value (in this order).
    path_second_copy_loss_nats: Float32[np.ndarray, "mark path below"]
    path_induction: Float32[np.ndarray, "mark path below"]
    copying: Float32[np.ndarray, "mark head"]  # share of merged tokens that each head of that layer copies

    @property
    def induction_head(self) -> tuple[int, int]:
        """The head that scores highest for induction at the end."""
        return self.induction_heads[0]

    @property
    def icl_nats(self) -> Float32[np.ndarray, " mark"]:
        """In-context-learning score at every mark."""
        return self.icl_windows_nats.mean(1)

    def mark_of(self, step: int) -> int:
        """Index of the mark at a step.

        Raises:
            ValueError: nothing was measured at that step.
        """
        if step not in self.marks:
            nearest = self.marks[np.abs(self.marks - step).argmin()]
            raise ValueError(f"needs a step that was measured; found {step:,}; the nearest is {nearest:,}.")
        return int(np.flatnonzero(self.marks == step)[0])

    def icl_change(self, step: int, since: int) -> tuple[float, float]:
        """Change of the in-context-learning score between two steps, and its standard error: paired, window by window."""
        after, before = (self.icl_windows_nats[self.mark_of(s)] for s in (step, since))
        return paired_difference(after, before)

    def smooth_loss(self, width: int = 101) -> tuple[Int32[np.ndarray, " _"], Float32[np.ndarray, " _"]]:
        """Steps, and the training loss as the mean of `width` steps around each."""
        means = np.convolve(self.training_loss_nats, np.ones(width) / width, "valid")
        return np.arange(len(means), dtype=np.int32) + width // 2, means.astype(np.float32)

    def loss_slope(self) -> tuple[Float32[np.ndarray, " _"], Float32[np.ndarray, " _"]]:
        """Steps, and d(training loss) / d(ln step) there: differences between means over bins of equal ratio.

        A loss that falls like a power of time shows a smooth curve; a phase change shows a dip (Olsson et al. 2022).
        """
        n = len(self.training_loss_nats)
        edges = np.unique(
            np.geomspace(FIRST_BIN, n, 1 + round(np.log(n / FIRST_BIN) / np.log(BIN_RATIO))).round().astype(int)
        )
        means = np.array([self.training_loss_nats[a:b].mean() for a, b in zip(edges, edges[1:], strict=False)])
        centres = np.sqrt(edges[:-1] * edges[1:])
        slope = np.diff(means) / np.diff(np.log(centres))
        return edges[1:-1].astype(np.float32), slope.astype(np.float32)

    def to_frame(self) -> Any:
        """A pandas table, one row per mark: step, losses, in-context-learning score, every head's two scores."""
        import pandas as pd

        columns: dict[str, Any] = {
            "step": self.marks,
            "held_out_loss_nats": self.held_out_loss_nats,
            "icl_nats": self.icl_nats,
        }
        columns |= {
            "first_copy_loss_nats": self.first_copy_loss_nats,
            "second_copy_loss_nats": self.second_copy_loss_nats,
        }
        for layer, head in np.ndindex(self.induction.shape[1:]):
            columns[f"induction_L{layer}H{head}"] = self.induction[:, layer, head]
            columns[f"previous_token_L{layer}H{head}"] = self.previous_token[:, layer, head]
        return pd.DataFrame(columns)


@functools.cache
def load_training_log(name: str = LOGS[0]) -> TrainingLog:
    """The record of a run.

    Args:
        name: "tiny-induction", "tiny-induction-1-layer", or "tiny-induction-second-seed" (the first one's recipe).

    Raises:
        ValueError: another name, or a clone without its record.
    """
    if name not in LOGS:
        raise ValueError(f"needs one of {', '.join(LOGS)}; found {name!r}; choose one of them.")
    path = FOLDER / f"log_{name}.json"
    if not path.exists():
        raise ValueError(f"needs {path.name}; found none in {FOLDER}; get a whole copy of this project.")
    record = json.loads(path.read_text("utf-8"))
    plain = ("name", "n_layers", "seed", "n_parameters", "tokens_per_step")
    pairs = ("checkpoints", "previous_head")
    known = (*plain, *pairs, "induction_heads")
    return TrainingLog(
        **{key: record[key] for key in plain},
        **{key: tuple(record[key]) for key in pairs},
        induction_heads=tuple((layer, head) for layer, head in record["induction_heads"]),
        **{item.name: _array(record, item.name) for item in fields(TrainingLog) if item.name not in known},
    )


def _array(record: Mapping[str, Any], name: str) -> np.ndarray:
    found = np.array(record[name], np.int32 if name == "marks" else np.float32)
    if not found.size:  # no paths where there is no layer below: JSON has no shape
        found = found.reshape(len(found), 0, 0)
    found.flags.writeable = False
    return found
