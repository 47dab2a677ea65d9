"""How large the stream is at each depth, and how much each block turns it."""

import numpy as np
import plotly.graph_objects as go

from analyses.residual_stream import ResidualStream
from app.figures.by_layer import layer_axis, tick_places
from app.figures.logit_lens import Line, Measure, trajectory_figure
from app.figures.theme import ATTENTION, MLP, STREAM, TARGET


def norm_figure(result: ResidualStream, labels: list[str], position: int) -> go.Figure:
    """Norms on a log axis: position 0, the mean of the others, and the chosen position."""
    lines = []
    if position > 0:
        lines.append(Line(f"token {position}", result.norm[:, position], TARGET))
    if result.norm.shape[1] > 1:
        lines.append(Line("mean of tokens 1 and later", result.mean_norm, STREAM))
    lines.append(Line("token 0", result.norm[:, 0], STREAM, dash="dot"))
    if result.attention_norm is not None and result.mlp_norm is not None and result.norm.shape[1] > 1:
        between = np.arange(len(result.attention_norm))
        lines.append(
            Line("attention writes (mean)", result.attention_norm[:, 1:].mean(1), ATTENTION, at=between + 0.33)
        )
        lines.append(Line("MLP writes (mean)", result.mlp_norm[:, 1:].mean(1), MLP, at=between + 0.66))
    return trajectory_figure(lines, labels, Measure("L2 norm (log scale)", log=True))


def cosine_figure(result: ResidualStream, position: int) -> go.Figure:
    """Cosine between the stream before and after every block."""
    n_layers = result.cosine.shape[0]
    lines = []
    if position > 0:
        lines.append(Line(f"token {position}", result.cosine[:, position], TARGET))
    if result.cosine.shape[1] > 1:
        lines.append(Line("mean of tokens 1 and later", result.mean_cosine, STREAM))
    lines.append(Line("token 0", result.cosine[:, 0], STREAM, dash="dot"))
    labels = [f"layer {layer}" for layer in range(n_layers)]
    low = min(0.0, float(np.nanmin(result.cosine)))
    figure = trajectory_figure(lines, labels, Measure("cosine before and after", range=(low - 0.03, 1.03)))
    layer_axis(figure, title="block", values="cosine before and after", n=n_layers)
    figure.update_xaxes(dtick=None, **tick_places([str(layer) for layer in range(n_layers)]))
    return figure
