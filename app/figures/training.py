"""Curves over training time: when induction appears, and what it rests on."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from analyses.training_log import TrainingLog
from app.figures.by_layer import MARGIN
from app.figures.theme import ATTENTION, CHANGE, GRID, STREAM, TARGET

BAND = "rgba(0, 114, 178, 0.12)"  # attention's blue, faint
STEPS_TITLE = "training step (linear)"
Curve = tuple[str, str, Callable[[TrainingLog], Float[np.ndarray, " mark"]], list[float] | None]

# Title, unit on the axis, values, fixed range.
CURVES: tuple[Curve, ...] = (
    ("Induction score", "attention, 0 to 1", lambda log: log.induction[:, *log.induction_head], [0, 1]),
    (
        "Previous-token score",
        "attention, 0 to 1",
        lambda log: log.previous_token[:, *log.previous_head],
        [0, 1],
    ),
    (
        "Second copy minus first copy",
        "nats per token",
        lambda log: log.second_copy_loss_nats - log.first_copy_loss_nats,
        [-8.5, 0.8],
    ),
    ("In-context-learning score", "nats per token", lambda log: log.icl_nats, [-0.4, 0.05]),
)


def transition(log: TrainingLog) -> tuple[int, int]:
    """Steps between which the induction score rises from 5 % to 80 % of its value at the end."""
    score = log.induction[:, *log.induction_head]
    low = np.flatnonzero(score <= 0.05 * score[-1])
    high = np.flatnonzero(score >= 0.8 * score[-1])
    return int(log.marks[low[-1] if len(low) else 0]), int(log.marks[high[0]])


def curves_figure(log: TrainingLog, control: TrainingLog, other: TrainingLog, step: int) -> go.Figure:
    """Four curves over training time with the transition as a band and the chosen step as a line.

    Args:
        log: of the two-layer model.
        control: of the one-layer model, grey.
        other: the two-layer model with another seed, thin.
        step: chosen, marked in every panel.
    """
    heads = {0: "L{}H{}".format(*log.induction_head), 1: "L{}H{}".format(*log.previous_head)}
    titles = [f"{title} ({heads[i]})" if i in heads else title for i, (title, *_) in enumerate(CURVES)]
    figure = make_subplots(rows=2, cols=2, subplot_titles=titles, vertical_spacing=0.2)
    runs = (("one layer", control, STREAM, "dot", 2), (f"two layers, seed {other.seed}", other, ATTENTION, "dash", 1.2))
    runs += (("two layers", log, ATTENTION, "solid", 2.5),)
    for place, (_, unit, values, limits) in enumerate(CURVES):
        at = {"row": 1 + place // 2, "col": 1 + place % 2}
        for name, run, colour, dash, width in runs:
            figure.add_scatter(
                x=run.marks,
                y=np.asarray(values(run), np.float64),
                name=name,
                legendgroup=name,
                showlegend=place == 0,
                mode="lines",
                line={"color": colour, "dash": dash, "width": width},
                hovertemplate=f"{name}, step %{{x:,}}: %{{y:.3f}}<extra></extra>",
                **at,
            )
        mark = log.mark_of(step)
        figure.add_scatter(
            x=[step],
            y=[float(values(log)[mark])],
            mode="markers",
            marker={"color": CHANGE, "size": 11},
            showlegend=False,
            hovertemplate="step %{x:,}: %{y:.3f}<extra></extra>",
            **at,
        )
        figure.update_yaxes(title=unit, range=limits, **at)
        figure.update_xaxes(title=STEPS_TITLE if place > 1 else None, **at)
    return _over_steps(figure, log, step, height=470)


def loss_figure(log: TrainingLog, control: TrainingLog, step: int) -> go.Figure:
    """The training loss, and how fast it falls in the logarithm of time: a phase change is a dip of the second."""
    titles = ["Training loss (mean of 101 steps)", "Its slope, d(loss) / d(ln step)"]
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles)
    for name, run, colour, dash in (("one layer", control, STREAM, "dot"), ("two layers", log, ATTENTION, "solid")):
        for column, (steps, values) in enumerate((run.smooth_loss(), run.loss_slope()), 1):
            figure.add_scatter(
                x=steps[:: 20 if column == 1 else 1],
                y=np.asarray(values[:: 20 if column == 1 else 1], np.float64),
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                mode="lines",
                line={"color": colour, "dash": dash, "width": 2},
                hovertemplate=f"{name}, step %{{x:,.0f}}: %{{y:.3f}}<extra></extra>",
                row=1,
                col=column,
            )
    figure.update_yaxes(title="nats per token", range=[2, 6.3], col=1)
    figure.update_yaxes(title="nats per factor e of steps", range=[-1.2, 0.2], col=2)
    figure.update_xaxes(title=STEPS_TITLE)
    return _over_steps(figure, log, step, height=290)


def heads_out_figure(
    names: Sequence[str], losses: Float[np.ndarray, " head"], *, first: float, second: float, chosen: str
) -> go.Figure:
    """Loss on the second copy with each head's output set to zero.

    Args:
        names: of the heads, such as L1H2, or of several at once.
        losses: nats per token, one per name.
        first: loss on the first copy with nothing taken out: what is left when nothing is copied.
        second: loss on the second copy with nothing taken out.
        chosen: what is taken out elsewhere on the page.
    """
    colours = [CHANGE if name == chosen else ATTENTION for name in names]
    values = np.asarray(losses, np.float64)
    figure = go.Figure(
        go.Bar(
            x=list(names),
            y=values,
            marker={"color": colours},
            text=[f"{value:.2f}" for value in values],
            textposition="outside",
            cliponaxis=False,
            showlegend=False,
            hovertemplate="without %{x}: %{y:.2f} nats per token<extra></extra>",
        )
    )
    _plain(figure, height=300)
    figure.update_xaxes(title="head taken out")
    figure.update_yaxes(title="loss on the second copy (nats)", range=[0, 1.2 * max(first, values.max(initial=0.0))])
    levels = ((first, f"first copy: {first:.2f}", STREAM), (second, f"second copy, nothing out: {second:.2f}", TARGET))
    for value, words, colour in levels:
        figure.add_scatter(
            x=list(names),
            y=[value] * len(names),
            name=words,
            mode="lines",
            line={"color": colour, "dash": "dot", "width": 2},
            hoverinfo="skip",
        )
    return figure


def _over_steps(figure: go.Figure, log: TrainingLog, step: int, *, height: int) -> go.Figure:
    start, end = transition(log)
    figure.add_vrect(x0=start, x1=end, fillcolor=BAND, line_width=0, row="all", col="all", layer="below")
    figure.add_vline(x=step, line={"color": CHANGE, "width": 1.5}, row="all", col="all")
    figure.update_xaxes(range=[-60, int(log.marks[-1]) + 60], showgrid=False)
    return _plain(figure, height=height)


def _plain(figure: go.Figure, *, height: int) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={**MARGIN, "t": 60},
        paper_bgcolor="rgba(0,0,0,0)",  # Streamlit's light or dark page shows through
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1.1, "yanchor": "bottom"},
    )
    figure.update_xaxes(fixedrange=True)
    figure.update_yaxes(gridcolor=GRID, zerolinecolor=GRID, fixedrange=True)
    figure.update_annotations(font={"size": 13})
    return figure
