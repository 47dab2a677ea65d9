"""What the vector is tried on, and the words that count as success: each one token of this model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import streamlit as st

from analyses.tokenization import Tokens
from app.backend import get_backend
from app.backend.protocol import Refused
from app.ui.examples import EXAMPLES
from app.ui.frame import Frame
from app.ui.token_text import visible
from app.ui.words import say_error, say_note
from app.views.steering_vectors import example_named

ON = ("my prompt", "the example's prompt")
_SHOWN_WORDS = 12  # of a list, in a sentence


@dataclass(frozen=True)
class Text:
    """The prompt that is steered."""

    tokens: Tokens
    prompt: str
    own: bool  # the frame's prompt, not the example's

    @property
    def ids(self) -> tuple[int, ...]:
        """Its tokens."""
        return self.tokens.ids


@dataclass(frozen=True)
class Words:
    """A list of words that were read as tokens, and what is wrong with the others."""

    ids: tuple[int, ...] = ()
    wrong: tuple[str, ...] = field(default=())  # why, in words


def choose_words(frame: Frame, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Target and opposite words as ids; what is no single token is said, and left out."""
    example = example_named(name)
    found: list[Words] = []
    for key, label, usual in (
        ("targets", "Target words", () if example is None else example.targets),
        ("opposites", "compared with", () if example is None else example.against),
    ):
        typed = st.text_input(
            label,
            key=key,
            bind="query-params",
            placeholder=_listed(usual) or ("none" if key == "targets" else "all other tokens"),
            help="Separated by commas. Each must be one token of this model; a space is put in front, as inside a sentence.",
        )
        words = read_words(frame, typed.split(",") if typed.strip() else usual)
        for sentence in words.wrong if typed.strip() else ():
            say_error(sentence)
        if words.wrong and not typed.strip():
            say_note(f"{len(words.wrong)} of the example's words are no single tokens of this model and are left out.")
        found.append(words)
    targets = found[0].ids
    return targets, tuple(i for i in found[1].ids if i not in targets) if targets else ()


def read_words(frame: Frame, words: Sequence[str]) -> Words:
    """Words as single tokens, each once."""
    ids: list[int] = []
    wrong: list[str] = []
    for typed in words:
        if not (word := typed.replace("·", " ").strip()):
            continue
        try:
            spaced, bare = (get_backend().tokenize(text, bos="none", plain=True) for text in (f" {word}", word))
        except (ValueError, Refused) as error:
            wrong.append(str(error))
            continue
        one = next((tokens.ids[0] for tokens in (spaced, bare) if len(tokens.ids) == 1), None)
        if one is None:
            parts = ", ".join(visible(piece) for piece in spaced.pieces[:8])
            wrong.append(
                f'needs target words that are one token; found "{word[:40]}", which is {len(spaced.ids)}: {parts}; choose '
                "another word. It is left out."
            )
        elif one not in ids:
            ids.append(one)
    return Words(tuple(ids), tuple(wrong))


def choose_text(frame: Frame, name: str) -> Text | None:
    """The prompt: the person's; the example's as long as nobody has written one."""
    example = example_named(name)
    usual = ON[1] if example is not None and frame.prompt == EXAMPLES[0].prompt else ON[0]
    chosen = st.selectbox(
        "Tried on",
        ON,
        index=None,
        key="steer_on",
        bind="query-params",
        placeholder=usual,
        help="Which prompt is steered: yours on the left, or the one that shows the example best.",
    )
    if example is None or (chosen or usual) == ON[0]:
        return Text(frame.tokens, frame.prompt, own=True)
    try:
        tokens = get_backend().tokenize(example.prompt, bos=frame.bos, plain=True)
    except (ValueError, Refused) as error:
        say_error(str(error))
        return None
    return Text(tokens, example.prompt, own=False)


def _listed(words: Sequence[str]) -> str:
    """Words of a list with commas between, the first dozen."""
    more = ", …" if len(words) > _SHOWN_WORDS else ""
    return ", ".join(word.strip() for word in words[:_SHOWN_WORDS]) + more
