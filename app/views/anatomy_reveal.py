"""The guess and the answer of the page "Anatomy": three numbers, then the arithmetic line by line."""

from dataclasses import dataclass

import streamlit as st

from analyses._architecture import Architecture
from analyses._architecture_costs import kv_cache_bytes, multi_head_cache_bytes
from analyses.anatomy import ParameterCount
from app.ui.words import say_note, show_table
from app.views.anatomy_choices import Counted
from app.views.anatomy_words import PARTS, letters_of, share, three, write_bytes


@dataclass(frozen=True)
class Guess:
    """What a person said before the answer was shown."""

    mlp: float | None  # per cent of all parameters
    total: float | None  # millions of parameters
    cache: float | None  # KiB per token


def ask_guess() -> tuple[Guess, bool]:
    """Three numbers and whether the answer is shown."""
    places = st.columns([1, 1, 1, 0.7], vertical_alignment="bottom")
    with places[0]:
        total = st.number_input(
            "Parameters (millions)",
            0.0,
            1e9,
            None,
            1.0,
            "%g",
            key="guess_total",
            bind="query-params",
            placeholder="your guess",
        )
    with places[1]:
        mlp = st.number_input(
            "In the MLPs (% of all)",
            0.0,
            100.0,
            None,
            1.0,
            "%g",
            key="guess_mlp",
            bind="query-params",
            placeholder="your guess",
        )
    with places[2]:
        cache = st.number_input(
            "Cache (KiB per token)",
            0.0,
            1e9,
            None,
            1.0,
            "%g",
            key="guess_cache",
            bind="query-params",
            placeholder="your guess",
            help="Keys and values that one token leaves behind, in bfloat16 (2 bytes per number); 1 KiB = 1024 bytes.",
        )
    with places[3]:
        revealed = st.toggle("Reveal", key="revealed", bind="query-params")
    return Guess(mlp, total, cache), revealed


def guess_rows(guess: Guess, counted: Counted) -> dict[str, list[str]]:
    """Guess, answer, and how far off."""
    count, token = counted.count, kv_cache_bytes(counted.architecture, 1)
    percent, millions, kib = 100 * count.mlp / count.total, count.total / 1e6, token / 1024
    rows = [
        ("parameters", _said(guess.total, " million"), f"{count.total:,}", _times(guess.total, millions)),
        ("in the MLPs", _said(guess.mlp, " %"), share(count.mlp, count.total), _points(guess.mlp, percent)),
        (
            "cache per token",
            _said(guess.cache, " KiB"),
            f"{token:,} bytes = {three(kib)} KiB",
            _times(guess.cache, kib),
        ),
    ]
    names = ("", "you said", "it is", "off by")
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}


def _said(value: float | None, unit: str) -> str:
    return "nothing" if value is None else f"{three(value)}{unit}"


def _times(guess: float | None, truth: float) -> str:
    if guess is None:
        return "–"
    if guess <= 0:
        return "all of it"
    ratio = guess / truth
    if abs(ratio - 1) < 0.005:
        return "nothing"
    return f"{three(ratio)} times too much" if ratio > 1 else f"{three(1 / ratio)} times too little"


def _points(guess: float | None, truth: float) -> str:
    if guess is None:
        return "–"
    return f"{three(abs(guess - truth))} points {'too high' if guess > truth else 'too low'}"


def working_rows(count: ParameterCount) -> dict[str, list[str]]:
    """Every product with its numbers filled in; the last row is the sum."""
    names = [f"{PARTS[part]}: {what}" for part, what, *_ in count.working]
    return {
        "part": [*names, "all together"],
        "arithmetic": [*(f"{row[2]} = {row[3]}" for row in count.working), "the sum of the lines"],
        "parameters": [*(f"{row[4]:,}" for row in count.working), f"{count.total:,}"],
    }


def share_rows(count: ParameterCount) -> dict[str, list[str]]:
    """The MLPs' share of the blocks' matrices and of everything."""
    blocks = count.mlp_matrices + count.attention_matrices
    return {
        "share of the MLPs": ["of the matrices in the blocks", "of the whole model, biases included"],
        "arithmetic": [
            f"MLP / (MLP + Q + K + V + O) = {count.mlp_matrices:,} / {blocks:,}",
            f"MLP / total = {count.mlp:,} / {count.total:,}",
        ],
        "": [share(count.mlp_matrices, blocks), share(count.mlp, count.total)],
    }


def cache_rows(a: Architecture) -> dict[str, list[str]]:
    """What one token leaves in the cache, and what it would with a KV head for every query head."""
    token = kv_cache_bytes(a, 1)
    return {
        "cache": ["one token, bfloat16", "if every query head had its own keys and values"],
        "arithmetic": [
            f"2 (key and value) × L × K × h × 2 bytes = 2 × {a.n_layers:,} × {a.n_kv_heads:,} × {a.d_head:,} × 2",
            f"the same with H for K = 2 × {a.n_layers:,} × {a.n_heads:,} × {a.d_head:,} × 2",
        ],
        "": [_exactly(token), _exactly(multi_head_cache_bytes(a, 1))],
    }


def _exactly(n_bytes: int) -> str:
    return f"{n_bytes:,} bytes = {write_bytes(n_bytes)}" if n_bytes >= 1024 else write_bytes(n_bytes)


def draw_working(counted: Counted) -> None:
    """The three derivations."""
    count, a = counted.count, counted.architecture
    show_table(working_rows(count))
    say_note(letters_of(a, count))
    if count.active != count.total:
        say_note(
            f"One token uses {count.active:,} of them: {count.total:,} less the experts it does not use, "
            f"{count.experts - count.active_experts:,}."
        )
    left, right = st.columns(2)
    with left:
        show_table(share_rows(count))
    with right:
        show_table(cache_rows(a))
        windows = {window for window in a.windows if window}
        if windows:
            say_note(
                f"{sum(map(bool, a.windows))} of {a.n_layers} layers see a window of {min(windows):,} tokens; in these "
                "the cache stops growing there."
            )
    if counted.published:
        say_note(f"Published: {counted.published}.")
