"""The tiny models of training/: opened once per thread, switched between training steps, and the texts they are measured on.

A page may ask for them while any other model is open: they are a second model, of half a megabyte, in the same thread.
"""

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt16

from analyses._checkpoints import SHIPPED, check_step, shipped_steps
from analyses._heads import head_name, parse_heads
from analyses._repeated import Repeated

DEFAULT = "tiny-induction"
FOLDER = Path(__file__).resolve().parents[1] / "training"
CHUNK = 16  # windows of one forward pass: more cost twice as much each, their maps leave the cache
_opened = threading.local()  # hooks are global to a model, and one thread owns it


def open_tiny(name: str, step: int | None = None, *, asker: Any = None) -> Any:
    """A tiny model at a training step, the same object every time in one thread.

    Call it again after every yield: another request may have switched it to another step meanwhile.

    Args:
        name: "tiny-induction" or "tiny-induction-1-layer".
        step: one of its checkpoints; the last when None.
        asker: the open model whose request this is: its `interrupt` stops the tiny one too.

    Raises:
        ValueError: another name, or a step that was not kept.
    """
    import torch

    from analyses.model import load_model

    step = check_tiny(name, step)
    models = _opened.__dict__
    if name not in models:
        with torch.inference_mode(mode=False):  # its weights are changed in place later
            models[name] = load_model(name, device="cpu")
    model = models[name]
    model.interrupt = _nothing if asker is None else asker.interrupt
    model.at_checkpoint(step)
    return model


def check_tiny(name: str, step: int | None) -> int:
    """The step, the last when None.

    Raises:
        ValueError: another name, or a step that was not kept.
    """
    if name not in SHIPPED:
        raise ValueError(f"needs {' or '.join(SHIPPED)}; found {name!r}; choose one of them.")
    steps = shipped_steps(name)
    return steps[-1] if step is None else check_step(name, step, steps)


Heads = tuple[tuple[int, int], ...]  # (layer, head) of each


def read_heads(model: Any, heads: Any) -> Heads:
    """The heads that a pair [layer, head], or a list of such pairs, names; none for None.

    Raises:
        ValueError: something else, a head that is not there, or one twice.
    """
    if heads is None:
        return ()
    pairs = [heads] if _is_pair(heads) else heads
    if not isinstance(pairs, Sequence) or not all(_is_pair(pair) for pair in pairs):
        raise ValueError(f"needs a head as [layer, head]; found {heads!r}; for example [1, 2], or [[1, 0], [1, 2]].")
    return parse_heads(model.config, [tuple(pair) for pair in pairs])


@contextmanager
def without_heads(model: Any, heads: Heads) -> Iterator[None]:
    """Within this context the outputs of some heads are zero. Never yield from steps inside it."""

    def zero(numbers: list[int]) -> Any:
        def change(z: Any, hook: Any) -> Any:
            changed = z.clone()
            changed[:, :, numbers] = 0
            return changed

        return change

    layers = sorted({layer for layer, _ in heads})
    named = [(layer, [head for where, head in heads if where == layer]) for layer in layers]
    with model.hooks(*((model.hook_name("head_output", layer), zero(numbers)) for layer, numbers in named)):
        yield


def names_of(heads: Heads) -> str:
    """The heads' names, such as "L1H0 L1H2"; "" for none."""
    return " ".join(head_name(*head) for head in heads)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(type(i) is int for i in value)


@functools.cache
def held_out_windows() -> UInt16[np.ndarray, "window pos"]:
    """384 windows of 256 ids from documents that the models never saw, the first token of each `<|bos|>`; read-only."""
    return _read("windows")


def repeated_rows() -> Repeated:
    """16 rows of `<|bos|>` and two copies of 127 distinct merged tokens in random order: the same ones every time."""
    import torch

    half = torch.from_numpy(_read("repeated").astype(np.int64))
    return Repeated(torch.cat([torch.zeros(len(half), 1, dtype=torch.int64), half, half], dim=1), 0, half.shape[1])


@functools.cache
def _read(what: str) -> UInt16[np.ndarray, "_ _"]:
    with np.load(FOLDER / "data" / "measuring.npz") as file:
        found = file[what]
    found.flags.writeable = False
    return found


def _nothing() -> None:
    """Nobody wants to stop."""
