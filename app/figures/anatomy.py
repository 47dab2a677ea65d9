"""Where the parameters are, and the stream with its shapes."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from analyses._architecture_shapes import Shape
from analyses.anatomy import ParameterCount
from app.figures.theme import ATTENTION, GRID, MLP, STREAM
from app.ui.token_text import plotly_safe

# Part of the picture: colour, hatching. Tints of one colour belong together: tables grey, attention blue, MLP orange.
_LOOK = {
    "embedding": (STREAM, ""),
    "positions": ("#B4B9C2", ""),
    "Q": (ATTENTION, ""),
    "K": ("#5AA6D2", ""),
    "V": ("#A3CEE8", ""),
    "O": ("#004B78", ""),
    "MLP": (MLP, ""),
    "experts used": ("#E5823B", ""),
    "other experts": ("#F4C7A6", "/"),
    "rest": ("#E3E5E8", "."),  # norms, biases, router
    "unembedding": ("#8B919C", "/"),
}
_WRITTEN_FROM = 0.07  # of the bar: narrower parts have no room for their name
_BOX = {"stream": STREAM, "attention": ATTENTION, "mlp": MLP}
_ROW = 36  # pixels


def grouped(count: ParameterCount) -> dict[str, int]:
    """The parts as they are drawn, in the order of the stream; they sum to the total."""
    return {
        "embedding": count.embedding + count.projection,
        "positions": count.position,
        "Q": count.query,
        "K": count.key,
        "V": count.value,
        "O": count.output,
        "MLP": count.dense_mlp + count.shared_expert,
        "experts used": count.active_experts,
        "other experts": count.experts - count.active_experts,
        "rest": (count.norm + count.attention_bias + count.mlp_bias + count.unembedding_bias + count.router),
        "unembedding": count.unembedding,
    }


def parts_figure(counts: Mapping[str, ParameterCount]) -> go.Figure:
    """A bar per model, from 0 to 100 per cent of its parameters, in the order of the stream.

    Args:
        counts: name -> its count; one or two of them.
    """
    figure = go.Figure()
    rows = list(range(len(counts)))
    parts = {name: grouped(count) for name, count in counts.items()}
    totals = [count.total for count in counts.values()]
    for part, (colour, hatching) in _LOOK.items():
        values = [groups[part] for groups in parts.values()]
        if not any(values):
            continue
        shares = [value / total for value, total in zip(values, totals, strict=True)]
        figure.add_bar(
            y=rows,
            x=[100 * share for share in shares],
            orientation="h",
            name=part,
            marker={"color": colour, "pattern": {"shape": hatching, "fillmode": "overlay", "solidity": 0.1}},
            text=[part if share >= _WRITTEN_FROM else "" for share in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": _readable(colour)},
            constraintext="none",
            customdata=[[f"{value:,}"] for value in values],
            hovertemplate=f"{part}: %{{customdata[0]}} parameters<br>%{{x:.3g}} % of the total<extra></extra>",
        )
    for row, name in enumerate(counts):  # above its bar: beside it a name would leave no room on a phone
        figure.add_annotation(x=0, y=row - 0.46, text=plotly_safe(name), showarrow=False, xanchor="left")
    figure.update_layout(
        barmode="stack",
        height=190 + 66 * len(rows),
        bargap=0.42,
        margin={"l": 8, "r": 8, "t": 4, "b": 160},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={
            "orientation": "h",
            "x": 0,
            "yref": "container",
            "y": 0.02,
            "yanchor": "bottom",
            "traceorder": "normal",
            "entrywidth": 90,
        },
    )
    figure.update_xaxes(
        title="share of the parameters (%)",
        range=[0, 100],
        tickvals=list(range(0, 101, 20)),
        gridcolor=GRID,
        fixedrange=True,
    )
    figure.update_yaxes(visible=False, range=[len(rows) - 0.5, -0.65], fixedrange=True)
    return figure


def _readable(colour: str) -> str:
    """Black or white, whichever stands out more on this colour (relative luminance, WCAG 2.1)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#FFFFFF"


def stream_figure(shapes: Sequence[Shape], n_layers: int) -> go.Figure:
    """The stream from ids to logits: what is read from it and added to it, with shapes; the block is drawn once.

    Args:
        shapes: what `stream_shapes` returned.
        n_layers: how often the block is run.
    """
    figure = go.Figure()
    inside = [row for row, shape in enumerate(shapes) if shape[1] != "stream"]
    before, after = inside[0] - 0.5, inside[-1] + 0.5  # the frame of the block needs room for its title and its end
    places = [row + 0.75 * (row > before) + 0.25 * (row > after) for row in range(len(shapes))]
    last = places[-1]
    figure.add_shape(type="line", x0=0.5, x1=0.5, y0=0, y1=last, line={"color": STREAM, "width": 6})
    figure.add_shape(
        type="rect",
        x0=0.12,
        x1=10,
        y0=before + 0.05,
        y1=after + 0.8,
        line={"color": STREAM, "width": 1, "dash": "dot"},
        layer="below",
    )
    times = f"a block, {n_layers:,} times, one after the other" if n_layers > 1 else "the only block"
    figure.add_annotation(x=1.0, y=before + 0.45, text=times, showarrow=False, xanchor="left", font={"size": 12})
    for row, (name, where, letters, shape, words) in zip(places, shapes, strict=True):
        _box(figure, row, name, where, shape)
        figure.add_scatter(
            x=[5.5],
            y=[row],
            mode="markers",
            marker={"size": 26, "opacity": 0},
            customdata=[[f"{letters} = {_numbers(shape)}", words]],
            hovertemplate=f"{name}: %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
            showlegend=False,
        )
    figure.update_layout(
        height=round(_ROW * (last + 2)),
        margin={"l": 4, "r": 4, "t": 6, "b": 6},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(visible=False, range=[0, 10.1], fixedrange=True)
    figure.update_yaxes(visible=False, range=[last + 0.6, -0.6], fixedrange=True)
    return figure


def _box(figure: go.Figure, row: float, name: str, where: str, shape: tuple[int, ...]) -> None:
    """One step: on the stream, or beside it with an arrow where it reads or adds."""
    left = 1.0 if where == "stream" else 2.2
    colour = _BOX[where]
    figure.add_shape(
        type="rect",
        x0=left,
        x1=9.8,
        y0=row - 0.36,
        y1=row + 0.36,
        line={"color": colour, "width": 1.5},
        fillcolor=colour,
        opacity=0.16,
        layer="below",
    )
    figure.add_annotation(
        x=left + 0.15,
        y=row,
        text=f"<b>{name}</b>  {_numbers(shape)}",
        showarrow=False,
        xanchor="left",
        font={"size": 13},
    )
    adds, reads = name.startswith("+"), name == "norm"
    if adds or reads:
        tip, tail = (0.62, left) if adds else (left, 0.62)
        figure.add_annotation(
            x=tip,
            y=row,
            ax=tail,
            ay=row,
            axref="x",
            ayref="y",
            text="",
            arrowhead=2,
            arrowwidth=2,
            arrowcolor=colour,
        )


def _numbers(shape: tuple[int, ...]) -> str:
    return f"({', '.join(f'{number:,}' for number in shape)})"
