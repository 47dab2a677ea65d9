"""What "Inside a block" looks at: a text, a layer, a token, and which of its five pictures."""

from dataclasses import dataclass

import streamlit as st

from analyses.passages import PASSAGES
from analyses.tokenization import Tokens
from app.backend import get_backend
from app.backend.protocol import Refused
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.token_text import visible
from app.ui.words import literal, say_error

OWN_TEXT = "my prompt"
TEXTS = (*PASSAGES, OWN_TEXT)  # a passage first: a loss of four tokens says little
VIEWS = ("Norms", "One changed token", "No activation", "Rank of a weight", "Norm before or after")


@dataclass(frozen=True)
class Inside:
    """A place in the model, and the text that runs through it."""

    text: str  # one of TEXTS
    tokens: Tokens
    layer: int
    position: int
    view: str  # one of VIEWS

    @property
    def token(self) -> str:
        """The chosen token, visible and escaped."""
        return literal(visible(self.tokens.pieces[self.position]))


def choose(frame: Frame) -> Inside | None:
    """The controls, two short rows; None where there is no text, which is said."""
    view = segments("Inside a block", VIEWS, key="inside", titled=False)
    first, second, third = st.columns([2, 1, 1], vertical_alignment="bottom")
    with first:
        text = st.selectbox(
            "Text for these measurements",
            TEXTS,
            key="inside_text",
            bind="query-params",
            help="A built-in passage, or your prompt: a loss needs more than a few tokens to say something.",
        )
    tokens = _tokens(frame, text)
    if tokens is None:
        return None
    n_layers, n_tokens = frame.model.config.n_layers, len(tokens.ids)
    _fewer("inside_layer", n_layers)
    _fewer("inside_token", n_tokens)
    with second:
        layer = st.number_input(
            "Layer",
            min_value=0,
            max_value=n_layers - 1,
            value=None,
            key="inside_layer",
            bind="query-params",
            placeholder=f"{n_layers // 2} (the middle)",
            help="Counted from zero.",
        )
    with third:
        position = st.number_input(
            "Token",
            min_value=0,
            max_value=max(n_tokens - 1, 0),
            value=None,
            key="inside_token",
            bind="query-params",
            placeholder=f"{n_tokens // 2} (the middle)",
            help="Counted from zero, in the chosen text.",
        )
    if n_tokens < 2:
        found = "nothing" if not n_tokens else "one token"
        st.info(f"Needs at least two tokens; found {found}. Choose another text, or write a longer prompt.")
        return None
    at_layer = n_layers // 2 if layer is None else int(layer)
    at_token = n_tokens // 2 if position is None else int(position)
    return Inside(text, tokens, at_layer, at_token, view)


def _fewer(key: str, n: int) -> None:
    """A number that another model or text does not have is forgotten."""
    kept = st.session_state.get(key)
    if kept is not None and kept >= n:
        st.session_state[key] = None


def _tokens(frame: Frame, text: str) -> Tokens | None:
    if text == OWN_TEXT:
        return frame.tokens
    try:
        return get_backend().tokenize(PASSAGES[text], bos=frame.bos, plain=True, keep="start")
    except (ValueError, Refused) as error:
        say_error(str(error))
        return None
