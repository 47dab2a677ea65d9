"""Reads prompt and new tokens, step by step: the newest token alone where there is a KV cache, else everything again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from analyses._arrays import to_float32
from analyses._decoding import Written
from analyses._interventions import Interventions, batch_hooks


class StepReader:
    """The rows of a variant are equal until the first token is drawn, so the prompt is read once for each variant."""

    def __init__(
        self, model: Any, prompt: tuple[int, ...], changes: Sequence[Interventions], samples: int, cached: bool
    ) -> None:
        self._model, self._prompt, self._changes = model, prompt, changes
        self._samples, self._cached = samples, cached
        self._cache: Any = None

    def read(self, written: Written) -> Float32[np.ndarray, "row d_vocab"]:
        """Logits of the next token of every row."""
        if written.n == 0:
            return self._forward([list(self._prompt)] * len(self._changes), 0, 1).repeat(self._samples, axis=0)
        if self._cached:
            return self._forward([[i] for i in written.newest], len(self._prompt) + written.n - 1, self._samples)
        rows = [[*self._prompt, *row] for row in written.padded()]
        return self._forward(rows, 0, self._samples)

    def _forward(self, rows: list[list[int]], start: int, each: int) -> Float32[np.ndarray, "row d_vocab"]:
        import torch

        ids = torch.tensor(rows)
        pairs = batch_hooks(self._changes, each, start, len(self._prompt))
        with self._model.hooks(*pairs):
            if self._cached:
                logits, self._cache = self._model.extend(ids, self._cache)
            else:
                logits = self._model.forward(ids, last_only=True)
        if self._cached and start == 0 and self._samples > 1:
            self._cache.batch_repeat_interleave(self._samples)
        return to_float32(logits[:, -1])
