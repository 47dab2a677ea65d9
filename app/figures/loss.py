"""The loss of a text: by the tokens of context, and as a histogram beside another text's."""

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from analyses.loss import ContextBins
from app.figures.by_layer import HEIGHT, MARGIN
from app.figures.layer_deletion import add_level
from app.figures.theme import GRID, OWN, STREAM
from app.ui.token_text import plotly_safe

COLOURS = (STREAM, OWN)  # the first text, the one beside it
BIN_NATS = 0.5  # width of a bar of the histogram


def context_figure(parts: Sequence[tuple[str, ContextBins]], *, uniform_nats: float) -> go.Figure:
    """Mean loss against the tokens of context, on a logarithmic axis, one line per text.

    Args:
        parts: name and bins of one or two texts.
        uniform_nats: ln(vocabulary).
    """
    figure = _empty(values="loss (nats per token)")
    largest = 1
    for (name, bins), colour, side in zip(parts, COLOURS, ("top center", "bottom center"), strict=False):
        middle = np.sqrt(bins.first.astype(np.float64) * bins.last)
        largest = max(largest, int(bins.last.max()))
        spans = [f"{a:,} to {b:,}" if b > a else f"{a:,}" for a, b in zip(bins.first, bins.last, strict=True)]
        figure.add_scatter(
            x=middle,
            y=bins.mean_nats,
            name=plotly_safe(name),
            mode="lines+markers+text",
            text=[f"n = {n:,}" for n in bins.n_targets],
            textposition=side,
            error_y={"array": np.nan_to_num(bins.error_nats), "thickness": 1, "color": colour},
            line={"color": colour},
            marker={"size": 8},
            customdata=np.stack([spans, [f"{n:,}" for n in bins.n_targets]], axis=-1),
            hovertemplate="%{customdata[0]} tokens of context, %{customdata[1]} losses<br>mean %{y:.3f} nats<extra></extra>",
            showlegend=len(parts) > 1,
        )
    ticks = [2**k for k in range(int(math.log2(largest)) + 1)]
    figure.update_xaxes(
        title="tokens of context before the token (each step doubles it)",
        type="log",
        range=[-0.15, math.log10(largest) + 0.15],
        tickvals=ticks,
        ticktext=[f"{tick:,}" for tick in ticks],
    )
    figure.update_yaxes(range=[0, 1.15 * max(uniform_nats, *(float(bins.mean_nats.max()) for _, bins in parts))])
    add_level(figure, uniform_nats, f"all tokens equal: {uniform_nats:.1f}")
    return figure


def histogram_figure(parts: Sequence[tuple[str, Float[np.ndarray, " target"]]], *, uniform_nats: float) -> go.Figure:
    """What share of the tokens has which loss, side by side.

    Args:
        parts: name and losses (nats) of two texts.
        uniform_nats: ln(vocabulary).
    """
    figure = _empty(values="share of the tokens")
    top = max(float(losses.max()) for _, losses in parts)
    edges = np.arange(0, max(top, uniform_nats) + BIN_NATS, BIN_NATS)
    for (name, losses), colour in zip(parts, COLOURS, strict=True):
        counts, _ = np.histogram(losses.astype(np.float64), edges)
        figure.add_bar(
            x=edges[:-1] + BIN_NATS / 2,
            y=counts / len(losses),
            name=plotly_safe(name),
            marker={"color": colour},
            customdata=np.stack([edges[:-1], edges[1:], counts], axis=-1),
            hovertemplate="%{customdata[0]:.1f} to %{customdata[1]:.1f} nats: %{customdata[2]} tokens, %{y:.1%}<extra></extra>",
        )
    figure.update_layout(barmode="group", bargap=0.1)
    figure.update_xaxes(title="loss of a token (nats)", range=[0, float(edges[-1])])
    figure.update_yaxes(range=[0, 1.1 * max(float(max(trace.y)) for trace in figure.data)], tickformat=".0%")
    return figure


def _empty(*, values: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        height=HEIGHT,
        margin=MARGIN,
        paper_bgcolor="rgba(0,0,0,0)",  # Streamlit's light or dark page shows through
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    )
    figure.update_xaxes(showgrid=False, fixedrange=True)
    figure.update_yaxes(title=values, gridcolor=GRID, zerolinecolor=GRID, fixedrange=True)
    return figure
