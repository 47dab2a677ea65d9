"""What temperature, top-k and top-p do to the most probable tokens: before and after, side by side."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from app.figures.next_token import check_rows, hover_rows, probability_bars
from app.figures.theme import CHANGE, STREAM
from app.ui.token_text import percent


def sampling_figure(
    labels: Sequence[str],
    base_probability: Float[np.ndarray, " k"],
    new_probability: Float[np.ndarray, " k"],
    *,
    ids: Sequence[int] | None = None,
    upper: float = 1.0,
) -> go.Figure:
    """Two bars per token; one that can no longer be drawn keeps its place, hatched, and says so.

    Args:
        labels: the tokens as visible text.
        base_probability: the model's own distribution (temperature 1, nothing excluded).
        new_probability: after the user's settings, over the whole vocabulary; exactly zero means excluded.
        ids: token ids, for the hover text.
        upper: where the probability axis ends.

    Raises:
        ValueError: not one probability per label.
    """
    check_rows(labels, base_probability, new_probability)
    figure = probability_bars(labels, upper)
    base, new = np.asarray(base_probability, dtype=np.float64), np.asarray(new_probability, dtype=np.float64)
    gone = new == 0
    rows, hover = np.arange(len(labels)), hover_rows(labels, ids)
    bars = {"orientation": "h", "textposition": "outside", "cliponaxis": False, "customdata": hover}
    figure.add_bar(
        y=rows,
        x=base,
        name="the model's own",
        offsetgroup="before",
        marker={"color": STREAM},
        text=[percent(p) for p in base],
        hovertemplate="%{customdata[0]}%{customdata[1]}<br>the model's own %{text}<extra></extra>",
        **bars,
    )
    figure.add_bar(
        y=rows,
        x=np.where(gone, np.nan, new),
        name="with your settings",
        offsetgroup="after",
        marker={"color": CHANGE},
        text=["" if out else percent(p) for p, out in zip(new, gone, strict=True)],
        hovertemplate="%{customdata[0]}%{customdata[1]}<br>with your settings %{text}<extra></extra>",
        **bars,
    )
    # An excluded token has no bar to see: the outline of what it had, hatched like everything deleted.
    figure.add_bar(
        y=rows,
        x=np.where(gone, base, np.nan),
        name="excluded",
        offsetgroup="after",
        marker={
            "color": "rgba(0,0,0,0)",
            "line": {"color": CHANGE, "width": 1.5},
            "pattern": {"shape": "/", "fgcolor": CHANGE, "size": 6},
        },
        text=["excluded" if out else "" for out in gone],
        hovertemplate="%{customdata[0]}%{customdata[1]}<br>excluded by your settings<extra></extra>",
        showlegend=bool(gone.any()),
        **bars,
    )
    figure.update_layout(barmode="group", height=figure.layout.height + 16 * len(labels))
    return figure
