"""The pictures of "Inside a block": norms, one changed position, an MLP without its nonlinearity, a weight cut to a rank."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from analyses.linear_mlp import LinearMlp
from analyses.norms import Norms
from analyses.position_wise import PositionWise
from analyses.weight_truncation import WeightTruncation
from app.figures.by_layer import HEIGHT, MARGIN, layer_axis, tick_places
from app.figures.layer_deletion import add_level
from app.figures.theme import ATTENTION, CHANGE, GRID, MLP, MONOSPACE, STREAM, TARGET
from app.ui.token_text import plotly_safe, shorten


def mean_share_figure(result: Norms) -> go.Figure:
    """The share of the squared length that lies in the mean, before the same norm of every layer."""
    shares = result.mean_share_by_layer.astype(np.float64)
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(shares)),
            y=shares,
            marker={"color": [TARGET if layer == result.layer else STREAM for layer in range(len(shares))]},
            hovertemplate="layer %{x}<br>%{y:.3%} of the squared length lies in the mean<extra></extra>",
            showlegend=False,
        )
    )
    layer_axis(figure, title=f"layer (norm {result.where})", values="share in the mean", n=len(shares))
    figure.update_yaxes(range=[0, 1.15 * max(float(shares.max()), 1e-6)], tickformat=".2%")
    return figure


def changed_positions_figure(result: PositionWise, labels: Sequence[str]) -> go.Figure:
    """How far each position's output moved, in the three runs.

    Args:
        result: numbers by position.
        labels: the tokens as visible text.
    """
    figure, places = go.Figure(), np.arange(len(result.mlp_change))
    for name, values, colour, dash, symbol in (
        ("MLP, one row of its input changed", result.mlp_change, MLP, "solid", "circle"),
        ("attention, one row of its input changed", result.attention_change, ATTENTION, "solid", "square"),
        ("MLP, the whole text run with the other token", result.run_change, STREAM, "dot", "x"),
    ):
        figure.add_scatter(
            x=places,
            y=values.astype(np.float64),
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash},
            marker={"symbol": symbol, "size": 7, "color": colour},
            customdata=[[plotly_safe(label)] for label in labels],
            hovertemplate=f"token %{{x}}: %{{customdata[0]}}<br>{name}<br>moved by %{{y:.4f}} of its length<extra></extra>",
        )
    layer_axis(figure, title="token", values="difference / length", n=len(places))
    ticks = tick_places([plotly_safe(shorten(label, 12)) for label in labels])
    figure.update_xaxes(dtick=None, tickmode="array", tickfont={"family": MONOSPACE}, tickangle=-45, **ticks)
    top = max(float(values.max()) for values in (result.mlp_change, result.attention_change, result.run_change))
    figure.update_yaxes(range=[-0.04 * top, 1.1 * top])
    figure.update_layout(height=HEIGHT + 60, margin={**MARGIN, "t": 90})
    return figure


def collapse_figure(result: LinearMlp) -> go.Figure:
    """Two matrices one after the other against their product, one mark per component of the stream."""
    first, second = result.two_matrices.astype(np.float64), result.one_matrix.astype(np.float64)
    span = 1.05 * max(float(np.abs(first).max()), 1e-9)
    figure = go.Figure()
    figure.add_scatter(
        x=[-span, span],
        y=[-span, span],
        mode="lines",
        line={"color": STREAM, "dash": "dot"},
        name="equal",
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=first,
        y=second,
        mode="markers",
        marker={"color": MLP, "size": 6},
        name="a component of the stream",
        hovertemplate="component %{pointNumber}<br>two matrices %{x:.4f}<br>one matrix %{y:.4f}<extra></extra>",
    )
    layer_axis(figure, title="two matrices, one after the other", values="their product, one matrix", n=1)
    figure.update_xaxes(range=[-span, span], dtick=None)
    figure.update_yaxes(range=[-span, span])
    return figure


def activation_figure(result: LinearMlp) -> go.Figure:
    """The loss with the activation of every layer exchanged."""
    names = [f"its own ({result.activation})", "ReLU instead", "none (identity)"]
    losses = [result.loss_nats, result.relu_loss_nats, result.identity_loss_nats]
    figure = go.Figure(
        go.Bar(
            x=list(range(3)),
            y=losses,
            marker={"color": [STREAM, CHANGE, CHANGE]},
            text=[f"{loss:.2f}" for loss in losses],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y:.3f} nats per token<extra></extra>",
            showlegend=False,
        )
    )
    layer_axis(figure, title="activation in every MLP", values="loss (nats per token)", n=3)
    figure.update_xaxes(dtick=None, tickvals=list(range(3)), ticktext=[plotly_safe(name) for name in names])
    figure.update_yaxes(range=[0, 1.2 * max(result.uniform_loss_nats, *losses)])
    add_level(figure, result.uniform_loss_nats, f"all tokens equal: {result.uniform_loss_nats:.1f}")
    return figure


def truncation_figure(result: WeightTruncation, rank: int | None = None) -> go.Figure:
    """The loss at every rank that was tried, between the whole model's and a uniform guess's; the chosen one is marked."""
    loss, ranks = result.loss_nats.astype(np.float64), list(result.ranks)
    figure = go.Figure(
        go.Scatter(
            x=ranks,
            y=loss,
            mode="lines+markers",
            line={"color": CHANGE},
            marker={"size": [14 if each == rank else 7 for each in ranks]},
            customdata=np.stack([loss - result.baseline_loss_nats, result.energy.astype(np.float64)], axis=-1),
            hovertemplate="rank %{x}<br>loss %{y:.3f} nats (%{customdata[0]:+.3f})<br>energy kept %{customdata[1]:.1%}"
            "<extra></extra>",
            showlegend=False,
        )
    )
    layer_axis(figure, title="rank that is kept", values="loss (nats per token)", n=1)
    top = max(ranks)
    figure.update_xaxes(range=[-0.03 * top, 1.05 * top], dtick=None)
    figure.update_yaxes(range=[0, 1.1 * max(result.uniform_loss_nats, float(loss.max()))])
    add_level(figure, result.baseline_loss_nats, f"whole: {result.baseline_loss_nats:.2f}", above=False)
    add_level(figure, result.uniform_loss_nats, f"all tokens equal: {result.uniform_loss_nats:.1f}")
    return figure


def spectrum_figure(singular_values: Float[np.ndarray, " value"], rank: int | None = None) -> go.Figure:
    """The singular values of one matrix, largest first; those that a rank keeps are filled."""
    values = singular_values.astype(np.float64)
    kept = len(values) if rank is None else rank
    figure = go.Figure(
        go.Bar(
            x=np.arange(1, len(values) + 1),
            y=values,
            marker={"color": [CHANGE if place < kept else GRID for place in range(len(values))], "line": {"width": 0}},
            hovertemplate="singular value %{x}: %{y:.3f}<extra></extra>",
            showlegend=False,
        )
    )
    layer_axis(figure, title="singular value, largest first", values="size", n=1)
    figure.update_layout(bargap=0)
    figure.update_xaxes(range=[0, len(values) + 1], dtick=None)
    figure.update_yaxes(range=[0, 1.1 * max(float(values.max()), 1e-9)])
    return figure


def gradient_figure(measured: Mapping[str, Mapping[str, Sequence[float]]], depths: Sequence[int]) -> go.Figure:
    """Length of the gradient in the last block of toy models against their depth, norm before and after."""
    figure = go.Figure()
    for name, words, colour in (
        ("pre", "norm before each part", ATTENTION),
        ("post", "norm after each sum", MLP),
    ):
        figure.add_scatter(
            x=list(depths),
            y=list(measured[name]["last_block"]),
            name=words,
            mode="lines+markers",
            line={"color": colour},
            marker={"size": 8},
            customdata=list(measured[name]["first_block"]),
            hovertemplate=f"{words}, %{{x}} layers<br>last block %{{y:.3f}}, first %{{customdata:.3f}}<extra></extra>",
        )
    layer_axis(figure, title="layers of the toy model", values="gradient, last block", n=max(depths), first=1)
    figure.update_xaxes(tickvals=list(depths), dtick=None)
    figure.update_yaxes(range=[0, 1.15 * max(max(each["last_block"]) for each in measured.values())])
    return figure


def norm_order_figure() -> go.Figure:
    """Two columns: a block with its norms inside the branches, and one with its norms on the stream."""
    figure = go.Figure()
    for x, title, pre in ((0.0, "pre-norm: x + part(norm(x))", True), (4.0, "post-norm: norm(x + part(x))", False)):
        _arrow(figure, x, 0.0, x, 7.4)
        figure.add_annotation(x=x + 0.8, y=7.8, text=title, showarrow=False)
        for y, part, colour in ((0.8, "attention", ATTENTION), (4.1, "MLP", MLP)):
            _branch(figure, x, y, part, colour, pre)
    figure.update_layout(height=400, margin={"l": 4, "r": 4, "t": 8, "b": 8}, showlegend=False)
    figure.update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    figure.update_xaxes(visible=False, range=[-0.9, 6.6], fixedrange=True)
    figure.update_yaxes(visible=False, range=[-0.4, 8.2], fixedrange=True)
    return figure


def _branch(figure: go.Figure, x: float, y: float, part: str, colour: str, pre: bool) -> None:
    """One part beside the stream, its sum, and its norm in the branch or on the stream."""
    side = x + 1.7
    _arrow(figure, x, y, side, y)
    boxes = [(y + 0.6, "norm", STREAM), (y + 1.4, part, colour)] if pre else [(y + 1.0, part, colour)]
    for height, word, fill in boxes:
        _box(figure, side, height, word, fill)
    figure.add_shape(type="line", x0=side, x1=side, y0=y, y1=boxes[0][0] - 0.3, line={"color": STREAM})
    figure.add_shape(type="line", x0=side, x1=side, y0=boxes[-1][0] + 0.3, y1=y + 2.0, line={"color": STREAM})
    _arrow(figure, side, y + 2.0, x + 0.2, y + 2.0)
    figure.add_annotation(x=x, y=y + 2.0, text="+", showarrow=False, bordercolor=STREAM, borderpad=2)
    if not pre:
        _box(figure, x, y + 2.65, "norm", STREAM)


def _box(figure: go.Figure, x: float, y: float, word: str, colour: str) -> None:
    figure.add_shape(
        type="rect",
        x0=x - 0.75,
        x1=x + 0.75,
        y0=y - 0.3,
        y1=y + 0.3,
        line={"color": colour, "width": 2},
        fillcolor=_pale(colour),
    )
    figure.add_annotation(x=x, y=y, text=word, showarrow=False)


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.18)"


def _arrow(figure: go.Figure, x0: float, y0: float, x1: float, y1: float) -> None:
    figure.add_annotation(
        x=x1,
        y=y1,
        ax=x0,
        ay=y0,
        xref="x",
        yref="y",
        axref="x",
        ayref="y",
        text="",
        showarrow=True,
        arrowhead=2,
        arrowcolor=STREAM,
    )
