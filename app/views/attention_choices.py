"""What a person chooses on the page "Attention"."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from analyses.head_scores import HeadScores
from app.backend.protocol import ModelInfo
from app.ui.controls import segments
from app.views.position import choose_position

# Field of `HeadScores` -> what the page calls it. Entropy last: it is the only one where little stands out.
SCORES: Mapping[str, str] = {
    "induction": "induction",
    "previous_token": "previous token",
    "duplicate_token": "duplicate token",
    "first_token": "first token",
    "current_token": "current token",
    "entropy_share": "entropy",
}
MEASURED = ("random tokens", "my prompt")
ORDERS = ("by layer", "by score")
_CLICKED = "attention.clicked"
_NAME = re.compile(r"\s*L(\d{1,4})H(\d{1,4})\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Choices:
    """Everything that changes the sheet."""

    score: str  # a key of SCORES
    on: str  # "random" or "prompt"
    by_score: bool
    top: int  # 0: all heads
    hide_first: bool


def choose() -> Choices:
    """The row of controls above the sheet."""
    places = st.columns([2, 3, 2.4, 1.9, 2.3], vertical_alignment="bottom")
    with places[0]:
        score = st.selectbox(
            "Score",
            list(SCORES),
            format_func=SCORES.__getitem__,
            key="score",
            bind="query-params",
            help="What a head's strength is. Induction: it looks at the token that followed the last time the present token "
            "occurred. First token: it rests there (a sink). Entropy: 0 looks at one token, 1 spreads over all alike.",
        )
    with places[1]:
        on = segments(
            "Measured on",
            MEASURED,
            key="scored_on",
            help="Random tokens repeated once, the same for everybody; or the prompt on the left.",
        )
    with places[2]:
        order = segments("Order", ORDERS, key="order")
    with places[3]:
        top = st.number_input(
            "Only the top",
            1,
            10_000,
            None,
            key="top",
            bind="query-params",
            placeholder="all heads",
            help="By the score.",
        )
    with places[4]:
        hide = st.toggle(
            "Hide the first token",
            key="hide_first",
            bind="query-params",
            help="Many heads rest on the first token. This takes it out of the colours only; the numbers stay true.",
        )
    return Choices(score, "prompt" if on == MEASURED[1] else "random", order == ORDERS[1], int(top or 0), hide)


def read_heads(text: str, n_layers: int, n_heads: int) -> tuple[tuple[int, int], ...]:
    """Heads as a person writes them: "L18H6, L17H3".

    Raises:
        ValueError: another spelling, a head that is not there, or one twice.
    """
    found: list[tuple[int, int]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        match = _NAME.fullmatch(word)
        if match is None:
            raise ValueError(f"needs heads such as L18H6, separated by commas; found {word!r}; correct it.")
        pair = (int(match[1]), int(match[2]))
        if not (pair[0] < n_layers and pair[1] < n_heads):
            raise ValueError(
                f"needs layers 0 to {n_layers - 1} and heads 0 to {n_heads - 1}; found {word}; both count from zero."
            )
        if pair in found:
            raise ValueError(f"needs each head once; found {word} twice; leave one out.")
        found.append(pair)
    return tuple(found)


def write_heads(heads: tuple[tuple[int, int], ...]) -> str:
    """The same in writing."""
    return ", ".join(f"L{layer}H{head}" for layer, head in heads)


def choose_head(model: ModelInfo, best: tuple[int, int], n_tokens: int) -> tuple[tuple[int, int], int]:
    """The opened head and the token whose row is shown: fields, of which a click on the sheet sets two.

    `best` is the head when nothing is chosen.
    """
    if _CLICKED in st.session_state:
        st.session_state["layer"], st.session_state["head"] = st.session_state.pop(_CLICKED)
    for key, size in (("layer", model.config.n_layers), ("head", model.config.n_heads)):
        if (st.session_state.get(key) or 0) >= size:  # another model has fewer
            st.session_state[key] = None
    left, middle, right, _ = st.columns([1, 1, 1, 2])
    with left:
        layer = st.number_input(
            "Layer",
            min_value=0,
            max_value=model.config.n_layers - 1,
            value=None,
            key="layer",
            bind="query-params",
            placeholder=f"{best[0]}",
        )
    with middle:
        head = st.number_input(
            "Head",
            min_value=0,
            max_value=model.config.n_heads - 1,
            value=None,
            key="head",
            bind="query-params",
            placeholder=f"{best[1]}",
        )
    with right:
        position = choose_position(n_tokens, "Token that looks")
    return (best[0] if layer is None else int(layer), best[1] if head is None else int(head)), position


def open_head(pair: tuple[int, int]) -> None:
    """Keep a clicked head and draw the page again."""
    st.session_state[_CLICKED] = pair
    st.rerun()


def why_not(scores: HeadScores, score: str) -> str:
    """Why a score is not defined, or ""."""
    return {"induction": scores.induction_reason, "duplicate_token": scores.duplicate_reason}.get(score, "")
