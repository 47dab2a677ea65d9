"""What does the model actually see? A text as token ids, and what each id stands for.

Text is tokenised here and nowhere else, with the model's own tokenizer, and every analysis gets ids: whether a
beginning-of-sequence token (BOS) stands in front decides numbers (SmolLM2 gives " Paris" 0.70, 0.75 or 0.30 after "The
Eiffel Tower is located in the city of" with none, <|endoftext|> or <|im_start|>), so it is a choice that is seen.

Source: byte-pair encoding, Sennrich, Haddow and Birch 2016, "Neural Machine Translation of Rare Words with Subword
Units"; over bytes, Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".

Identity: the pieces joined are the text's UTF-8 bytes and the spans cover the text, but for what `lost` lists
(byte-level vocabularies; a SentencePiece one may put a space in front).

Limit: splitting explains why a task is awkward ("strawberry" is st, raw, berry: the letters are not visible). It does
not prove that this is why a model fails at it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analyses._chat import encode_plain_inside_template, render_template
from analyses._encode import Row, encode, exact_spans, missing_bytes
from analyses.vocabulary import BYTE_LEVEL, kind_of, printable, special_ids, token_bytes

END_OF_TEXT = "<|endoftext|>"
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Tokens:
    """A tokenised text. Spans are half-open, in characters of `text`; two tokens of one emoji have the same span."""

    text: str  # what was tokenised: after the chat template, if there is one
    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]  # the bytes each token stands for, maybe incomplete UTF-8
    starts: tuple[int, ...]  # -1 for a token that was added and is not in the text
    ends: tuple[int, ...]
    special: tuple[bool, ...]
    bos: str  # text of the token put in front, "" when none
    chat: bool
    plain: bool
    lost: tuple[str, ...]  # characters that the vocabulary cannot represent, each once, in order
    replaced: int  # lone surrogates, which are no characters, replaced by U+FFFD
    n_ctx: int
    n_cut: int  # tokens left out because the text was too long
    cut: str  # which end was left out: "", "start" or "end"

    def __len__(self) -> int:
        return len(self.ids)

    def to_frame(self) -> Any:
        """A pandas table, one row per token: position, id, piece, start, end (characters), special."""
        import pandas as pd

        columns = {"position": range(len(self.ids)), "id": self.ids, "piece": [printable(p) for p in self.pieces]}
        return pd.DataFrame(columns | {"start": self.starts, "end": self.ends, "special": self.special})


def run_tokenization(
    model: Any, text: str, *, bos: str = "default", chat: bool = False, plain: bool = False, keep: str | None = None
) -> Tokens:
    """`tokenize_text` with a model's tokenizer and context."""
    return tokenize_text(model.tokenizer, text, n_ctx=model.config.n_ctx, bos=bos, chat=chat, plain=plain, keep=keep)


def tokenize_text(
    tokenizer: Any,
    text: str,
    *,
    n_ctx: int,
    bos: str = "default",
    chat: bool = False,
    plain: bool = False,
    keep: str | None = None,
) -> Tokens:
    """Tokenise a text exactly as it is: nothing is trimmed. An empty text is a text with no token but the BOS.

    Not for two threads on one tokenizer at the same time: `plain` is a setting of the tokenizer, put back afterwards.

    Args:
        tokenizer: a fast tokenizer of transformers.
        text: the prompt.
        n_ctx: the model's context.
        bos: what is put in front, one of `bos_choices(tokenizer)`: "default" (what the tokenizer does by itself),
            "none", "own" (the tokenizer's BOS) or "endoftext". One that the text already spells is not taken away.
        chat: put the text into the chat template as one user message, and the header of the answer after it. The
            template writes its own BOS.
        plain: text that spells a special token is plain text (in a chat: inside the user's text only).
        keep: "start" or "end": the end to keep when there are more than `n_ctx` tokens (the BOS stays). None never
            cuts: whoever runs the model refuses.

    Raises:
        ValueError: a choice that this tokenizer does not have, or a chat template that fails.
    """
    _check(tokenizer, bos=bos, chat=chat, keep=keep, n_ctx=n_ctx)
    text, replaced = _without_surrogates(text)
    if chat:
        message, text = text, render_template(tokenizer, text)
        rows = encode_plain_inside_template(tokenizer, text, message) if plain else encode(tokenizer, text)
    else:
        rows = encode(tokenizer, text, plain=plain, added=bos == "default")
        rows = [*_chosen_bos(tokenizer, bos), *rows]
    rows, lost = _refine(tokenizer, text, rows)
    n_front = _count_front(tokenizer, rows, chat)
    front = b"".join(token_bytes(tokenizer, [row[0] for row in rows[:n_front]])).decode()
    kept, n_cut, cut = _cut(rows, n_front, n_ctx, keep)
    ids = tuple(row[0] for row in kept)
    control = special_ids(tokenizer)
    return Tokens(
        text=text,
        ids=ids,
        pieces=tuple(token_bytes(tokenizer, ids)),
        starts=tuple(row[1] for row in kept),
        ends=tuple(row[2] for row in kept),
        special=tuple(i in control for i in ids),
        bos=front,
        chat=chat,
        plain=plain,
        lost=lost,
        replaced=replaced,
        n_ctx=n_ctx,
        n_cut=n_cut,
        cut=cut,
    )


def bos_choices(tokenizer: Any) -> tuple[str, ...]:
    """What `bos` may be for this tokenizer, the default first."""
    own = ("own",) if tokenizer.bos_token_id is not None else ()
    end_of_text = ("endoftext",) if _id_of(tokenizer, END_OF_TEXT) is not None else ()
    return ("default", "none", *own, *end_of_text)


def _check(tokenizer: Any, *, bos: str, chat: bool, keep: str | None, n_ctx: int) -> None:
    """Refuse choices that do not exist, before anything is tokenised."""
    kind_of(tokenizer)  # refuses a tokenizer without offsets
    choices = bos_choices(tokenizer)
    if bos not in choices:
        raise ValueError(f"needs a BOS choice this tokenizer has; found {bos!r}; choose one of: {', '.join(choices)}.")
    if chat and bos != "default":
        raise ValueError(
            f"needs the default BOS in a chat (the template writes its own); found {bos!r}; choose 'default'."
        )
    if keep not in (None, "start", "end"):
        raise ValueError(f"needs the end to keep; found {keep!r}; choose 'start', 'end' or None (never cut).")
    if n_ctx < 1:
        raise ValueError(f"needs a context of at least one token; found {n_ctx}; pass the model's n_ctx.")


def _without_surrogates(text: str) -> tuple[str, int]:
    """The text with pairs of surrogates joined and lone ones replaced, and how many were replaced."""
    joined = _SURROGATE_PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _SURROGATE.subn("\ufffd", joined)


def _chosen_bos(tokenizer: Any, bos: str) -> list[Row]:
    """The token that was asked for by name, which is not in the text."""
    chosen = {"own": tokenizer.bos_token_id, "endoftext": _id_of(tokenizer, END_OF_TEXT)}.get(bos)
    return [] if chosen is None else [(chosen, -1, -1)]


def _id_of(tokenizer: Any, token: str) -> int | None:
    """Id of a token by its name; None when there is none (transformers would answer with the unknown token's id)."""
    return tokenizer.backend_tokenizer.token_to_id(token)


def _count_front(tokenizer: Any, rows: Sequence[Row], chat: bool) -> int:
    """How many tokens stand in front of the text; in a chat, the BOS that the template wrote."""
    if chat:
        return int(bool(rows) and rows[0][0] == tokenizer.bos_token_id)
    no_text = min(len(rows), 1)  # then one token in front, and what follows it was put behind
    return next((i for i, row in enumerate(rows) if row[1] >= 0), no_text)


def _refine(tokenizer: Any, text: str, rows: Sequence[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """Spans from the bytes themselves where the vocabulary has bytes, and the characters that no token stands for."""
    inside = [i for i, row in enumerate(rows) if row[1] >= 0]
    pieces = token_bytes(tokenizer, [rows[i][0] for i in inside])
    refined = list(rows)
    if kind_of(tokenizer) != BYTE_LEVEL:
        unknown = [
            text[rows[i][1] : rows[i][2]]
            for i, piece in zip(inside, pieces, strict=True)
            if rows[i][0] == tokenizer.unk_token_id and text[rows[i][1] : rows[i][2]].encode() != piece
        ]
        return refined, tuple(dict.fromkeys("".join(unknown)))
    missing = frozenset() if b"".join(pieces) == text.encode() else missing_bytes(tokenizer)
    for i, span in zip(inside, exact_spans(text, pieces, missing) or (), strict=False):
        refined[i] = (rows[i][0], *span)
    return refined, tuple(dict.fromkeys(c for c in text if missing.intersection(c.encode())))


def _cut(rows: Sequence[Row], n_front: int, n_ctx: int, keep: str | None) -> tuple[Sequence[Row], int, str]:
    """At most `n_ctx` rows, how many went, and from which end. A cut may fall inside a character."""
    excess = len(rows) - n_ctx
    if keep is None or excess <= 0:
        return rows, 0, ""
    if keep == "start":
        return rows[:n_ctx], excess, "end"
    return [*rows[:n_front], *rows[n_front + excess :]], excess, "start"
