"""Colours and layout that every figure shares: the same thing has the same colour on every page."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.ui.token_text import plotly_safe, shorten

# Okabe and Ito 2008, "Color Universal Design", and Tol 2021, "Colour schemes": told apart with any colour vision.
ATTENTION = "#0072B2"
MLP = "#D55E00"
STREAM = "#6B7280"  # the residual stream, the embedding, and whatever is only a reference
CHANGE = "#AA4499"  # what the user changed: steering, ablation, sampling
TARGET = "#009E73"
DISTRACTOR = "#CC79A7"
OWN = "#56B4E9"  # the user's own text beside ours; Okabe and Ito's sky blue, which means nothing else

# streamlit_config.toml's text colours: Streamlit draws Plotly's ticks in a grey of 3.7:1 on white, too faint to read.
TEXT = {"light": "#101317", "dark": "#E6E6E9"}

MONOSPACE = "'Source Code Pro', ui-monospace, monospace"
GRID = "rgba(127, 127, 127, 0.3)"  # visible on white and on black
_ROW_PIXELS = 30
_MARGIN_PIXELS = 90  # axis title, ticks and legend


def horizontal_bars(labels: Sequence[str], *, axis: str, upper: float, ticks: Sequence[float], form: str) -> go.Figure:
    """An empty figure for one row per label, the first on top, on a fixed numeric axis from zero.

    Rows are numbers with the labels as their text: Plotly merges rows that have the same name.

    Args:
        labels: visible text, one per row; equal ones stay apart, long ones are shortened.
        axis: title of the value axis, with the unit.
        upper: where the scale ends; a fifth more is kept free for the printed values.
        ticks: values that get a tick.
        form: d3 format of the ticks.
    """
    figure = go.Figure()
    rows = list(range(len(labels)))
    figure.update_layout(
        height=_MARGIN_PIXELS + _ROW_PIXELS * max(len(labels), 1),
        margin={"l": 8, "r": 8, "t": 30, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",  # Streamlit's light or dark page shows through
        plot_bgcolor="rgba(0,0,0,0)",
        bargap=0.25,
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        hoverlabel={"font": {"family": MONOSPACE}},
    )
    figure.update_xaxes(
        title=axis, range=[0, 1.2 * upper], tickvals=list(ticks), tickformat=form, gridcolor=GRID, fixedrange=True
    )
    figure.update_yaxes(
        tickmode="array",
        tickvals=rows,
        ticktext=[plotly_safe(shorten(label)) for label in labels],
        range=[len(labels) - 0.5, -0.5],
        tickfont={"family": MONOSPACE},
        showgrid=False,
        automargin=True,
        fixedrange=True,
    )
    return figure


def text_colour(figure: go.Figure, *, dark: bool) -> go.Figure:
    """The same figure with all its text in the colour of the page's theme (`st.context.theme.type == "dark"`)."""
    colour = {"color": TEXT["dark" if dark else "light"]}
    figure.update_layout(font=colour, legend={"font": colour})
    figure.update_xaxes(tickfont=colour, title={"font": colour})
    figure.update_yaxes(tickfont=colour, title={"font": colour})
    figure.update_traces(textfont=colour)
    figure.update_annotations(font=colour)
    return figure
