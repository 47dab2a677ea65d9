"""Which heads make the copying, and through which path? Heads taken out, and one head's write kept from another head.

On 127 random tokens given twice (training_dynamics.py), at one training step of a tiny model:

* ablation: every head's output set to zero in turn; the loss on the second copy and the induction score that are left. Then all
  induction heads together, and all other heads of their layer together, as a control: heads can stand in for each other.
* path patching: what one head of the layer below writes is taken out of what the induction heads' query, key or value is
  computed from, and of nothing else. If the key needs it, the heads compose by K-composition (Elhage et al. 2021, "A
  Mathematical Framework for Transformer Circuits").
* copying: a head reads `<|bos|> t` as it stands after the layers below (the effective embedding); of what it writes about t, is t
  the token that it raises most? Over all 255 merged tokens.

Identity: with nothing taken out, the patched query, key and value are those of the run (`repatched_error` says how exactly).

Limit: taking a head out also takes out what later heads need of it for other things; here the losses of other heads are controls.
The path from a head into another may be direct only: what the layer between adds because of it stays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._heads import head_name
from analyses._repeated import copy_losses
from analyses._score_reader import random_rows
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._tiny import DEFAULT, Heads, check_tiny, open_tiny, repeated_rows, without_heads
from analyses.training_log import load_training_log

PATHS = ("query", "key", "value")
MERGED = 257  # ids from here on are merged tokens: 0 is <|bos|>, then the 256 bytes
PASS_SECONDS, OPENING_SECONDS = 0.15, 1.0  # of one forward pass of the repeated tokens; measured on a shared server


@dataclass(frozen=True, eq=False)
class TrainingCauses:
    """What happens to the copying at one training step. Losses in nats per token, scores and shares from 0 to 1."""

    name: str
    step: int
    induction_layer: int
    induction_heads: tuple[int, ...]  # numbers in that layer, the strongest at the end of training first
    induction: float  # the largest score among them
    first_copy_loss_nats: float
    second_copy_loss_nats: float
    ablated_second_copy_loss_nats: Float32[np.ndarray, "layer head"]
    ablated_induction: Float32[np.ndarray, "layer head"]  # the largest among the induction heads
    together_second_copy_loss_nats: float  # all induction heads out
    others_second_copy_loss_nats: float  # all other heads of their layer out
    # Rows: their query, key, value. Columns: heads of the layer below. No columns where there is no layer below.
    path_second_copy_loss_nats: Float32[np.ndarray, "path below"]
    path_induction: Float32[np.ndarray, "path below"]
    repatched_error: float  # largest difference of query, key or value recomputed with nothing taken out
    copying: Float32[np.ndarray, " head"]  # share of the merged tokens that each head of that layer copies

    def to_frame(self) -> Any:
        """A pandas table, one row per ablated head and per path: what, head, second-copy loss, induction score."""
        import pandas as pd

        rows = [
            ("ablated", head_name(*at), self.ablated_second_copy_loss_nats[at], self.ablated_induction[at])
            for at in np.ndindex(self.ablated_induction.shape)
        ]
        rows.append(("ablated", "all induction heads", self.together_second_copy_loss_nats, np.nan))
        rows.append(("ablated", "all others of their layer", self.others_second_copy_loss_nats, np.nan))
        below = self.induction_layer - 1
        for path, head in np.ndindex(self.path_induction.shape):
            numbers = self.path_second_copy_loss_nats[path, head], self.path_induction[path, head]
            rows.append((f"not into the {PATHS[path]}", head_name(below, head), *numbers))
        return pd.DataFrame(rows, columns=["what", "head", "second_copy_loss_nats", "induction"])


def training_causes_steps(
    model: Any = None, tokens: Any = (), *, name: str = DEFAULT, step: int | None = None
) -> Steps[TrainingCauses]:
    """The steps of `run_training_causes`: a forward pass for every head, and for every path."""
    step = check_tiny(name, step)
    heads = load_training_log(name).induction_heads
    yield Progress(0, 1, note="opening the tiny model")
    return (yield from caused(lambda: open_tiny(name, step, asker=model), name, step, heads))


def run_training_causes(
    model: Any = None, tokens: Any = (), *, name: str = DEFAULT, step: int | None = None
) -> TrainingCauses:
    """What the copying of a tiny model at one training step rests on.

    Args:
        model: the open model, or None; it is not read, only asked whether to stop.
        tokens: not read.
        name: "tiny-induction" or "tiny-induction-1-layer".
        step: one of its checkpoints; the last when None.

    Raises:
        ValueError: another name, or a step that was not kept.
    """
    return drain(training_causes_steps(model, tokens, name=name, step=step))


def cost_training_causes(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Its own model's passes, whatever model is open: eight heads, two groups, twelve paths, and what they start from."""
    return Cost(OPENING_SECONDS + 26 * PASS_SECONDS, 100 << 20, 600)


def caused(at: Callable[[], Any], name: str, step: int, heads: Heads) -> Steps[TrainingCauses]:
    """The measurement itself, on the model that `at()` returns: at that step, also after another request has run.

    `heads` are the induction heads, all of one layer.
    """
    layer, numbers = heads[0][0], tuple(head for _, head in heads)
    config = at().config
    n_layers, n_heads = config.n_layers, config.n_heads
    n_paths = len(PATHS) * n_heads if layer else 0
    total = 4 + n_layers * n_heads + n_paths

    def progress(done: int, what: str) -> Progress:
        return Progress(done, total, note=f"step {step:,}: {what}")

    yield progress(0, "as it is")
    run = _Run(at(), layer, numbers)
    losses, scores = np.zeros((2, n_layers, n_heads), np.float32)
    for done, where in enumerate(np.ndindex(n_layers, n_heads)):
        yield progress(1 + done, f"without {head_name(*where)}")
        losses[where], scores[where] = run.without(at(), (where,))
    yield progress(total - 3, "without all induction heads")
    together = run.without(at(), heads)[0]
    yield progress(total - 2, "without the others of their layer")
    others = run.without(at(), tuple((layer, i) for i in range(n_heads) if i not in numbers))[0]
    path_losses, path_scores = np.zeros((2, len(PATHS) if layer else 0, n_heads if layer else 0), np.float32)
    for done, (below, path) in enumerate(np.ndindex(path_losses.shape[::-1])):
        yield progress(1 + n_layers * n_heads + done, f"{head_name(layer - 1, below)} not into the {PATHS[path]}")
        path_losses[path, below], path_scores[path, below] = run.without_write(at(), below, PATHS[path])
    yield progress(total - 1, "copying")
    return TrainingCauses(
        name=name,
        step=step,
        induction_layer=layer,
        induction_heads=numbers,
        induction=run.plain[2],
        first_copy_loss_nats=run.plain[0],
        second_copy_loss_nats=run.plain[1],
        ablated_second_copy_loss_nats=losses,
        ablated_induction=scores,
        together_second_copy_loss_nats=together,
        others_second_copy_loss_nats=others,
        path_second_copy_loss_nats=path_losses,
        path_induction=path_scores,
        repatched_error=run.error,
        copying=np.array([_copying(at(), layer, h) for h in range(n_heads)], np.float32),
    )


class _Run:
    """The plain pass over the repeated tokens, kept: what the paths are computed from."""

    def __init__(self, tiny: Any, layer: int, heads: tuple[int, ...]) -> None:
        self.layer, self.heads = layer, list(heads)
        self.text = repeated_rows()
        self.error = 0.0  # largest difference of what is recomputed with nothing taken out
        self._seen: dict[str, Any] = {}
        self._without: tuple[int, dict[str, Any]] = (-1, {})  # a head below, and the inputs without its write
        noted = []
        if self.layer:
            points = [
                ("resid_pre", self.layer),
                ("head_output", self.layer - 1),
                *((path, self.layer) for path in PATHS),
            ]
            noted = [(tiny.hook_name(*point), _noting(self._seen, point[0])) for point in points]
            self._calls = tiny.capture_calls(self.text.ids[0].tolist())
        with tiny.hooks(*noted):
            self.plain = self.read(tiny)
        if self.layer:
            again = self._inputs(tiny, self._seen["resid_pre"])
            self.error = max(float((again[path] - self._seen[path]).abs().max()) for path in PATHS)

    def read(self, tiny: Any) -> tuple[float, float, float]:
        """Loss on the first and on the second copy, and the heads' largest induction score, under the hooks that are there."""
        rows, seen = random_rows(self.text).induction, {}
        pairs = [("pattern", self.layer), ("resid_post", tiny.config.n_layers - 1)]
        with tiny.hooks(*((tiny.hook_name(*point), _noting(seen, point[0])) for point in pairs)):
            tiny.forward(self.text.ids, last_only=True)
        score = seen["pattern"][:, self.heads][:, :, rows[0], rows[1]].mean((0, 2)).max()
        return *copy_losses(tiny, seen["resid_post"], self.text), float(score)

    def without(self, tiny: Any, heads: Heads) -> tuple[float, float]:
        """Second-copy loss and induction score with some heads' outputs zero."""
        with without_heads(tiny, heads):
            return self.read(tiny)[1:]

    def without_write(self, tiny: Any, below: int, path: str) -> tuple[float, float]:
        """Second-copy loss and induction score when one head's write is kept from the induction heads' query, key or value."""
        if self._without[0] != below:
            write = _write(tiny, self.layer - 1, below, self._seen["head_output"])
            self._without = below, self._inputs(tiny, self._seen["resid_pre"] - write)
        less = self._without[1][path]

        def patch(tensor: Float[Any, "sequence pos head d_head"], hook: Any) -> Any:
            changed = tensor.clone()
            changed[:, :, self.heads] = less[:, :, self.heads]
            return changed

        with tiny.hooks((tiny.hook_name(path, self.layer), patch)):
            return self.read(tiny)[1:]

    def _inputs(self, tiny: Any, stream: Float[Any, "sequence pos d_model"]) -> dict[str, Any]:
        """Queries, keys and values that the heads' layer computes from a stream."""
        seen: dict[str, Any] = {}
        with tiny.hooks(*((tiny.hook_name(path, self.layer), _noting(seen, path)) for path in PATHS)):
            tiny.run_block(self.layer, stream, self._calls)
        return seen


def _write(tiny: Any, layer: int, head: int, z: Float[Any, "*rows head d_head"]) -> Float[Any, "*rows d_model"]:
    """What one head adds to the stream, given every head's output; the output matrix' bias is nobody's."""
    import torch

    output = tiny.linear_parts().outputs[layer]
    alone = torch.zeros_like(z)
    alone[..., head, :] = z[..., head, :]
    return output(alone.flatten(-2)) - output(torch.zeros_like(alone).flatten(-2))


def _copying(tiny: Any, layer: int, head: int) -> float:
    """Share of the merged tokens t for which the head, reading t after `<|bos|>`, raises t itself most."""
    import torch

    tokens = torch.arange(MERGED, tiny.config.d_vocab)
    seen: dict[str, Any] = {}
    with tiny.hooks((tiny.hook_name("value", layer), _noting(seen, "value"))):
        tiny.forward(torch.stack([torch.zeros_like(tokens), tokens], dim=1))
    written = _write(tiny, layer, head, seen["value"][:, 1])
    return float((tiny.readout(written).argmax(-1).cpu() == tokens).float().mean())


def _noting(seen: dict[str, Any], what: str) -> Callable[..., None]:
    return lambda tensor, hook: seen.update({what: tensor})
