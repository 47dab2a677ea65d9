"""How does a text of mine look at every step of the training? Two heads' maps and what comes next, checkpoint by checkpoint.

One request instead of one per step, so that a page can play it. Every frame is what training_view.py gives at that step.

Identity: frame i equals `run_training_view(text=..., step=steps[i])`.

Limit: as training_view.py; the maps are rounded to 255ths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._tiny import DEFAULT, check_tiny
from analyses.training_log import load_training_log
from analyses.training_view import OPENING_SECONDS, VIEW_SECONDS, training_view_steps


@dataclass(frozen=True, eq=False)
class TrainingFilm:
    """A text at every step that is kept, in order."""

    name: str
    ablated: str  # the heads whose output was zero, such as "L1H0 L1H2"; "" for none
    steps: tuple[int, ...]
    ids: tuple[int, ...]  # the first is <|bos|>
    pieces: tuple[bytes, ...]
    previous_head: str
    induction_head: str
    previous_pattern: UInt8[np.ndarray, "step query key"]
    induction_pattern: UInt8[np.ndarray, "step query key"]
    loss_nats: Float32[np.ndarray, "step next"]
    next_ids: Int32[np.ndarray, "step k"]
    next_pieces: tuple[tuple[bytes, ...], ...]  # [step][k]
    next_probability: Float32[np.ndarray, "step k"]
    copied_from: int  # position of the token that followed the last one's earlier copy; -1 where it is new
    copied_id: int
    copied_piece: bytes
    copied_probability: Float32[np.ndarray, " step"]

    def to_frame(self) -> Any:
        """A pandas table, one row per step: step, mean_loss_nats, copied_probability, the first choice and its probability."""
        import pandas as pd

        columns: dict[str, Any] = {"step": self.steps, "mean_loss_nats": self.loss_nats.mean(1)}
        columns |= {"copied_probability": self.copied_probability, "first_choice_id": self.next_ids[:, 0]}
        return pd.DataFrame(columns | {"first_choice_probability": self.next_probability[:, 0]})


def training_film_steps(
    model: Any = None, tokens: Any = (), *, text: str, name: str = DEFAULT, ablate: Any = None, top_k: int = 5
) -> Steps[TrainingFilm]:
    """The steps of `run_training_film`: one forward pass per checkpoint."""
    check_tiny(name, None)
    steps = load_training_log(name).checkpoints
    frames = []
    for done, step in enumerate(steps):
        yield Progress(done, len(steps), note=f"step {step:,}")
        one = training_view_steps(model, text=text, name=name, step=step, ablate=ablate, top_k=top_k)
        frames.append((yield from one))
    first = frames[0]

    def stacked(field: str, kind: Any) -> Any:
        return np.stack([getattr(frame, field) for frame in frames]).astype(kind)

    return TrainingFilm(
        **{
            field: getattr(first, field)
            for field in ("name", "ablated", "ids", "pieces", "previous_head", "induction_head")
        },
        **{field: getattr(first, field) for field in ("copied_from", "copied_id", "copied_piece")},
        **{field: stacked(field, np.uint8) for field in ("previous_pattern", "induction_pattern")},
        **{field: stacked(field, np.float32) for field in ("loss_nats", "next_probability", "copied_probability")},
        steps=steps,
        next_ids=stacked("next_ids", np.int32),
        next_pieces=tuple(frame.next_pieces for frame in frames),
    )


def run_training_film(
    model: Any = None, tokens: Any = (), *, text: str, name: str = DEFAULT, ablate: Any = None, top_k: int = 5
) -> TrainingFilm:
    """A text at every step of a tiny model's training that is kept.

    Args:
        model: the open model, or None; it is not read, only asked whether to stop.
        tokens: not read: ids of another model mean nothing here.
        text: of at most 255 tokens of the tiny tokenizer; `<|bos|>` is put in front.
        name: "tiny-induction" or "tiny-induction-1-layer".
        ablate: a pair [layer, head] whose output is set to zero everywhere, a list of such pairs, or None.
        top_k: how many of the most probable next tokens to list.

    Raises:
        ValueError: a text that is too long, another name, or a head that is not there.
    """
    return drain(training_film_steps(model, tokens, text=text, name=name, ablate=ablate, top_k=top_k))


def cost_training_film(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """A pass of at most 256 tokens per checkpoint."""
    n, steps = min(1 + len(str(params.get("text", ""))), 256), 21
    return Cost(OPENING_SECONDS + steps * VIEW_SECONDS, 40 << 20, steps * (2 * n * n + 40 * n))
