"""What running costs: seconds against prompt length, bytes of the cache, batches, and the context as one budget."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from analyses.batch_timing import BatchTiming
from analyses.context_budget import ContextBudget
from analyses.timing import Timing
from app.figures.theme import ATTENTION, GRID, MLP, OWN, STREAM, TARGET
from app.ui.token_text import plotly_safe

_LAYOUT = {
    "height": 340,
    "margin": {"l": 8, "r": 8, "t": 40, "b": 44},
    "paper_bgcolor": "rgba(0,0,0,0)",  # Streamlit's light or dark page shows through
    "plot_bgcolor": "rgba(0,0,0,0)",
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
}
_LINES = (
    ("prefill_seconds", "the prompt, until the first token", OWN, "solid", "circle"),
    ("uncached_seconds", "one more token, without a cache", STREAM, "dot", "x"),
    ("cached_seconds", "one more token, with the cache", TARGET, "solid", "diamond"),
)
# Seconds that any model and machine fall into get a round scale, so that two measurements can be compared by eye.
_DECADES = 10.0 ** np.arange(-5, 4)
_PART_COLOURS = (ATTENTION, MLP, TARGET, OWN)
# The colour of text on a part: at least 4.5 to 1.
_ON = {ATTENTION: "#FFFFFF", MLP: "#000000", TARGET: "#000000", OWN: "#000000", STREAM: "#FFFFFF"}


def timing_figure(result: Timing) -> go.Figure:
    """Median wall seconds of the three kinds of pass, both axes logarithmic."""
    figure = go.Figure()
    lengths = result.lengths.astype(np.int64)
    for field, name, colour, dash, symbol in _LINES:
        seconds = np.asarray(getattr(result, field), dtype=np.float64)
        if np.isfinite(seconds).any():
            figure.add_scatter(
                x=lengths,
                y=seconds,
                name=name,
                mode="lines+markers",
                line={"color": colour, "dash": dash, "width": 2},
                marker={"symbol": symbol, "size": 9},
                hovertemplate="%{x:,} tokens<br>%{y:.3~s}s<extra>" + name + "</extra>",
            )
    figure.update_layout(**_LAYOUT)
    ticks = [int(n) for n in lengths]
    figure.update_xaxes(
        title="tokens of the prompt",
        type="log",
        tickvals=ticks,
        ticktext=[f"{n:,}" for n in ticks],
        showgrid=False,
        fixedrange=True,
    )
    figure.update_yaxes(
        title="seconds per pass (log scale)",
        type="log",
        range=_decades(result),
        dtick="D2",  # 1, 2 and 5 of every decade
        tickformat="~s",
        ticksuffix="s",
        gridcolor=GRID,
        fixedrange=True,
    )
    return figure


def cache_figure(result: Timing) -> go.Figure:
    """Measured bytes of the KV cache on the line of the formula."""
    tokens = result.cache_tokens.astype(np.int64)
    figure = go.Figure()
    figure.add_scatter(
        x=[0, *tokens],
        y=[0, *(result.formula_bytes / 1e6)],
        name="computed, by the formula",
        mode="lines",
        line={"color": STREAM},
    )
    figure.add_scatter(
        x=tokens,
        y=result.cache_bytes / 1e6,
        name="measured, from the tensors",
        mode="markers",
        marker={"color": TARGET, "size": 8, "symbol": "circle-open", "line": {"width": 2}},
        customdata=result.cache_bytes,
        hovertemplate="%{x:,} tokens<br>%{customdata:,} bytes<extra>measured</extra>",
    )
    figure.update_layout(**_LAYOUT)
    figure.update_xaxes(title="tokens in the cache", rangemode="tozero", showgrid=False, fixedrange=True)
    figure.update_yaxes(title="KV cache (MB = 10⁶ bytes)", rangemode="tozero", gridcolor=GRID, fixedrange=True)
    return figure


def batch_figure(result: BatchTiming) -> go.Figure:
    """Tokens per second of every batch: in total, and for each of its rows."""
    total = result.tokens_per_second.astype(np.float64)
    places = list(range(len(total)))
    figure = go.Figure()
    for name, values, colour in (("all rows", total, TARGET), ("each row", total / result.rows, STREAM)):
        figure.add_bar(
            x=places,
            y=values,
            name=name,
            marker={"color": colour},
            text=[f"{value:.2g}" if value < 100 else f"{value:,.0f}" for value in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y:.3g} tokens/s<extra>" + name + "</extra>",
        )
    figure.update_layout(**_LAYOUT, barmode="group")
    figure.update_xaxes(
        title="rows side by side",
        tickvals=places,
        ticktext=[f"{n}" for n in result.rows],
        showgrid=False,
        fixedrange=True,
    )
    top = 1.15 * float(total.max(initial=1e-9))
    figure.update_yaxes(title="tokens per second", range=[0, top], gridcolor=GRID, fixedrange=True)
    return figure


def budget_figure(result: ContextBudget) -> go.Figure:
    """The window as one bar: what is read, the answer's room behind it, and what fell out hatched on the left of zero."""
    figure = go.Figure()
    lost = result.n_tokens - result.n_kept
    place = -int(lost.sum())
    for part, (name, tokens) in enumerate(zip(result.names, lost, strict=True)):
        if tokens:
            _segment(figure, place, int(tokens), name, _part_colour(part, result), gone=True)
            place += int(tokens)
    for part, (name, tokens) in enumerate(zip(result.names, result.n_kept, strict=True)):
        if tokens:
            _segment(figure, place, int(tokens), name, _part_colour(part, result))
            place += int(tokens)
    _segment(figure, place, result.answer, "answer (kept free)", STREAM)
    figure.add_vline(
        x=result.window,
        line={"color": STREAM, "width": 2},
        annotation={
            "text": f"window: {result.window:,}",
            "yanchor": "bottom",
            "y": 1,
            "xanchor": "right",
            "showarrow": False,
        },
    )
    figure.add_vline(x=0, line={"color": STREAM, "width": 2})
    figure.update_layout(**_LAYOUT | {"height": 190}, barmode="overlay", showlegend=False, bargap=0.1)
    left = -int(lost.sum())
    figure.update_xaxes(
        title="tokens in the window (left of 0: fell out)",
        range=[left - 0.02 * result.window, 1.02 * result.window],
        gridcolor=GRID,
        fixedrange=True,
    )
    figure.update_yaxes(visible=False, fixedrange=True)
    return figure


def _segment(figure: go.Figure, start: int, tokens: int, name: str, colour: str, *, gone: bool = False) -> None:
    marker = {"color": colour, "line": {"color": colour, "width": 1.5}}
    text = {"text": [plotly_safe(name)], "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    if not gone:
        text["insidetextfont"] = {"color": _ON[colour]}
    if gone:  # hatched outline, like everything that is left out
        marker |= {"color": "rgba(0,0,0,0)", "pattern": {"shape": "/", "fgcolor": colour, "solidity": 0.3}}
    shown = plotly_safe(name)
    figure.add_bar(
        orientation="h",
        x=[tokens],
        base=[start],
        y=[0],
        name=shown,
        marker=marker,
        hovertemplate=f"{shown}<br>{tokens:,} tokens<extra></extra>",
        **text,
    )


def _part_colour(part: int, result: ContextBudget) -> str:
    """The instruction, the document or the turns, and the question at the end."""
    if part == 0:
        return _PART_COLOURS[0]
    if part == len(result.names) - 1:
        return _PART_COLOURS[2]
    return _PART_COLOURS[1] if result.names[part] == "document" else _PART_COLOURS[3]


def _decades(result: Timing) -> Sequence[float]:
    """Whole decades around everything that was measured, as exponents of ten."""
    seconds = np.concatenate([np.asarray(getattr(result, field), np.float64) for field, *_ in _LINES])
    known = seconds[np.isfinite(seconds) & (seconds > 0)]
    if not len(known):
        return [-3, 1]
    low = _DECADES[_DECADES <= known.min()].max(initial=_DECADES[0])
    high = _DECADES[_DECADES >= known.max()].min(initial=_DECADES[-1])
    return [float(np.log10(low)), float(np.log10(max(high, 10 * low)))]
