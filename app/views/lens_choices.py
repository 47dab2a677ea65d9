"""What a person chooses on the page "Logit lens", and where it is kept."""

from dataclasses import dataclass

import streamlit as st

from app.backend.protocol import ModelInfo
from app.ui.controls import segments
from app.views.position import choose_position

COLOURS = ("Probability", "Entropy", "Rank", "KL")
LENSES = ("Plain", "Linear")
SPANS = ("Last 32", "All")
FIT_TEXTS = ("the built-in text", "my prompt")
WINDOW = 32  # positions that are read unless all are asked for
ROWS = 40  # rows that are drawn unless the stride says otherwise
_CLICKED = "lens.clicked"


@dataclass(frozen=True)
class Choices:
    """Everything that changes the picture."""

    target: str  # "" for the model's own answer
    distractor: str  # "" for none
    colour: str
    lens: str
    fit_on: str
    all_positions: bool
    exact: bool  # float32 also for grids of many positions
    stride: int  # every how many depths a row is drawn
    position: int  # absolute; the token after it is predicted
    depth: int  # 0..L


def with_spaces(typed: str) -> str:
    """A token as it was typed: the mark for a space, which this app shows, is a space."""
    return typed.replace("·", " ")


def choose(model: ModelInfo, n_tokens: int) -> Choices:
    """Draw the controls: one row, and the rest in "More"."""
    n_layers = model.config.n_layers
    if _CLICKED in st.session_state:  # a click on the grid, which is drawn further down, arrives in the next run
        st.session_state["depth"] = st.session_state.pop(_CLICKED)
    if (st.session_state.get("depth") or 0) > n_layers:  # another model has fewer layers
        st.session_state["depth"] = None
    places = st.columns([2.4, 4.6, 2.3, 2.4, 1.5], vertical_alignment="bottom")
    with places[0]:
        target = st.text_input(
            "Target token",
            key="target",
            bind="query-params",
            placeholder="its own answer",
            help="Whose rank and probability are followed. It must be exactly one token; most words begin with a space: "
            "write it as a space or as ·.",
        )
    with places[1]:
        colour = segments(
            "Colour", COLOURS, key="colour", help="What the colour of a cell shows. The numbers are in the hover text."
        )
    with places[2]:
        lens = segments(
            "Lens",
            LENSES,
            key="lens",
            help="Plain: the stream is read with the model's own last step. Linear: it is first mapped to the last depth by "
            "a matrix that was fitted by least squares.",
        )
    with places[3]:
        span = segments("Tokens", SPANS, key="span", help="All reads every token of the prompt; that takes longer.")
    with places[4], st.popover("More", width="stretch"):
        return _choose_more(model, n_tokens, {"target": target, "colour": colour, "lens": lens, "span": span})


def _choose_more(model: ModelInfo, n_tokens: int, row: dict[str, str]) -> Choices:
    """The controls inside "More"; `row` holds what the others say."""
    n_layers = model.config.n_layers
    position = choose_position(n_tokens)
    depth = st.number_input(
        "Stopped at depth",
        min_value=0,
        max_value=n_layers,
        value=None,
        key="depth",
        bind="query-params",
        placeholder=f"the last ({n_layers})",
        help="0 is the embedding, each block adds one. A click on a cell sets it.",
    )
    distractor = st.text_input(
        "Distractor token",
        key="distractor",
        bind="query-params",
        placeholder="none",
        help="A second token to compare with; who wrote it then shows target minus distractor.",
    )
    stride = st.number_input(
        "Draw every n-th depth",
        min_value=1,
        max_value=16,
        value=None,
        key="stride",
        bind="query-params",
        placeholder=f"every {default_stride(n_layers)}",
        help="The last depth is always drawn.",
    )
    exact = st.toggle(
        "Exact numbers in the grid",
        key="exact",
        bind="query-params",
        help="Off: grids of more than 64 tokens are read in bfloat16 where the processor is fast at it.",
    )
    fit_on = st.selectbox("The linear lens is fitted on", FIT_TEXTS, key="fit_on", bind="query-params")
    return Choices(
        target=with_spaces(row["target"]),
        distractor=with_spaces(distractor),
        colour=row["colour"],
        lens=row["lens"],
        fit_on=fit_on,
        all_positions=row["span"] == SPANS[1],
        exact=exact,
        stride=default_stride(n_layers) if stride is None else int(stride),
        position=position,
        depth=n_layers if depth is None else int(depth),
    )


def pin(position: int, depth: int) -> None:
    """Keep a clicked cell and draw the page again."""
    st.session_state["tokens.clicked"] = position
    st.session_state[_CLICKED] = depth
    st.rerun()


def default_stride(n_layers: int) -> int:
    """So many depths between two rows that the grid has at most `ROWS`."""
    return -(-(n_layers + 1) // ROWS)


def window(n_tokens: int, position: int, all_positions: bool) -> tuple[int, ...]:
    """Positions to read: all, or the last 32; further back when the chosen one is there."""
    if all_positions or n_tokens <= WINDOW:
        return tuple(range(n_tokens))
    last = max(min(position + WINDOW // 2, n_tokens - 1), WINDOW - 1) if position < n_tokens - WINDOW else n_tokens - 1
    return tuple(range(last - WINDOW + 1, last + 1))


def rows_drawn(n_depths: int, stride: int) -> list[int]:
    """Depths that get a row: every `stride`-th counted from the last, which is always there."""
    return list(range(n_depths - 1, -1, -stride))[::-1]
