"""Which token does a person mean? An id, or a text that is exactly one token of this model."""

import json
from typing import Any

import numpy as np

from analyses._encode import encode
from analyses.vocabulary import printable, token_bytes

_SHOWN, _SHOWN_CHARACTERS = 8, 40  # pieces and characters of a text that is more than one token


def token_id(model: Any, given: int | np.integer | str, what: str = "target") -> int:
    """The id of one token.

    Args:
        model: a HookedModel.
        given: an id, or a text; a space in front counts (" Paris" and "Paris" are two tokens).
        what: the parameter's name, for the sentence of a refusal.

    Raises:
        ValueError: an id outside the vocabulary, or a text that is not exactly one token; the pieces found are shown.
    """
    d_vocab = model.config.d_vocab
    if not isinstance(given, str):
        if not 0 <= given < d_vocab:
            raise ValueError(
                f"needs a {what} id from 0 to {d_vocab - 1:,}; found {given:,}; use an id of this model's vocabulary."
            )
        return int(given)
    text = given.encode("utf-8", "replace").decode()  # a lone surrogate is no character: it becomes a question mark
    ids = [row[0] for row in encode(model.tokenizer, text)]
    if len(ids) != 1:
        pieces = [printable(piece) for piece in token_bytes(model.tokenizer, ids[:_SHOWN])]
        parts = ", ".join(_quoted(piece) for piece in pieces) + (", ..." if len(ids) > _SHOWN else "")
        start = printable(text[:_SHOWN_CHARACTERS].encode()) + ("..." if len(text) > _SHOWN_CHARACTERS else "")
        found = f"{_quoted(start)}, which is {len(ids)}: {parts}" if ids else "a text without any"
        raise ValueError(
            f"needs a {what} that is one token; found {found}; choose one of this model's tokens"
            f"{' (a space in front counts)' if ids else ''}."
        )
    if ids[0] >= d_vocab:  # a tokenizer may know tokens that were added after the model was made
        raise ValueError(
            f"needs a {what} that the model can answer with (ids below {d_vocab:,}); found id {ids[0]:,}; choose another."
        )
    return ids[0]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\\\\", "\\")  # `printable` has made everything visible
