"""How numbers and words split: why arithmetic and counting letters are awkward for a model that sees ids."""

from collections.abc import Sequence

import streamlit as st

from analyses.tokenization import Tokens
from app.backend import get_backend
from app.backend.protocol import Refused
from app.components.token_strip import token_strip
from app.ui.token_text import visible
from app.ui.words import say_error

MAX_CHARACTERS = 200


def _tokenize(texts: Sequence[str]) -> list[Tokens]:
    try:
        return [get_backend().tokenize(text, bos="none", plain=True) for text in texts]
    except (ValueError, Refused) as error:
        say_error(str(error))
        st.stop()


def draw_numbers() -> None:
    """A few numbers as tokens."""
    text = st.text_input(
        "Numbers",
        "7 42 2024 1234567 3.14159 127 + 48 = 175",
        key="numbers",
        bind="query-params",
        max_chars=MAX_CHARACTERS,
    )
    (tokens,) = _tokenize([text])
    token_strip(
        tokens.pieces, tokens.ids, tokens.starts, tokens.ends, tokens.special, selected=None, key="tokens.numbers"
    )
    groups = [
        sum(character.isdigit() for character in visible(piece))
        for piece in tokens.pieces
        if any(48 <= byte < 58 for byte in piece)
    ]
    if groups:
        kind = "every digit is a token of its own" if max(groups) == 1 else f"up to {max(groups)} digits share a token"
        st.caption(
            f"In this text {kind}. A sum is a pattern over such tokens, written from the left; the model never sees the "
            f"number as one value."
        )


def letter_counts(tokens: Tokens, letter: str) -> list[int]:
    """How often a letter, large or small, begins in each token; one that is split over tokens counts in its first."""
    counts = [0] * len(tokens.ids)
    for place, character in enumerate(tokens.text):
        if character.lower() == letter.lower():
            spans = zip(tokens.starts, tokens.ends, strict=True)
            counts[next(i for i, (start, end) in enumerate(spans) if start <= place < end)] += 1
    return counts


def draw_words() -> None:
    """One word in five spellings, and the letters that no id contains."""
    left, right = st.columns([3, 1])
    with left:
        word = st.text_input("Word", "strawberry", key="word", bind="query-params", max_chars=MAX_CHARACTERS)
    with right:
        letter = st.text_input("Letter", "r", key="letter", bind="query-params", max_chars=1)
    if not word:
        st.caption("Type a word.")
        return
    capital = word[:1].upper() + word[1:]
    spellings = list(dict.fromkeys([word, f" {word}", capital, f" {capital}", word.upper()]))
    rows = _tokenize(spellings)
    st.dataframe(
        {
            "spelling": [visible(text.encode()) for text in spellings],
            "tokens": [len(row.ids) for row in rows],
            "pieces": [" | ".join(map(visible, row.pieces)) for row in rows],
            "ids": [", ".join(map(str, row.ids)) for row in rows],
            f"how often {visible(letter.encode()) if letter else '?'}": [
                " + ".join(map(str, letter_counts(row, letter))) if letter else "" for row in rows
            ],
        },
        hide_index=True,
    )
    st.caption(
        "Same word, other tokens: with its leading space or a capital it is another row of the embedding. The "
        "model receives the "
        "ids, and an id does not contain its letters, so counting them has to be learned token by token. "
        "Splitting explains why a task is awkward; it does not prove that this is why a model fails."
    )
