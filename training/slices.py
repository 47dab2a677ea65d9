"""The small parts of the corpus that ship: what checkpoints are measured on, and what the first steps of the training read."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from training.runs import RUNS
from training.train import CONTEXT, training_batches

WINDOWS, ROWS, COPY = 384, 16, 127
MERGED = 257  # ids from here on are merged tokens
FIRST_STEPS = 60  # batches that ship: enough to train a prefix again and compare it with the log
MEASURING, FIRST = "measuring.npz", "first_batches.npz"


def write_measuring(held_out: Any, folder: Path) -> None:
    """Windows spread evenly over the held-out documents, and rows of distinct merged tokens to be given twice."""
    import torch

    text = torch.from_numpy(np.asarray(held_out).astype(np.int64))
    start = torch.linspace(0, len(text) - CONTEXT - 1, WINDOWS).long()
    windows = text[start[:, None] + torch.arange(CONTEXT)]
    windows[:, 0] = 0
    draw = torch.Generator().manual_seed(7)
    repeated = torch.stack([torch.randperm(512 - MERGED, generator=draw)[:COPY] + MERGED for _ in range(ROWS)])
    np.savez_compressed(folder / MEASURING, windows=_small(windows), repeated=_small(repeated))


def write_first_batches(training: Any, folder: Path) -> None:
    """The batches that the first steps of the first run draw."""
    batches = list(islice(training_batches(training, RUNS[0].seed), FIRST_STEPS))
    np.savez_compressed(folder / FIRST, batches=np.stack([_small(batch) for batch in batches]))


def read_first_batches(folder: Path) -> list[Any]:
    """The batches, as `training_batches` yields them."""
    import torch

    with np.load(folder / FIRST) as file:
        return [torch.from_numpy(batch.astype(np.int64)) for batch in file["batches"]]


def _small(ids: Any) -> np.ndarray:
    return ids.numpy().astype(np.uint16)
