"""Who wrote a logit: what each part of the sum contributes, signed, one bar per part."""

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from analyses.attribution import Attribution
from app.figures.by_layer import layer_axis
from app.figures.theme import ATTENTION, MLP, STREAM


def attribution_figure(result: Attribution, *, chosen: int | None = None) -> go.Figure:
    """Attention and MLP of every layer, the embedding in front of them and the biases behind.

    Args:
        result: parts in logits.
        chosen: layer that is set off by a frame because its heads are shown.
    """
    n_layers = len(result.mlp)
    layers = np.arange(n_layers)
    figure = go.Figure()
    for name, x, y, colour in (
        ("embedding", [-1], [result.embedding], STREAM),
        ("attention", layers, result.attention, ATTENTION),
        ("MLP", layers, result.mlp, MLP),
        ("biases of the readout", [n_layers], [result.bias - float(result.attention_bias.sum())], STREAM),
    ):
        if name.startswith("biases") and not np.any(y):
            continue
        outline = [2.0 if place == chosen else 0.0 for place in x]
        figure.add_bar(
            x=x,
            y=np.asarray(y, dtype=np.float64),
            name=name,
            marker={"color": colour, "line": {"width": outline, "color": "#7F7F7F"}},
            hovertemplate=f"{name}" + (" of layer %{x}" if len(x) > 1 else "") + "<br>%{y:+.3f} logits<extra></extra>",
        )
    layer_axis(figure, title="layer", values="contribution (logits)", n=n_layers + 2, first=-1)
    step = max(1, -(-n_layers // 16))
    places = [-1, *range(0, n_layers, step)]
    figure.update_xaxes(dtick=None, tickvals=places, ticktext=["embedding", *map(str, places[1:])])
    figure.update_yaxes(zeroline=True, zerolinewidth=2)
    return figure


def heads_figure(contribution: Float[np.ndarray, " head"], layer: int, upper: float) -> go.Figure:
    """One bar per head of a layer.

    Args:
        contribution: in logits.
        layer: whose heads they are.
        upper: largest size of any head of the model: all layers share one scale.
    """
    heads = np.arange(len(contribution))
    figure = go.Figure(
        go.Bar(
            x=heads,
            y=np.asarray(contribution, dtype=np.float64),
            marker={"color": ATTENTION},
            hovertemplate=f"L{layer}H%{{x}}<br>%{{y:+.3f}} logits<extra></extra>",
        )
    )
    layer_axis(figure, title=f"head of layer {layer}", values="contribution (logits)", n=len(heads))
    figure.update_yaxes(range=[-1.05 * upper, 1.05 * upper], zeroline=True, zerolinewidth=2)
    return figure
