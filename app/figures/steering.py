"""Steering: predictions beside each other, how far the vector is followed, how it tells its texts apart, and the sweep."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float, Int

from app.figures.by_layer import depth_labels, layer_axis, tick_places
from app.figures.next_token import check_rows, hover_rows, probability_bars
from app.figures.theme import CHANGE, DISTRACTOR, STREAM, TARGET
from app.ui.token_text import percent, plotly_safe

RUN_COLOURS = {"baseline": STREAM, "steered": CHANGE, "random": STREAM}
RUN_DASHES = {"baseline": "solid", "steered": "solid", "random": "dot"}
_MARKER = {TARGET: "target", DISTRACTOR: "opposite"}
_FALLS, _NOTHING, _RISES = "#B35806", "#FFFFFF", CHANGE  # white at exactly zero, in both themes


def predictions_figure(
    labels: Sequence[str],
    probability: Float[np.ndarray, " k"],
    *,
    run: str,
    ids: Sequence[int],
    targets: Sequence[int] = (),
    against: Sequence[int] = (),
    before: Float[np.ndarray, " k"] | None = None,
    upper: float = 1.0,
) -> go.Figure:
    """One bar per token, in the colour of its run; target tokens are green, opposite ones pink.

    Args:
        labels: the tokens as visible text, most probable first.
        probability: share of the whole vocabulary.
        run: "baseline", "steered" or "random".
        ids: token ids, in the same order.
        targets: ids of the tokens that are wanted.
        against: ids of the tokens they are compared with.
        before: probability of the same tokens without steering, printed beside.
        upper: where the axis ends; figures that are compared share it.

    Raises:
        ValueError: not one probability per label.
    """
    check_rows(labels, probability)
    colours = [TARGET if i in targets else DISTRACTOR if i in against else RUN_COLOURS[run] for i in ids]
    texts = [percent(p) for p in probability]
    if before is not None:
        texts = [f"{text} (was {percent(was)})" for text, was in zip(texts, before, strict=True)]
    figure = probability_bars(labels, upper)
    figure.add_bar(
        orientation="h",
        y=list(range(len(labels))),
        x=np.asarray(probability, dtype=np.float64),
        marker={"color": colours},
        text=texts,
        customdata=[
            [label, line + (f"<br>{_MARKER[colour]} token" if colour in _MARKER else "")]
            for (label, line), colour in zip(hover_rows(labels, ids), colours, strict=True)
        ],
        hovertemplate="%{customdata[0]}%{customdata[1]}<br>probability %{text}<extra></extra>",
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
    )
    # Room for "12.3 % (was 0.01 %)" at the end of the longest bar; the same in both, so that equal shares are equally long.
    figure.update_xaxes(range=[0, upper * 1.75])
    return figure


def projection_figure(
    projection: Float[np.ndarray, "run depth"],
    reference: Float[np.ndarray, " depth"],
    *,
    runs: Sequence[str],
    layers: Sequence[int],
) -> go.Figure:
    """How far the last position's stream lies along the direction, at every depth, in mean lengths of the stream there.

    Args:
        projection: in the stream's own units, a row per run.
        reference: mean length of the stream at every depth.
        runs: names of the rows.
        layers: the steered ones.
    """
    figure = go.Figure()
    n_layers = len(reference) - 1
    for name, row in zip(runs, projection, strict=True):
        figure.add_scatter(
            x=np.arange(n_layers + 1),
            y=np.asarray(row / reference, dtype=np.float64),
            mode="lines",
            name=name,
            line={"color": RUN_COLOURS[name], "dash": RUN_DASHES[name]},
            hovertemplate=f"{name}<br>depth %{{x}}: %{{y:.3f}} lengths<extra></extra>",
        )
    layer_axis(figure, title="depth", values="along the direction (mean lengths of the stream)", n=n_layers + 1)
    figure.update_xaxes(dtick=None, **tick_places(depth_labels(n_layers)))
    for layer in (layers[0], layers[-1]) if len(layers) else ():
        figure.add_vline(x=layer, line={"color": CHANGE, "dash": "dot", "width": 1.5})
    return figure


def separation_figure(
    positive: Float[np.ndarray, " text"],
    negative: Float[np.ndarray, " other_text"],
    held_out: tuple[Bool[np.ndarray, " text"], Bool[np.ndarray, " other_text"]],
    texts: tuple[Sequence[str], Sequence[str]],
) -> go.Figure:
    """Each text as a mark, at how far its stream lies along the direction.

    Args:
        positive: projections of the first group, in the stream's own units.
        negative: of the second.
        held_out: whether each text is on its side of a direction made without it; the others are open marks.
        texts: what they say, for the hover text.
    """
    figure = go.Figure()
    groups = zip(("towards", "away from"), (positive, negative), held_out, texts, (TARGET, DISTRACTOR), strict=True)
    for row, (name, values, right, said, colour) in enumerate(groups):
        figure.add_scatter(
            x=np.asarray(values, dtype=np.float64),
            y=np.full(len(values), float(row)),
            mode="markers",
            name=name,
            marker={
                "color": colour,
                "size": 13,
                "symbol": ["circle" if ok else "circle-open" for ok in right],
                "line": {"width": 2, "color": colour},
            },
            customdata=[plotly_safe(text) for text in said],
            hovertemplate="%{customdata}<br>%{x:.2f} along the direction<extra></extra>",
            showlegend=False,
        )
    layer_axis(figure, title="along the direction (the stream's own units)", values="", n=1)
    figure.update_layout(height=190)
    figure.update_xaxes(range=None, dtick=None, autorange=True, showgrid=True)
    figure.update_yaxes(
        range=[-0.6, 1.6], tickvals=[0, 1], ticktext=["towards", "away from"], showgrid=False, automargin=True
    )
    return figure


def depth_figure(separation: Float[np.ndarray, " depth"], *, layer: int) -> go.Figure:
    """How well the two groups of texts are told apart at every depth, in standard deviations; the vector's layer is marked."""
    figure = go.Figure(
        go.Scatter(
            x=np.arange(len(separation)),
            y=np.asarray(separation, dtype=np.float64),
            mode="lines",
            line={"color": CHANGE},
            hovertemplate="depth %{x}: %{y:.1f} standard deviations<extra></extra>",
        )
    )
    layer_axis(figure, title="depth", values="difference (standard deviations)", n=len(separation))
    figure.update_xaxes(dtick=None, **tick_places(depth_labels(len(separation) - 1)))
    figure.update_yaxes(rangemode="tozero")
    figure.add_vline(
        x=layer, line={"color": STREAM, "dash": "dot", "width": 1.5}, annotation={"text": f"layer {layer}"}
    )
    return figure


def sweep_figure(
    values: Float[np.ndarray, "layer coefficient"],
    layers: Int[np.ndarray, " layer"],
    coefficients: Float[np.ndarray, " coefficient"],
    *,
    title: str,
    upper: float,
    signed: bool,
    dark: bool,
    ranges: Sequence[tuple[int, int] | None],
    chosen: tuple[float, float] | None,
) -> go.Figure:
    """One measure for every layer and coefficient; a click on a cell selects a point at (column, row).

    Args:
        values: one cell each; NaN where nothing is known.
        layers: rows, from the top down.
        coefficients: columns; they need not be evenly spaced.
        title: of the colour bar, with the unit.
        upper: where the colour ends (both ends for signed values).
        signed: whether below zero means the opposite of above.
        dark: whether little is dark, for amounts.
        ranges: first and last column of each row's working range, outlined; None for none.
        chosen: (layer, coefficient) of the sliders, marked; it may lie between the cells.
    """
    n_rows, n_columns = values.shape
    scale: Any = [[0, _FALLS], [0.5, _NOTHING], [1, _RISES]] if signed else "Blues_r" if dark else "Blues"
    columns, rows = np.meshgrid(np.arange(n_columns), np.arange(n_rows))
    places = np.stack([layers[rows], coefficients[columns], values], axis=-1).reshape(-1, 3).astype(np.float64)
    figure = go.Figure(
        go.Heatmap(
            z=np.asarray(values, dtype=np.float64),
            zmin=-upper if signed else 0,
            zmax=upper,
            colorscale=scale,
            colorbar={"title": {"text": title, "side": "right"}, "thickness": 14},
            hoverinfo="skip",
        )
    )
    figure.add_scatter(  # Streamlit reports clicks on points, not on cells of a heat map
        x=columns.ravel(),
        y=rows.ravel(),
        mode="markers",
        marker={"symbol": "square", "size": 22, "opacity": 0},
        customdata=places,
        hovertemplate="layer %{customdata[0]:.0f}, coefficient %{customdata[1]:.2f}<br>%{customdata[2]:+.3f}<extra></extra>",
        showlegend=False,
    )
    for row, found in enumerate(ranges):
        if found is not None:
            box = {"x0": found[0] - 0.48, "x1": found[1] + 0.48, "y0": row - 0.46, "y1": row + 0.46}
            figure.add_shape(type="rect", line={"color": STREAM if signed else CHANGE, "width": 2}, **box)
    if chosen is not None:
        _mark(figure, chosen, layers, coefficients)
    layer_axis(figure, title="coefficient (mean lengths of the stream)", values="layer", n=n_columns)
    figure.update_layout(height=110 + 28 * n_rows, showlegend=False)
    figure.update_xaxes(
        dtick=None, tickvals=list(range(n_columns)), ticktext=[f"{c:g}" for c in coefficients.astype(float).round(3)]
    )
    figure.update_yaxes(
        range=[n_rows - 0.5, -0.5], tickvals=list(range(n_rows)), ticktext=[str(n) for n in layers], showgrid=False
    )
    return figure


def _mark(figure: go.Figure, chosen: tuple[float, float], layers: Any, coefficients: Any) -> None:
    """A ring at the sliders' place, if it lies within the picture."""
    layer, coefficient = chosen
    order = np.argsort(coefficients)
    inside = layers[0] <= layer <= layers[-1] and coefficients[order[0]] <= coefficient <= coefficients[order[-1]]
    if not inside:
        return
    figure.add_scatter(
        x=[float(np.interp(coefficient, coefficients[order], order))],
        y=[float(np.interp(layer, layers, np.arange(len(layers))))],
        mode="markers",
        marker={"symbol": "circle-open", "size": 16, "color": "#101317", "line": {"width": 3}},
        hoverinfo="skip",
        showlegend=False,
    )
