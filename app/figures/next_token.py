"""The most probable next tokens, as bars."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from app.figures.theme import STREAM, TARGET, horizontal_bars
from app.ui.token_text import percent, plotly_safe

QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def next_token_figure(
    labels: Sequence[str],
    probability: Float[np.ndarray, " k"],
    *,
    ids: Sequence[int] | None = None,
    target: int | None = None,
    upper: float = 1.0,
) -> go.Figure:
    """One bar per token with its probability printed.

    Args:
        labels: the tokens as visible text (`token_text.visible`), most probable first.
        probability: share of the whole vocabulary, 0 to 1.
        ids: token ids, for the hover text.
        target: row drawn as the target.
        upper: where the probability axis ends; figures that are compared share it.

    Raises:
        ValueError: not one probability per label.
    """
    check_rows(labels, probability)
    figure = probability_bars(labels, upper)
    figure.add_bar(
        orientation="h",
        y=list(range(len(labels))),
        x=np.asarray(probability, dtype=np.float64),
        marker={"color": [TARGET if row == target else STREAM for row in range(len(labels))]},
        text=[percent(p) for p in probability],
        customdata=hover_rows(labels, ids),
        hovertemplate="%{customdata[0]}%{customdata[1]}<br>probability %{text}<extra></extra>",
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
    )
    return figure


def probability_bars(labels: Sequence[str], upper: float) -> go.Figure:
    """Empty rows on a probability axis."""
    ticks = [upper * quarter for quarter in QUARTERS]
    return horizontal_bars(labels, axis="probability", upper=upper, ticks=ticks, form=".3~%")


def hover_rows(labels: Sequence[str], ids: Sequence[int] | None) -> list[list[str]]:
    """The whole label and the id of every row, for `customdata`."""
    lines = [""] * len(labels) if ids is None else [f"<br>id {int(i)}" for i in ids]
    return [[plotly_safe(label), line] for label, line in zip(labels, lines, strict=True)]


def check_rows(labels: Sequence[str], *columns: Float[np.ndarray, " k"]) -> None:
    """Refuse columns that do not belong to the labels.

    Raises:
        ValueError: not one value per label.
    """
    for column in columns:
        if len(column) != len(labels):
            raise ValueError(f"needs one value per label; found {len(column)} for {len(labels)}; pass the same rows.")
