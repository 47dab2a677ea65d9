"""Which token of the prompt the page is about: a number field and the token strip show and change the same choice."""

import streamlit as st

from analyses.tokenization import Tokens
from app.components.token_strip import token_strip

_CLICKED = "tokens.clicked"


def choose_position(n_tokens: int, label: str = "Predict after token") -> int:
    """A field for the position; empty is the last token, also after the prompt has changed. -1 for no tokens."""
    if _CLICKED in st.session_state:  # a click on the strip, which is drawn further down, arrives in the next run
        st.session_state["after"] = st.session_state.pop(_CLICKED)
    chosen = st.session_state.get("after")
    if chosen is not None and chosen >= n_tokens:
        st.session_state["after"] = None
    after = st.number_input(
        label,
        min_value=0,
        max_value=max(n_tokens - 1, 0),
        value=None,
        key="after",
        bind="query-params",
        placeholder=f"the last ({n_tokens - 1})" if n_tokens else "none",
        help="Counted from zero. A click on a token in a picture does the same where there is one.",
    )
    return n_tokens - 1 if after is None or n_tokens == 0 else after


def _legend(tokens: Tokens) -> str:
    """What the marks in this strip mean, only those that occur."""
    text = b"".join(tokens.pieces)
    marks = [
        ("· is a space", b" " in text),
        ("⏎ is a new line", b"\n" in text),
        ("hexadecimal numbers are the bytes of an unfinished character", any(not whole(p) for p in tokens.pieces)),
        ("a pill is a special token", any(tokens.special)),
        ("a dashed box was added, it is not in your text", any(start < 0 for start in tokens.starts)),
    ]
    said = "; ".join(words for words, there in marks if there)
    return f"{said}. Click a token to predict what follows it." if said else "Click a token to predict what follows it."


def whole(piece: bytes) -> bool:
    """Whether the bytes are complete characters."""
    return piece.decode("utf-8", "ignore").encode() == piece


def draw_strip(tokens: Tokens, position: int) -> None:
    """The tokens with the chosen one marked; a click chooses another and draws the page again."""
    clicked = token_strip(
        tokens.pieces,
        tokens.ids,
        tokens.starts,
        tokens.ends,
        tokens.special,
        selected=position,
        key="tokens.strip",
        label="Tokens of the prompt",
    )
    st.caption(_legend(tokens))
    if clicked is not None and clicked != position:
        st.session_state[_CLICKED] = clicked
        st.rerun()
