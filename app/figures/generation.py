"""How undecided the model was before each new token, and how surprising the one that was taken."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from app.figures.next_token import hover_rows
from app.figures.theme import CHANGE, GRID, MONOSPACE, STREAM
from app.ui.token_text import plotly_safe, shorten

LABELLED = 40  # more tokens than that get numbers alone: their names would lie on each other


def uncertainty_figure(
    labels: Sequence[str],
    entropy_bits: Float[np.ndarray, " new"],
    surprise_bits: Float[np.ndarray, " new"],
    *,
    upper: float,
    first: int = 0,
) -> go.Figure:
    """A bar for the entropy of every distribution, and a mark for the surprise of the token that was taken from it.

    Args:
        labels: the new tokens as visible text.
        entropy_bits: of the distribution over the whole vocabulary, before temperature.
        surprise_bits: minus log2 of the probability of the token.
        upper: where the axis ends at least, so that pictures can be compared.
        first: number of the first of these tokens.
    """
    places = np.arange(first, first + len(labels))
    hover = hover_rows(labels, None)
    figure = go.Figure()
    figure.add_bar(
        x=places,
        y=np.asarray(entropy_bits, dtype=np.float64),
        name="entropy of the distribution",
        marker={"color": STREAM},
        customdata=hover,
        hovertemplate="new token %{x}: %{customdata[0]}<br>entropy %{y:.2f} bits<extra></extra>",
    )
    figure.add_scatter(
        x=places,
        y=np.asarray(surprise_bits, dtype=np.float64),
        name="surprise of the token taken",
        mode="markers",
        marker={"color": CHANGE, "size": 9, "symbol": "diamond"},
        customdata=hover,
        hovertemplate="new token %{x}: %{customdata[0]}<br>surprise %{y:.2f} bits<extra></extra>",
    )
    top = max([upper, *np.asarray(entropy_bits, dtype=np.float64), *np.asarray(surprise_bits, dtype=np.float64)])
    figure.update_layout(
        height=280,
        margin={"l": 8, "r": 8, "t": 30, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        hoverlabel={"font": {"family": MONOSPACE}},
    )
    figure.update_yaxes(title="bits", range=[0, 1.05 * top], gridcolor=GRID, fixedrange=True)
    figure.update_xaxes(
        title="new token (from 0)", showgrid=False, fixedrange=True, range=[first - 0.6, places[-1] + 0.6]
    )
    if len(labels) <= LABELLED:
        names = [plotly_safe(f"{place} {shorten(label, 10)}") for place, label in zip(places, labels, strict=True)]
        figure.update_xaxes(tickvals=places, ticktext=names, tickangle=-60, tickfont={"family": MONOSPACE})
    return figure
