"""From the weights of a run to its log: every checkpoint measured, by the functions that measure it in the app."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from analyses._checkpoints import copy_weights
from analyses._steps import drain
from analyses._tiny import Heads
from analyses.model import HookedModel, load_model
from analyses.training_causes import caused
from analyses.training_dynamics import measured
from training.runs import LOSSES, Run, last_step
from training.train import BATCH, CONTEXT

INDUCTION = 0.2  # score at the end from which a head counts; all others of the runs are below 0.02


def measure(folder: Path, run: Run, *, corpus: str, tokenizer: str) -> dict[str, Any]:
    """The log of a run, as analyses/training_log.py reads it.

    Args:
        folder: with the run's config, tokenizer, losses and checkpoints, the last one as model.safetensors.
        run: which one.
        corpus: fingerprint of the text.
        tokenizer: fingerprint of the tokenizer.
    """
    from safetensors.torch import load_file

    model = load_model(str(folder), device="cpu")
    parameters = dict(model._bridge.original_model.named_parameters())
    last = last_step(folder)
    files = {int(re.sub(r"\D", "", file.stem)): file for file in folder.glob("step*.safetensors")}
    files[last] = folder / "model.safetensors"
    seen, causes, heads = [], [], ()
    for step in sorted(files, reverse=True):  # the end first: it says which are the induction heads
        copy_weights(parameters, load_file(files[step]))
        seen.append(drain(measured(lambda: model, run.name, step)))
        heads = heads or _induction_heads(seen[0].induction[-1], model.config.n_layers - 1)
        causes.append(drain(caused(lambda: model, run.name, step, heads)))
    return _record(model, run, seen[::-1], causes[::-1], heads) | {
        "corpus": corpus,
        "tokenizer": tokenizer,
        "training_loss_nats": json.loads((folder / LOSSES).read_text()),
    }


def write_log(record: dict[str, Any], path: Path) -> None:
    """One line per entry: readable, and small."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
    path.write_text("{" + ",\n ".join(lines) + "}\n", encoding="utf-8")


def _induction_heads(scores: Any, layer: int) -> Heads:
    """The heads of the last layer that score above a threshold, the highest first; at least one."""
    order = np.argsort(-scores)
    return tuple((layer, int(head)) for i, head in enumerate(order) if i == 0 or scores[head] > INDUCTION)


def _record(model: HookedModel, run: Run, seen: Any, causes: Any, heads: Heads) -> dict[str, Any]:
    def stacked(results: Any, field: str, digits: int = 4) -> Any:
        values = np.stack([np.asarray(getattr(result, field), np.float64) for result in results])
        return values.round(digits).tolist()

    previous = np.stack([result.previous_token[0] for result in seen])
    return {
        "name": run.name,
        "n_layers": run.layers,
        "seed": run.seed,
        "n_parameters": model.config.n_parameters,
        "tokens_per_step": BATCH * CONTEXT,
        "checkpoints": list(run.kept),
        "previous_head": [0, int(previous.max(0).argmax())],
        "induction_heads": heads,
        "marks": [result.step for result in seen],
        "held_out_loss_nats": stacked(seen, "held_out_loss_nats"),
        "icl_windows_nats": stacked(seen, "icl_windows_nats", 3),
        "induction": stacked(seen, "induction"),
        "previous_token": stacked(seen, "previous_token"),
        "first_copy_loss_nats": stacked(seen, "first_copy_loss_nats"),
        "second_copy_loss_nats": stacked(seen, "second_copy_loss_nats"),
        "ablated_second_copy_loss_nats": stacked(causes, "ablated_second_copy_loss_nats"),
        "ablated_induction": stacked(causes, "ablated_induction"),
        "together_second_copy_loss_nats": stacked(causes, "together_second_copy_loss_nats"),
        "others_second_copy_loss_nats": stacked(causes, "others_second_copy_loss_nats"),
        "path_second_copy_loss_nats": stacked(causes, "path_second_copy_loss_nats"),
        "path_induction": stacked(causes, "path_induction"),
        "copying": stacked(causes, "copying"),
    }
