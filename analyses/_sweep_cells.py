"""The cells of a steering sweep, and what each text says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from analyses._arrays import to_float32
from analyses._damage import Yardstick, no_damage_yet
from analyses._readout import row_chunks
from analyses._steer import MAX_COEFFICIENT, control_of, read_layers, reference_norms, steer_of
from analyses._steer_words import log_odds
from analyses._variants import Read

MAX_CELLS = 600
MEASURES = ("effect", "kl_nats", "loss_change_nats")

# What a text is read with, and how many positions of each variant it reads.
Reading = tuple[Read, int]


class Cells:
    """Layers x coefficients, row by row, then the coefficients along a random direction at the vector's own layer.

    Coefficient 0 is the plain model, so it is no variant.
    """

    def __init__(
        self, model: Any, vector: Any, layers: Any, coefficients: Any, where: str, seed: Any, default: Sequence[int]
    ) -> None:
        base = steer_of(model, vector, coefficient=1.0, where=where, mode="add")
        self.layers = tuple(default) if layers is None else _numbers(layers, "layers", int)
        for layer in self.layers:
            read_layers(layer, model.config.n_layers)
        self.coefficients = _numbers(coefficients, "coefficients", float)
        if max(map(abs, self.coefficients)) > MAX_COEFFICIENT:
            raise ValueError(
                f"needs coefficients from -{MAX_COEFFICIENT:g} to {MAX_COEFFICIENT:g}; found a larger one; 0.3 is usual."
            )
        self.n = (len(self.layers) + 1) * len(self.coefficients)
        if self.n > MAX_CELLS:
            raise ValueError(
                f"needs at most {MAX_CELLS} cells with the random row; found {self.n}; sweep fewer layers."
            )
        self.base = replace(base, layers=base.layers[:1])
        control = control_of(self.base, seed)
        every = [replace(base, layers=(layer,), coefficient=c) for layer in self.layers for c in self.coefficients]
        every += [replace(control, coefficient=c) for c in self.coefficients]
        self.where = [index for index, steer in enumerate(every) if not steer.is_nothing]  # variant -> cell
        self.variants = [every[index] for index in self.where]
        # A neutral sentence stands for text that the model goes on with: all of it is steered.
        self.on_neutral = [replace(steer, where="both") for steer in self.variants]


class Table:
    """Collects what the texts say; every measure is a mean over those that have said something of a cell."""

    def __init__(self, model: Any, cells: Cells, targets: Sequence[int], against: Sequence[int]) -> None:
        self._model, self._cells, self._words = model, cells, (targets, against)
        self._found: Mapping[str, list[Float64[np.ndarray, " cell"]]] = {name: [] for name in MEASURES}
        self.baseline: list[float] = []

    def read_prompt(self, ids: tuple[int, ...], calls: Any) -> Reading:
        """The effect at the end of a prompt."""
        found = self._begin("effect")
        plain = self._effect(calls.resid[-1][0, -1:], calls.logits[:, -1])[0]
        self.baseline.append(float(plain) if self._words[0] else float("nan"))

        def read(which: Sequence[int], rows: Any) -> None:
            for at in row_chunks(self._model, len(which)):
                last = rows[at, -1]
                cells = [self._cells.where[v] for v in which[at]]
                found[cells] = self._effect(last, self._model.readout(last) if self._words[0] else None) - plain

        return read, 1

    def read_neutral(self, ids: tuple[int, ...], calls: Any) -> Reading:
        """KL and loss on a neutral text."""
        kl, change = self._begin("kl_nats"), self._begin("loss_change_nats")
        whole = Yardstick(self._model, calls.logits[0], ids, "all")
        damage = no_damage_yet(len(self._cells.variants), whole.n_targets, 0)

        def read(which: Sequence[int], rows: Any) -> None:
            whole.read(damage, which, rows)
            cells = [self._cells.where[v] for v in which]
            kl[cells] = damage.kl_nats[list(which)]
            change[cells] = damage.loss_nats[list(which)] - whole.loss_nats

        return read, whole.n_targets

    def means(self) -> dict[str, Float32[np.ndarray, " cell"]]:
        """Every measure so far, NaN where nothing is known."""
        return {name: _mean(self._found[name], self._cells.n) for name in MEASURES}

    def shaped(self) -> dict[str, Any]:
        """The measures as layers x coefficients, and the random row of each."""
        size = len(self._cells.coefficients)
        found: dict[str, Any] = {}
        for name, values in self.means().items():
            found[name] = values[:-size].reshape(-1, size)
            found[f"random_{name}"] = values[-size:]
        return found

    def _begin(self, name: str) -> Float64[np.ndarray, " cell"]:
        # Cells that add nothing are exactly zero and are not run.
        found = np.zeros(self._cells.n)
        found[self._cells.where] = np.nan
        self._found[name].append(found)
        return found

    def _effect(self, streams: Any, logits: Any) -> Float64[np.ndarray, " row"]:
        if self._words[0]:
            return log_odds(to_float32(logits.float().log_softmax(-1)), *self._words)
        along = to_float32(streams) @ self._cells.base.direction.astype(np.float64)
        return along / float(reference_norms(self._model)[-1])


def _mean(found: Sequence[Float64[np.ndarray, " cell"]], n: int) -> Float32[np.ndarray, " cell"]:
    stacked = np.array(found).reshape(-1, n)
    known = np.isfinite(stacked)
    count = known.sum(0)
    total = np.where(known, stacked, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)


def _numbers(given: Any, what: str, kind: type) -> tuple[Any, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not len(given):
        raise ValueError(f"needs a list of {what}; found {given!r:.60}; name one at least.")
    try:
        found = tuple(kind(value) for value in given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"needs numbers for the {what}; found {given!r:.60}; correct the list.") from error
    if not np.isfinite(found).all() or len(set(found)) < len(found):
        raise ValueError(f"needs {what} that are finite and all different; found {given!r:.60}; correct the list.")
    return found
