"""Training checkpoints: at which steps a model can be opened, and the weights it had there.

The two tiny models of training/ ship with all they have kept. Of the hub's models, Pythia and Stanford's GPT-2 publish theirs as
revisions; which there are is TransformerLens' table (transformer_lens/tools/model_registry/checkpoints.py).
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtyping import Float

from analyses._config import ModelConfig
from analyses._source import SINGLE, SourceError

SHIPPED: Mapping[str, str] = {
    "tiny-induction": "two layers of 4 heads, trained on the Python documentation for this app",
    "tiny-induction-1-layer": "one layer of 4 heads, trained on the Python documentation for this app",
}
FOLDER = Path(__file__).resolve().parents[1] / "training" / "checkpoints"
FILE = "step{:05d}.safetensors"  # every step but the last, which is the folder's model.safetensors
LAST = "training_step"  # in config.json: the step of the last one
READ = 64  # checkpoints kept in memory: more than ship, a quarter of a megabyte each


class Weights:
    """Stands for a model's weights at one step: what is computed once per model is kept under this, not under the model."""


def folder_of(name: str) -> Path:
    """Folder of a shipped model, in Hugging Face format.

    Raises:
        SourceError: the clone is incomplete.
    """
    folder = FOLDER / name
    if not (folder / SINGLE).exists():
        raise SourceError(
            f"needs the checkpoints of {name}; found none in {folder}; get a whole copy of this project, or run "
            "`make checkpoints`."
        )
    return folder


@functools.lru_cache(len(SHIPPED))
def shipped_steps(name: str) -> tuple[int, ...]:
    """The steps at which a shipped model can be opened, ascending."""
    folder = folder_of(name)
    last = json.loads((folder / "config.json").read_text("utf-8"))[LAST]
    return (*sorted(int(file.stem.removeprefix("step")) for file in folder.glob("step*.safetensors")), last)


@functools.lru_cache(READ)
def read_weights(name: str, step: int) -> Mapping[str, Float[Any, "..."]]:
    """Tensors of a shipped model at a step, by transformers' names; read-only by agreement."""
    from safetensors.torch import load_file

    last = step == shipped_steps(name)[-1]
    return load_file(folder_of(name) / (SINGLE if last else FILE.format(step)))


def copy_weights(parameters: Mapping[str, Float[Any, "..."]], weights: Mapping[str, Float[Any, "..."]]) -> None:
    """Put other weights into the parameters of the model inside a bridge, in place."""
    for name_inside, parameter in parameters.items():
        # The bridge has put a component of its own around every module.
        parameter.data.copy_(weights[name_inside.replace("._original_component", "")])


def with_checkpoints(config: ModelConfig, checkpoint: int | None) -> ModelConfig:
    """The facts about a model just loaded, with its steps; a shipped one is loaded at its last, whatever is asked for."""
    steps = shipped_steps(config.name) if config.name in SHIPPED else ()
    return replace(config, checkpoints=steps, checkpoint=steps[-1] if steps else checkpoint)


def check_step(name: str, step: Any, steps: Sequence[int]) -> int:
    """The step, if the model can be opened there.

    Raises:
        SourceError: a model without checkpoints, or a step that is none of them.
    """
    if not steps:
        raise SourceError(
            f"needs a model with published checkpoints for a training step; found {name}, which has none; choose "
            f"{' or '.join(SHIPPED)}, a Pythia or a Stanford GPT-2, or leave the checkpoint out."
        )
    if step not in steps:
        found = step if isinstance(step, int) else repr(step)
        below = [str(s) for s in steps if isinstance(step, int) and s < step][-1:]
        above = [str(s) for s in steps if isinstance(step, int) and s > step][:1]
        nearest = " or ".join(below + above) or f"{steps[0]} to {steps[-1]}"
        raise SourceError(f"needs a training step that {name} was kept at; found {found}; the nearest: {nearest}.")
    return int(step)


def revision_of(name: str | None, revision: str | None, checkpoint: int | None) -> str | None:
    """The revision of a source that is opened at a checkpoint; what was given where none is asked for.

    Raises:
        SourceError: a model without checkpoints, a step that is none of them, or a revision beside it.
    """
    if checkpoint is None:
        return revision
    if revision is not None:
        raise SourceError(
            f"needs a revision or a checkpoint; found {revision!r} and {checkpoint}; leave one out: a checkpoint of a "
            "hub model is a revision."
        )
    if name in SHIPPED:
        check_step(name, checkpoint, shipped_steps(name))
        return None
    steps, form = _published(name or "the embedded model")
    return form.format(check_step(name or "the embedded model", checkpoint, steps))


def _published(name: str) -> tuple[Sequence[int], str]:
    """Steps that a hub model is published at, and how its revisions are named; no steps where it has none."""
    from transformer_lens.tools.model_registry import checkpoints

    if name.startswith("EleutherAI/pythia"):
        return (checkpoints.PYTHIA_V0_CHECKPOINTS if "v0" in name else checkpoints.PYTHIA_CHECKPOINTS), "step{}"
    if name.startswith("stanford-crfm/"):
        return checkpoints.STANFORD_CRFM_CHECKPOINTS, "checkpoint-{}"
    return (), ""
