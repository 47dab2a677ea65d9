"""What the same content costs in different languages, as bars."""

from typing import Literal

import numpy as np
import plotly.graph_objects as go

from analyses.languages import LanguageCosts
from app.figures.theme import OWN, STREAM, horizontal_bars
from app.ui.token_text import plotly_safe

Measure = Literal["relative_to_english", "tokens_per_byte", "tokens_per_character"]
_AXES: dict[str, str] = {
    "relative_to_english": "tokens for the same content (English = 1)",
    "tokens_per_byte": "tokens per UTF-8 byte",
    "tokens_per_character": "tokens per character",
}


def languages_figure(
    costs: LanguageCosts, *, measure: Measure = "relative_to_english", own: str | None = None
) -> go.Figure:
    """One bar per text, in the order of `costs`.

    Args:
        costs: what `compare_languages` returns.
        measure: which column.
        own: name of the row that is the user's prompt; drawn in another colour.

    Raises:
        ValueError: there is no such measure.
    """
    if measure not in _AXES:
        raise ValueError(f"needs one of {', '.join(_AXES)}; found {measure!r}; choose one of them.")
    values = np.asarray(getattr(costs, measure), dtype=np.float64)
    known = np.isfinite(values)
    upper = _round_up(float(values[known].max())) if known.any() else 1.0
    ticks = [upper * step / 4 for step in range(5)]
    figure = horizontal_bars(costs.name, axis=_AXES[measure], upper=upper, ticks=ticks, form=".3~g")
    counts = zip(costs.n_tokens, costs.n_characters, costs.n_bytes, strict=True)
    figure.add_bar(
        orientation="h",
        y=list(range(len(values))),
        x=values,
        marker={"color": [OWN if name == own else STREAM for name in costs.name]},
        text=[f"{value:#.3g}" if finite else "" for value, finite in zip(values, known, strict=True)],
        customdata=[
            [plotly_safe(name), f"{tokens:,} tokens, {characters:,} characters, {size:,} bytes"]
            for name, (tokens, characters, size) in zip(costs.name, counts, strict=True)
        ],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>" + _AXES[measure] + ": %{text}<extra></extra>",
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
    )
    for row in np.flatnonzero(~known):  # no bar, and the reason: another text cannot be compared, an empty one neither
        reason = "not the same content" if measure == "relative_to_english" else "empty"
        figure.add_annotation(x=0, y=int(row), text=reason, xanchor="left", showarrow=False)
    return figure


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8 or 10 times a power of ten: the scale changes rarely and its quarters are short."""
    magnitude = 10.0 ** np.floor(np.log10(value)) if value > 0 else 1.0
    return float(next(step * magnitude for step in (1, 2, 4, 6, 8, 10) if value <= step * magnitude * (1 + 1e-9)))
