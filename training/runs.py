"""The runs that ship, each in a process of its own: which model, which seed, which of its checkpoints are kept."""

import json
import logging
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from analyses._checkpoints import FILE, LAST
from training.train import MARKS, STEPS

LOSSES = "training_loss.json"
PROCESSES = 2  # one thread each: two threads in one process were slower


@dataclass(frozen=True)
class Run:
    """One training run."""

    name: str
    layers: int
    seed: int
    kept: tuple[int, ...]  # steps whose weights ship; its curves ship in any case


# Of the two seeds the one whose copying ends up in a single head ships with its weights; in the other, two heads share it.
RUNS = (
    Run("tiny-induction", layers=2, seed=1, kept=MARKS),
    Run("tiny-induction-1-layer", layers=1, seed=0, kept=(0, 400, 1000, 1900, 2650, STEPS)),
    Run("tiny-induction-second-seed", layers=2, seed=0, kept=()),
)


def train_all(ids: Path, folder: Path, runs: tuple[Run, ...] = RUNS) -> None:
    """Every run, two at a time; each writes into a folder of its name.

    Args:
        ids: an .npy file with the training documents' ids.
        folder: where the runs write.
        runs: what to train.
    """
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(train_one, ids, folder / run.name, run) for run in runs]:
            done.result()


def train_one(ids: Path, folder: Path, run: Run, *, steps: int = STEPS) -> None:
    """One run: config.json, its checkpoints (the last as model.safetensors) and the loss of every step, into a folder."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from training.train import half_weights, make_model, train, training_batches

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    model, losses, begun = make_model(run.layers, run.seed), [], time.monotonic()

    def keep(step: int) -> None:
        name = "model.safetensors" if step == steps else FILE.format(step)
        save_file(half_weights(model), folder / name, metadata={"format": "pt"})
        recent = sum(losses[-50:]) / max(1, len(losses[-50:]))
        minutes = (time.monotonic() - begun) / 60
        logging.info("%s: step %d, training loss %.3f nats, %.1f min", run.name, step, recent, minutes)

    train(
        model,
        training_batches(np.load(ids, mmap_mode="r"), run.seed),
        steps=steps,
        on_mark=keep,
        on_step=lambda step, loss: losses.append(round(loss, 4)),
    )
    (folder / LOSSES).write_text(json.dumps(losses))
    model.config.update({"architectures": [type(model).__name__], "dtype": "float16", LAST: steps})
    model.config.save_pretrained(folder)


def last_step(folder: Path) -> int:
    """The step of the weights in model.safetensors."""
    return json.loads((folder / "config.json").read_text("utf-8"))[LAST]
