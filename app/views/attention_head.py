"""One head: its map, what it writes, the four steps of one token, and any scale."""

import numpy as np
import streamlit as st

from analyses.attention import Attention
from analyses.attention_steps import weights_at_scale
from app.components.head_map import head_map
from app.components.head_map.head_map import MAX_TOKENS
from app.figures.attention import row_figure
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.token_text import powers, visible
from app.ui.words import literal, show_figure

VIEWS = ("Map", "What it writes", "Four steps", "Any scale")


def draw_head(frame: Frame, opened: Attention, position: int, *, hide_first: bool) -> None:
    """The chosen view of the opened head."""
    view = segments("View", VIEWS, key="headview", titled=False)
    if view in VIEWS[:2] and opened.n_tokens > MAX_TOKENS:
        st.caption(
            f"The large map shows up to {MAX_TOKENS} tokens; this prompt has {opened.n_tokens:,}. "
            "Four steps and Any scale show single rows; all heads of this layer stand below."
        )
        return
    if view == VIEWS[0]:
        _draw_map(frame, opened, hide_first)
    elif view == VIEWS[1]:
        _draw_written(frame, opened, hide_first)
    elif view == VIEWS[2]:
        _draw_steps(frame, opened, position)
    else:
        _draw_scale(frame, opened, position)


def name_of(opened: Attention) -> str:
    """As heads are called."""
    return f"L{opened.layer}H{opened.head}"


def _draw_map(frame: Frame, opened: Attention, hide_first: bool) -> None:
    head_map(
        opened.exact,
        frame.tokens.pieces,
        name=name_of(opened),
        selected=None,
        key="attention.map",
        label=f"Attention of head {name_of(opened)}",
        hide_first=hide_first,
    )


def _draw_written(frame: Frame, opened: Attention, hide_first: bool) -> None:
    if opened.weighted is None:
        st.caption("What this head writes cannot be read in this family.")
        return
    upper = float(opened.weighted.max())
    head_map(
        opened.weighted,
        frame.tokens.pieces,
        name=name_of(opened),
        selected=None,
        key="attention.written",
        label=f"Attention of head {name_of(opened)} times the size of what it writes",
        hide_first=hide_first,
        upper=upper or 1.0,
        measure="weight times the size of what is written (L2 norm)",
    )
    st.caption(
        "A head can look at a token and take next to nothing from it: here each weight is multiplied by the size of the value it "
        "mixes in, after the output matrix. A first token that is looked at a lot often fades (Kobayashi et al. 2020)."
    )


def _draw_steps(frame: Frame, opened: Attention, position: int) -> None:
    if opened.raw is None or opened.scaled is None or opened.masked is None or opened.softmax is None:
        st.caption(f"The steps cannot be shown: {literal(opened.steps_reason)}")
        return
    _say_query(frame, position)
    keys = range(position + 1) if position + 1 == opened.n_tokens else range(min(position + 4, opened.n_tokens))
    columns = {
        "token": list(keys),
        "key": [visible(frame.tokens.pieces[key]) for key in keys],
        "1 q·k": [opened.raw[position, key] for key in keys],
        "2 scaled": [opened.scaled[position, key] for key in keys],
        "3 masked": ["hidden" if np.isneginf(v := opened.masked[position, key]) else f"{v:.3f}" for key in keys],
        "4 softmax": [opened.softmax[position, key] for key in keys],
        "the model's own": [opened.exact[position, key] for key in keys],
    }
    st.dataframe(columns, hide_index=True)
    scale = (
        "" if opened.scale is None else f" by {opened.scale:.4f} (1/√d_head = {frame.model.config.d_head**-0.5:.4f})"
    )
    cap = "" if opened.softcap is None else f", then capped softly at {opened.softcap:g}"
    slope = "" if not opened.slope else f", plus ALiBi's {opened.slope:+.4f} per position"
    st.caption(
        f"1 query times key; 2 multiplied{scale}{cap}; 3 later tokens hidden{slope}; 4 softmax makes the row sum to one. The "
        f"last two columns {agreement(opened.error or 0.0)} over all rows."
    )


def agreement(error: float) -> str:
    """How well two columns agree."""
    return f"agree to {powers(f'{error:.0e}')}" if error else "are the same"


def _say_query(frame: Frame, position: int) -> None:
    token = literal(visible(frame.tokens.pieces[position]))
    st.caption(f'The row of token {position}, {token}. Another one: "Token that looks", above.')


@st.fragment
def _draw_scale(frame: Frame, opened: Attention, position: int) -> None:
    if opened.raw is None or opened.scale is None:
        st.caption(f"The scale cannot be changed: {literal(opened.steps_reason)}")
        return
    factor = st.slider(
        "Scale, times the model's own",
        0.0,
        16.0,
        1.0,
        0.25,
        key="factor",
        bind="query-params",
        help="1 is the model's own. The factor that means no scaling at all stands below.",
    )
    window = opened.window[opened.layer or 0]
    now = weights_at_scale(opened.raw, opened.scale * factor, window=window)
    labels = [visible(piece) for piece in frame.tokens.pieces[: position + 1]]
    figure = row_figure(labels, opened.exact[position, : position + 1], now[position, : position + 1])
    _say_query(frame, position)
    show_figure(figure, key="attention.scale", alt="Weights of one row at the model's scale and at the chosen one")
    largest = float(now[1:].max(-1).mean()) if len(now) > 1 else 1.0
    st.caption(
        f"Scale {opened.scale * factor:.4f}; the model's own is {opened.scale:.4f}, no scaling is factor "
        f"{1 / opened.scale:.1f}. Mean of the largest weight over all rows but the first: {largest:.2f}. Near 1 the softmax is "
        "saturated: its slope is almost zero, and training would stand still (Vaswani et al. 2017). Soft caps and ALiBi are "
        "left out here."
    )
