"""Figures with the depth of the model on the horizontal axis: one look for all of them."""

from collections.abc import Sequence

import plotly.graph_objects as go

from app.figures.theme import GRID

MARGIN = {"l": 8, "r": 8, "t": 40, "b": 44}
HEIGHT = 330


def depth_labels(n_layers: int) -> list[str]:
    """What stands at each depth 0..L: the stream before the first block, then after each."""
    return ["embedding", *(f"after {layer}" for layer in range(n_layers))]


def layer_axis(figure: go.Figure, *, title: str, values: str, n: int, first: int = 0) -> go.Figure:
    """Lay a figure out over layers or depths.

    Args:
        figure: with traces whose x are whole numbers from `first`.
        title: of the horizontal axis.
        values: title of the vertical axis, with the unit.
        n: how many places there are.
        first: the first of them.
    """
    figure.update_layout(
        height=HEIGHT,
        margin=MARGIN,
        paper_bgcolor="rgba(0,0,0,0)",  # Streamlit's light or dark page shows through
        plot_bgcolor="rgba(0,0,0,0)",
        barmode="group",
        bargap=0.2,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    figure.update_xaxes(
        title=title, range=[first - 0.6, first + n - 0.4], dtick=_step(n), showgrid=False, fixedrange=True
    )
    figure.update_yaxes(title=values, gridcolor=GRID, fixedrange=True, zerolinecolor=GRID)
    return figure


def tick_places(labels: Sequence[str]) -> dict[str, list]:
    """Tick places and texts of a labelled axis, as many as fit."""
    step = _step(len(labels))
    places = sorted({*range(0, len(labels), step), len(labels) - 1})
    if len(places) > 1 and places[-1] - places[-2] < step / 2:
        del places[-2]
    return {"tickvals": places, "ticktext": [labels[place] for place in places]}


def _step(n: int) -> int:
    return max(1, -(-n // 16))
