"""What the lens says of one token of the vocabulary, depth by depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from app.figures.by_layer import layer_axis, tick_places
from app.figures.theme import GRID, STREAM
from app.ui.token_text import plotly_safe


@dataclass(frozen=True)
class Line:
    """One line of a trajectory."""

    name: str  # as it stands in the legend: visible text
    values: Float[np.ndarray, " depth"]
    colour: str
    dash: str = "solid"
    at: Float[np.ndarray, " depth"] | None = None  # places on the axis; the depths 0, 1, ... when None


@dataclass(frozen=True)
class Measure:
    """What the vertical axis shows."""

    title: str  # with the unit
    log: bool = False
    range: tuple[float, float] | None = None  # on a log axis as powers of ten
    form: str = ".3~g"  # d3 format of the hover text
    reference: tuple[float, str] | None = None  # a horizontal line and what it is


def measures(d_vocab: int) -> Mapping[str, Measure]:
    """What can be shown of a target, by the name on the control."""
    most = float(np.log(d_vocab))
    uniform = (most, f"all tokens equal: {most:.1f} nats")
    return {
        "Probability": Measure("probability of the target", range=(0, 1.02), form=".3~%"),
        "Rank": Measure("rank of the target, plus 1 (1 = first)", log=True, range=(np.log10(d_vocab) + 0.1, -0.1)),
        "Entropy": Measure("entropy (nats)", range=(0, most * 1.08), reference=uniform),
        "KL": Measure("KL from the final distribution (nats)"),
        "Loss": Measure("loss on the token that follows (nats)", reference=uniform),
    }


def trajectory_figure(
    lines: Sequence[Line], labels: Sequence[str], measure: Measure, *, mark: int | None = None
) -> go.Figure:
    """Lines over depth.

    Args:
        lines: the first is the most important and is drawn last, on top.
        labels: what stands at each depth.
        measure: of the vertical axis.
        mark: depth that is marked by a thin vertical line, for example the pinned one.
    """
    figure = go.Figure()
    for line in reversed(lines):
        places = np.arange(len(line.values)) if line.at is None else line.at
        figure.add_scatter(
            x=places,
            y=np.asarray(line.values, dtype=np.float64),
            mode="lines+markers" if line.at is None else "markers",
            name=plotly_safe(line.name),
            line={"color": line.colour, "dash": line.dash, "width": 2},
            marker={
                "size": 6 if line.at is None else 5,
                "color": line.colour,
                "symbol": "circle" if line.at is None else "x",
            },
            customdata=[_where(place, labels) for place in places],
            hovertemplate=f"%{{customdata}}<br>{measure.title}: %{{y:{measure.form}}}<extra></extra>",
        )
    layer_axis(figure, title="depth: where the model is stopped", values=measure.title, n=len(labels))
    figure.update_xaxes(dtick=None, **tick_places(labels))
    figure.update_layout(legend_traceorder="reversed")
    if measure.log:
        figure.update_yaxes(type="log", dtick=1)
    if measure.range is not None:
        figure.update_yaxes(range=list(measure.range))
    if measure.form.endswith("%"):
        figure.update_yaxes(tickformat=".0%")
    if measure.reference is not None:
        value, words = measure.reference
        figure.add_hline(
            y=value,
            line={"color": STREAM, "dash": "dot", "width": 1},
            annotation={"text": words, "xanchor": "right", "yanchor": "bottom", "showarrow": False},
        )
    if mark is not None:
        figure.add_vline(x=mark, line={"color": GRID, "width": 6}, layer="below")
    return figure


def _where(place: float, labels: Sequence[str]) -> str:
    whole = int(place)
    return labels[whole] if whole == place else f"in layer {whole}"
