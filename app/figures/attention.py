"""Rows of attention, and what leaving heads out does."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from analyses.head_check import HeadCheck
from app.figures.by_layer import layer_axis
from app.figures.theme import ATTENTION, CHANGE, STREAM, horizontal_bars
from app.ui.token_text import plotly_safe

_MOST_ROWS = 24


def row_figure(labels: Sequence[str], own: Float[np.ndarray, " key"], changed: Float[np.ndarray, " key"]) -> go.Figure:
    """The weights of one query, the largest of either first.

    Args:
        labels: the keys as visible text, in the order of the prompt.
        own: the model's own weights.
        changed: at another scale.
    """
    order = np.sort(np.argsort(-np.maximum(own, changed), kind="stable")[:_MOST_ROWS])
    shown = [f"{position} {labels[position]}" for position in order]
    figure = horizontal_bars(shown, axis="attention weight", upper=1.0, ticks=(0, 0.25, 0.5, 0.75, 1.0), form=".2f")
    rows = list(range(len(order)))
    for name, values, colour in (("the model's own", own, STREAM), ("at this scale", changed, CHANGE)):
        picked = np.asarray(values, dtype=np.float64)[order]
        figure.add_bar(
            orientation="h",
            y=rows,
            x=picked,
            name=name,
            marker={"color": colour},
            text=[f"{value:.3f}" for value in picked],
            textposition="outside",
            cliponaxis=False,
            customdata=[plotly_safe(label) for label in shown],
            hovertemplate=f"%{{customdata}}<br>{name}: %{{x:.3f}}<extra></extra>",
        )
    figure.update_layout(barmode="group", height=figure.layout.height + 14 * len(order))
    return figure


def heads_heatmap(change: Float[np.ndarray, "layer head"], *, title: str, upper: float) -> go.Figure:
    """Signed numbers of every head, blue below zero and orange above, white at exactly zero.

    Args:
        change: by layer and head.
        title: of the colour bar, with the unit.
        upper: size at which both colours end.
    """
    n_layers, n_heads = change.shape
    figure = go.Figure(
        go.Heatmap(
            z=np.asarray(change, dtype=np.float64),
            zmin=-upper,
            zmax=upper,
            colorscale=[[0, ATTENTION], [0.5, "#FFFFFF"], [1, "#D55E00"]],
            colorbar={"title": {"text": title, "side": "right"}, "thickness": 14},
            hovertemplate="L%{y}H%{x}<br>%{z:+.4f}<extra></extra>",
        )
    )
    layer_axis(figure, title="head", values="layer", n=n_heads)
    figure.update_layout(height=120 + 16 * n_layers)
    figure.update_yaxes(range=[n_layers - 0.5, -0.5], dtick=max(1, n_layers // 15), showgrid=False)
    return figure


def check_figure(check: HeadCheck, measure: str) -> go.Figure:
    """The chosen heads against random ones of the same layers, on one axis.

    Args:
        check: the result.
        measure: "second copy" or "prompt".
    """
    on_prompt = measure == "prompt"
    base = check.baseline_prompt if on_prompt else check.baseline_second_copy
    chosen = check.prompt if on_prompt else check.second_copy
    controls = check.control_prompt if on_prompt else check.control_second_copy
    figure = go.Figure()
    for name, row, values, colour, symbol in (
        ("nothing left out", 2, [base], STREAM, "line-ns-open"),
        ("random heads of the same layers", 1, controls, STREAM, "circle-open"),
        ("the chosen heads", 0, [chosen], CHANGE, "diamond"),
    ):
        figure.add_scatter(
            x=list(values if values is not None else []),
            y=[row] * len(values if values is not None else []),
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 13, "line": {"width": 2}},
            hovertemplate=f"{name}<br>%{{x:.3f}} nats<extra></extra>",
        )
    layer_axis(figure, title="loss (nats per token)", values="", n=1)
    figure.update_layout(height=230, showlegend=False)
    figure.update_xaxes(range=None, dtick=None, rangemode="tozero", showgrid=True)
    figure.update_yaxes(
        range=[-0.6, 2.6],
        tickvals=[0, 1, 2],
        ticktext=["the chosen heads", "random heads", "nothing left out"],
        automargin=True,
        showgrid=False,
    )
    return figure
