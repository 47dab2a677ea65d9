"""Sentences, tables and pictures that may contain a person's text, shown literally and readable in both themes."""

import re
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import streamlit as st

from app.figures.theme import text_colour

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=@])")
# Streamlit replaces arrows, dashes, icons and addresses after Markdown has taken the backslashes away; only a character in
# between stops it (seen in Chromium). U+2060, the word joiner, has no width and allows no line break.
_JOINTS = re.compile(r"(?<=[<>~=\-])(?=[<>=\-])|(?<=[:@])(?=\S)|(?<=www)(?=\.)", re.IGNORECASE)


def literal(text: str) -> str:
    """Text escaped so that Streamlit's Markdown shows it as it is: no formatting, no formulas, no icons, no links."""
    return _MARKS.sub(r"\\\1", _JOINTS.sub("\u2060", text))


def say_error(sentence: str) -> None:
    """One sentence that says what is needed, what was found and what to do."""
    st.error(literal(sentence[:1].upper() + sentence[1:]), icon=":material/error:")


def say_note(sentence: str) -> None:
    """A quiet remark beside a picture."""
    st.caption(literal(sentence))


def show_table(columns: Mapping[str, Sequence[str]]) -> None:
    """A small table whose cells wrap; the text is shown literally."""
    st.table({literal(name): [literal(cell) for cell in cells] for name, cells in columns.items()}, hide_index=True)


def show_figure(figure: go.Figure, *, key: str, alt: str, selectable: bool = False) -> list[float]:
    """A figure in the colours of the page's theme, with a text alternative for screen readers.

    Args:
        figure: to be drawn.
        key: name of the picture in this session.
        alt: what a screen reader says.
        selectable: whether a click on a point draws the page again.

    Returns:
        The horizontal places of the points that are selected.
    """
    dark = st.context.theme.type == "dark"
    options = {"on_select": "rerun", "selection_mode": "points"} if selectable else {}
    shown = st.plotly_chart(text_colour(figure, dark=dark), key=key, config={"displaylogo": False}, alt=alt, **options)
    return [point["x"] for point in shown["selection"]["points"]] if selectable else []
