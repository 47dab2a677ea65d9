"""What does a tiny model do with a text of mine at this training step? Two heads' maps, and what it says next.

The two heads are the ones of the story (training_log.py): the previous-token head of layer 0, which carries what came before each
token, and the induction head, which looks for a place where the same came before and reads what followed there.

Where the text's last token has come before, `copied_id` is what followed it last time, and `copied_probability` what the model
gives that token now: the answer to "A B ... A".

Identity: each row of a map sums to one (before it is rounded to 255ths).

Limit: the tokenizer has 512 tokens, about two characters each, and the model reads 256 of them; it was trained on the Python
documentation and nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32, UInt8

from analyses._arrays import to_float32
from analyses._heads import head_name
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._tiny import DEFAULT, Heads, check_tiny, names_of, open_tiny, read_heads, without_heads
from analyses.tokenization import run_tokenization
from analyses.training_dynamics import token_losses
from analyses.training_log import load_training_log
from analyses.vocabulary import token_bytes

MOST_CHARACTERS = 4000  # far more than 256 tokens hold: refused before it is tokenised
OPENING_SECONDS, VIEW_SECONDS = 1.0, 0.02


@dataclass(frozen=True, eq=False)
class TrainingView:
    """A text at one training step. The maps are rounded to 255ths."""

    name: str
    step: int
    ablated: str  # the heads whose output was zero, such as "L1H0 L1H2"; "" for none
    ids: tuple[int, ...]  # the first is <|bos|>
    pieces: tuple[bytes, ...]
    previous_head: str  # such as "L0H1"
    induction_head: str
    previous_pattern: UInt8[np.ndarray, "query key"]
    induction_pattern: UInt8[np.ndarray, "query key"]
    loss_nats: Float32[np.ndarray, " next"]  # of every token but the first
    next_ids: Int32[np.ndarray, " k"]  # after the last token, most probable first
    next_pieces: tuple[bytes, ...]
    next_probability: Float32[np.ndarray, " k"]
    # Where the last token stood before, and what followed it there; -1, -1, b"" and NaN where it is new.
    copied_from: int  # position of the token that followed
    copied_id: int
    copied_piece: bytes
    copied_probability: float

    def to_frame(self) -> Any:
        """A pandas table, one row per token: position, id, loss_nats, and how the two heads look from the last token."""
        import pandas as pd

        loss = np.concatenate([[np.nan], self.loss_nats])
        columns = {"position": range(len(self.ids)), "id": self.ids, "loss_nats": loss}
        for head, pattern in (
            (self.previous_head, self.previous_pattern),
            (self.induction_head, self.induction_pattern),
        ):
            columns[f"last_token_to_here_{head}"] = pattern[-1] / 255
        return pd.DataFrame(columns)


def training_view_steps(
    model: Any = None,
    tokens: Any = (),
    *,
    text: str,
    name: str = DEFAULT,
    step: int | None = None,
    ablate: Any = None,
    top_k: int = 5,
) -> Steps[TrainingView]:
    """The steps of `run_training_view`: one forward pass."""
    step = check_tiny(name, step)
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        found = f"{len(text):,} characters" if isinstance(text, str) else type(text).__name__
        raise ValueError(f"needs a text of at most {MOST_CHARACTERS:,} characters; found {found}; shorten it.")
    yield Progress(0, 1, note="one forward pass of the tiny model")
    tiny = open_tiny(name, step, asker=model)
    ids, out = _ids(tiny, text), read_heads(tiny, ablate)
    if not 1 <= top_k <= tiny.config.d_vocab:
        raise ValueError(f"needs a top-k from 1 to {tiny.config.d_vocab}; found {top_k}; choose how many to list.")
    log = load_training_log(name)
    maps, logits = _run(tiny, ids, (log.previous_head, log.induction_head), out)
    return _result(tiny, ids, maps, logits, top_k, name=name, step=step, ablated=names_of(out), heads=log)


def run_training_view(
    model: Any = None,
    tokens: Any = (),
    *,
    text: str,
    name: str = DEFAULT,
    step: int | None = None,
    ablate: Any = None,
    top_k: int = 5,
) -> TrainingView:
    """A text at one training step of a tiny model.

    Args:
        model: the open model, or None; it is not read, only asked whether to stop.
        tokens: not read: ids of another model mean nothing here.
        text: of at most 255 tokens of the tiny tokenizer; `<|bos|>` is put in front.
        name: "tiny-induction" or "tiny-induction-1-layer".
        step: one of its checkpoints; the last when None.
        ablate: a pair [layer, head] whose output is set to zero everywhere, a list of such pairs, or None.
        top_k: how many of the most probable next tokens to list.

    Raises:
        ValueError: a text that is too long, another name, a step that was not kept, or a head that is not there.
    """
    return drain(training_view_steps(model, tokens, text=text, name=name, step=step, ablate=ablate, top_k=top_k))


def cost_training_view(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One pass of at most 256 tokens; the first one opens the tiny model."""
    n = min(1 + len(str(params.get("text", ""))), 256)
    return Cost(VIEW_SECONDS, 20 << 20, 2 * n * n + 40 * n)


def _ids(tiny: Any, text: str) -> tuple[int, ...]:
    ids, most = run_tokenization(tiny, text).ids, tiny.config.n_ctx
    if len(ids) > most:
        raise ValueError(
            f"needs at most {most} tokens of the tiny tokenizer (about {2 * most} characters); found {len(ids):,}; "
            "shorten the text."
        )
    return ids


def _run(
    tiny: Any, ids: tuple[int, ...], heads: Any, out: Heads
) -> tuple[list[UInt8[np.ndarray, "query key"]], Float[Any, "pos d_vocab"]]:
    """Maps of some heads and the logits, with some heads taken out."""
    import torch

    seen: dict[int, Any] = {}

    def noting(layer: int) -> Callable[..., None]:
        return lambda tensor, hook: seen.update({layer: tensor[0]})

    pairs = [(tiny.hook_name("pattern", layer), noting(layer)) for layer in sorted({layer for layer, _ in heads})]
    with without_heads(tiny, out), tiny.hooks(*pairs):
        logits = tiny.forward(ids)[0]
    return [(255 * seen[layer][head]).round().to(torch.uint8).cpu().numpy() for layer, head in heads], logits


def _result(
    tiny: Any, ids: tuple[int, ...], maps: Any, logits: Any, top_k: int, *, heads: Any, **named: Any
) -> TrainingView:
    import torch

    probability = to_float32(logits[-1].softmax(-1))
    top = np.argsort(-probability, kind="stable")[:top_k]
    before = [i for i in range(1, len(ids) - 1) if ids[i] == ids[-1]]
    copied_from = before[-1] + 1 if before else -1
    copied_id = ids[copied_from] if before else -1
    loss = token_losses(logits[None], torch.tensor([ids]))[0]
    return TrainingView(
        **named,
        ids=ids,
        pieces=tuple(token_bytes(tiny.tokenizer, ids)),
        previous_head=head_name(*heads.previous_head),
        induction_head=head_name(*heads.induction_head),
        previous_pattern=maps[0],
        induction_pattern=maps[1],
        loss_nats=to_float32(loss),
        next_ids=top.astype(np.int32),
        next_pieces=tuple(token_bytes(tiny.tokenizer, top.tolist())),
        next_probability=probability[top],
        copied_from=copied_from,
        copied_id=copied_id,
        copied_piece=token_bytes(tiny.tokenizer, [copied_id])[0] if before else b"",
        copied_probability=float(probability[copied_id]) if before else float("nan"),
    )
