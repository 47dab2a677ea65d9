"""Seeded repeated random tokens: the text on which induction shows, and how well a model does on its second copy."""

import random
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int64

from analyses._readout import log_probability_of

COPY = 50  # tokens of one copy; at most as many as the context and the vocabulary hold
SEQUENCES = 4
# Neither the shortest pieces of a vocabulary nor its rare end (Olsson et al. 2022 leave both out).
LOW, HIGH = 1000, 40_000
FEWEST = 4  # distinct tokens of a copy: with fewer, one position decides the score


@dataclass(frozen=True, eq=False)
class Repeated:
    """`[start?] r r` in each row; r differs from row to row and has no token twice."""

    ids: Int64[Any, "sequence pos"]
    start: int | None  # the document's first token, None without one
    n_copy: int  # tokens of r

    @property
    def first(self) -> int:
        """Position of the first token of r."""
        return 0 if self.start is None else 1

    @property
    def second(self) -> int:
        """Position of the first token of the second copy."""
        return self.first + self.n_copy


def start_token(model: Any, start: int | str) -> int | None:
    """The token in front of the sequences.

    Args:
        model: a HookedModel.
        start: "document" for the token that separates documents in training (`<|endoftext|>` where the vocabulary has it, else
            the tokenizer's beginning of sequence, else none), "none", or an id.

    Raises:
        ValueError: something else.
    """
    tokenizer, d_vocab = model.tokenizer, model.config.d_vocab
    if start == "none":
        return None
    if start == "document":
        known = tokenizer.get_vocab().get("<|endoftext|>")
        found = next((i for i in (known, tokenizer.bos_token_id) if i is not None), None)
        return found if found is None or found < d_vocab else None
    if isinstance(start, str) or not 0 <= start < d_vocab:
        raise ValueError(f"needs a start of document, none or an id below {d_vocab:,}; found {start!r}; choose one.")
    return int(start)


def token_set(model: Any) -> list[int]:
    """Ids to draw from, ascending: ordinary tokens from the middle of the vocabulary, none that the tokenizer calls special."""
    tokenizer = model.tokenizer
    high = min(HIGH, model.config.d_vocab, len(tokenizer))
    low = LOW if high >= 2 * LOW else 0
    special = {*tokenizer.all_special_ids, *getattr(tokenizer, "added_tokens_decoder", {})}
    return [i for i in range(low, high) if i not in special]


def repeated_tokens(
    model: Any,
    *,
    seed: int = 0,
    sequences: int = SEQUENCES,
    copy: int | None = None,
    start: int | str = "document",
) -> Repeated:
    """`sequences` rows of a start token and two copies of distinct random ids.

    The draw is `random.Random(seed).sample(range(1000, 40000), copy)`, row after row, where the vocabulary has no special tokens
    in that range: pure Python, so that it is the same on every machine and version.

    Raises:
        ValueError: fewer than one sequence, or copies that do not fit the context or the vocabulary.
    """
    import torch

    begin, pool = start_token(model, start), token_set(model)
    most = min((model.config.n_ctx - (begin is not None)) // 2, len(pool))
    length = min(COPY, most) if copy is None else copy
    if not FEWEST <= length <= most:
        raise ValueError(
            f"needs copies of {FEWEST} to {most:,} tokens (context and vocabulary of this model); found {length:,}; "
            "choose another length."
        )
    if sequences < 1:
        raise ValueError(f"needs at least one sequence; found {sequences}; choose how many to average over.")
    draw = random.Random(seed)
    rows = []
    for _ in range(sequences):
        r = draw.sample(pool, length)
        rows.append([begin] * (begin is not None) + r + r)
    return Repeated(torch.tensor(rows), begin, length)


def copy_losses(model: Any, resid: Float[Any, "sequence pos d_model"], text: Repeated) -> tuple[float, float]:
    """Loss (nats) on the first copy and on the second, from the stream after the last layer.

    The first token of the second copy does not count (nothing says that a repeat begins), nor a first token without one before.
    """
    ids = text.ids.to(resid.device)
    given = -log_probability_of(model, resid[:, :-1], ids[:, 1:])  # column t: the loss of the token at t + 1
    first = given[:, max(text.first - 1, 0) : text.second - 1]
    return float(first.mean()), float(given[:, text.second :].mean())
