"""What a deletion costs: bars over depth, a table of runs, the order of removal."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from analyses.layer_sweep import LayerRuns
from analyses.removal_order import RemovalOrder
from app.figures.by_layer import layer_axis
from app.figures.theme import ATTENTION, CHANGE, MLP, STREAM, TARGET

PART_COLOURS = {"block": STREAM, "attention": ATTENTION, "mlp": MLP}
PART_NAMES = {"block": "whole block", "attention": "attention", "mlp": "MLP"}


def sweep_figure(
    loss_nats: Float[np.ndarray, " layer"],
    part: str,
    *,
    baseline_nats: float,
    uniform_nats: float,
    guess: int | None = None,
) -> go.Figure:
    """Loss without each layer, one bar per layer, between the whole model's and a uniform guess's.

    Args:
        loss_nats: per token, without that layer's part; NaN where it is not known yet.
        part: "block", "attention" or "mlp".
        baseline_nats: of the whole model.
        uniform_nats: ln(vocabulary).
        guess: layer that a person named before, marked.
    """
    loss = np.asarray(loss_nats, dtype=np.float64)
    known = loss[np.isfinite(loss)]
    top = 1.08 * max(uniform_nats, known.max(initial=0.0))
    colours = [TARGET if layer == guess else PART_COLOURS[part] for layer in range(len(loss))]
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(loss)),
            y=loss - baseline_nats,
            base=baseline_nats,
            marker={"color": colours},
            customdata=np.stack([loss, loss - baseline_nats], axis=-1),
            hovertemplate=f"without the {PART_NAMES[part]} of layer %{{x}}<br>loss %{{customdata[0]:.3f}} nats "
            "(%{customdata[1]:+.3f})<extra></extra>",
            showlegend=False,
        )
    )
    layer_axis(figure, title=f"layer whose {PART_NAMES[part]} is left out", values="loss (nats per token)", n=len(loss))
    figure.update_yaxes(range=[0, top])
    add_level(figure, baseline_nats, f"nothing left out: {baseline_nats:.2f}", above=False)
    add_level(figure, uniform_nats, f"all tokens equal: {uniform_nats:.1f}")
    if guess is not None and 0 <= guess < len(loss) and np.isfinite(loss[guess]):
        figure.add_annotation(x=guess, y=max(loss[guess], baseline_nats), text="your guess", ay=-30, ax=0)
    return figure


def add_level(figure: go.Figure, value: float, words: str, *, above: bool = True) -> None:
    """A horizontal line with what it is at its right end."""
    figure.add_hline(
        y=value,
        line={"color": STREAM, "dash": "dot", "width": 1.5},
        annotation={"text": words, "xanchor": "right", "yanchor": "bottom" if above else "top", "showarrow": False},
    )


def contrast_figure(
    left_out: Float[np.ndarray, " layer"],
    replaced: Float[np.ndarray, " layer"],
    *,
    baseline_nats: float,
    uniform_nats: float,
) -> go.Figure:
    """The same deletions done two ways.

    Args:
        left_out: loss without what the block adds.
        replaced: loss when the block's whole output is replaced by zero.
        baseline_nats: of the whole model.
        uniform_nats: ln(vocabulary).
    """
    figure = go.Figure()
    for name, values, colour, symbol in (
        ("left out of the sum", left_out, CHANGE, "circle"),
        ("wrong on purpose: output replaced by zero, as in a pipeline", replaced, STREAM, "x"),
    ):
        figure.add_scatter(
            x=np.arange(len(values)),
            y=np.asarray(values, dtype=np.float64),
            name=name,
            mode="lines+markers",
            marker={"symbol": symbol, "size": 8, "color": colour},
            line={"color": colour},
            hovertemplate=f"layer %{{x}}, {name}<br>loss %{{y:.3f}} nats<extra></extra>",
        )
    layer_axis(figure, title="layer", values="loss (nats per token)", n=len(left_out))
    figure.update_yaxes(range=[0, 1.15 * max(uniform_nats, float(np.nanmax(replaced)), float(np.nanmax(left_out)))])
    add_level(figure, baseline_nats, f"nothing left out: {baseline_nats:.2f}", above=False)
    add_level(figure, uniform_nats, f"all tokens equal: {uniform_nats:.1f}")
    return figure


def runs_figure(result: LayerRuns, *, dark: bool) -> go.Figure:
    """Every run of neighbouring layers: how much the loss rises, and which start is best for each length.

    Args:
        result: table of runs.
        dark: whether little is dark (amounts grow away from the page's background).
    """
    change = result.loss_change_nats
    n_max, n_layers = change.shape
    upper = max(result.uniform_loss_nats - result.baseline_loss_nats, 0.1)
    figure = go.Figure(
        go.Heatmap(
            z=change,
            x=np.arange(n_layers),
            y=np.arange(1, n_max + 1),
            zmin=0,
            zmax=upper,
            colorscale="Blues" if not dark else "Blues_r",
            colorbar={"title": {"text": "rise of the loss (nats)", "side": "right"}, "thickness": 14},
            hoverongaps=False,
            hovertemplate="layers from %{x}, %{y} of them<br>loss %{z:+.3f} nats<extra></extra>",
        )
    )
    lengths = np.arange(1, n_max + 1)
    for name, starts, symbol, colour in (
        ("cheapest start", result.best_start, "circle", TARGET),
        ("start with the smallest angular distance", result.angular_start, "x", CHANGE),
    ):
        figure.add_scatter(
            x=list(starts),
            y=lengths,
            mode="markers",
            name=name,
            marker={"symbol": symbol, "color": colour, "size": 7, "line": {"width": 1, "color": "#ffffff"}},
            hovertemplate=f"{name} of %{{y}} layers: %{{x}}<extra></extra>",
        )
    layer_axis(figure, title="first layer of the run", values="layers left out together", n=n_layers)
    figure.update_layout(height=520)
    figure.update_yaxes(range=[0.4, n_max + 0.6], showgrid=False)
    return figure


def order_figure(result: RemovalOrder) -> go.Figure:
    """Loss after each step of the greedy removal, with the layer that went."""
    steps = np.arange(len(result.order) + 1)
    loss = np.concatenate([[result.baseline_loss_nats], result.loss_nats.astype(np.float64)])
    names = ["nothing", *(f"layer {layer}" for layer in result.order)]
    figure = go.Figure(
        go.Scatter(
            x=steps,
            y=loss,
            mode="lines+markers+text",
            text=["", *(str(layer) for layer in result.order)],
            textposition="top center",
            line={"color": CHANGE},
            customdata=names,
            hovertemplate="step %{x}: %{customdata} goes<br>loss %{y:.3f} nats<extra></extra>",
        )
    )
    layer_axis(
        figure,
        title="layers left out so far (number above: the one that goes)",
        values="loss (nats per token)",
        n=len(steps),
    )
    figure.update_yaxes(range=[0, 1.08 * max(result.uniform_loss_nats, float(loss.max()))])
    add_level(figure, result.uniform_loss_nats, f"all tokens equal: {result.uniform_loss_nats:.1f}")
    return figure


def guess_scatter(
    score: Float[np.ndarray, " layer"], rise: Float[np.ndarray, " layer"], score_name: str, layers: Sequence[int]
) -> go.Figure:
    """A cheap score against the damage, one mark per layer.

    Args:
        score: from the undamaged run.
        rise: of the loss without the layer, in nats.
        score_name: title of the horizontal axis.
        layers: their numbers, printed.
    """
    figure = go.Figure(
        go.Scatter(
            x=np.asarray(score, dtype=np.float64),
            y=np.asarray(rise, dtype=np.float64),
            mode="markers+text",
            text=[str(layer) for layer in layers],
            textposition="top center",
            marker={"color": CHANGE, "size": 7},
            hovertemplate=f"layer %{{text}}<br>{score_name} %{{x:.4f}}<br>loss %{{y:+.3f}} nats<extra></extra>",
        )
    )
    layer_axis(figure, title=score_name, values="rise of the loss (nats)", n=1)
    span = float(np.nanmax(score)) or 1.0
    figure.update_xaxes(range=[-0.05 * span, 1.08 * span], dtick=None)
    return figure
