"""The memory calculator of the page "Anatomy": weights, cache, users on a card, and bounds of speed."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from analyses._architecture_costs import (
    BITS,
    CARDS,
    GIB,
    RESERVE,
    Card,
    causal_prefill_flops,
    decode_bound,
    decode_flops,
    intensity,
    kv_cache_bytes,
    multi_head_cache_bytes,
    prefill_flops,
    read_per_step_bytes,
    ridge,
    users_that_fit,
    weight_bytes,
)
from app.ui.words import say_note, show_table
from app.views.anatomy_choices import Counted
from app.views.anatomy_words import operations, three, write_bytes


@dataclass(frozen=True)
class Setup:
    """What is served, on what."""

    n_tokens: int
    users: int
    stored: str  # number format of the weights
    card_name: str
    card_gib: float

    @property
    def bytes_per_value(self) -> int:
        """Of the cache: as the weights, but never below bfloat16."""
        return 4 if self.stored == "float32" else 2

    @property
    def card(self) -> Card:
        """Its speed and bandwidth, by its data sheet."""
        return CARDS[self.card_name]


def choose_setup(n_ctx: int | None) -> Setup:
    """Four controls; the card's memory in a popover."""
    places = st.columns([1, 1, 1, 1.3, 0.7], vertical_alignment="bottom")
    with places[0]:
        n_tokens = st.number_input(
            "Tokens per user", 1, 10**9, 8192, key="cache_tokens", bind="query-params", help="Of the context of each."
        )
    with places[1]:
        users = st.number_input("Users at once", 1, 10**6, 1, key="cache_users", bind="query-params")
    with places[2]:
        stored = st.selectbox("Weights in", list(BITS), index=1, key="weights", bind="query-params")
    with places[3]:
        card = st.selectbox("Card", list(CARDS), key="card", bind="query-params")
    with places[4], st.popover("More", width="stretch"):
        memory = st.number_input(
            "Memory of the card (GiB)",
            1,
            10**6,
            None,
            key="card_gib",
            bind="query-params",
            placeholder="as its data sheet",
        )
    if n_ctx is not None and n_tokens > n_ctx:
        say_note(f"The config names a context of {n_ctx:,} tokens; {n_tokens:,} is more than it was made for.")
    return Setup(int(n_tokens), int(users), stored, card, float(memory or CARDS[card].gib))


def memory_rows(counted: Counted, setup: Setup) -> dict[str, list[str]]:
    """Memory, line by line."""
    a, total = counted.architecture, counted.count.total
    weights = weight_bytes(a, setup.stored)
    size = setup.bytes_per_value
    one = kv_cache_bytes(a, setup.n_tokens, 1, size)
    all_ = kv_cache_bytes(a, setup.n_tokens, setup.users, size)
    free = int(setup.card_gib * (1 - RESERVE) * GIB)
    fit = users_that_fit(a, card_gib=setup.card_gib, n_tokens=setup.n_tokens, stored=setup.stored, bytes_per_value=size)
    rows = [
        ("weights", f"{total:,} × {three(BITS[setup.stored] / 8)} bytes", write_bytes(weights)),
        (f"cache of {setup.n_tokens:,} tokens", _cache_words(counted, setup), write_bytes(one)),
        (f"cache of {_users(setup.users)}", f"{setup.users:,} × {one:,} bytes", write_bytes(all_)),
        (
            "the same with multi-head attention",
            f"× H / K = {a.n_heads:,} / {a.n_kv_heads:,}",
            write_bytes(multi_head_cache_bytes(a, setup.n_tokens, setup.users, size)),
        ),
        ("weights and cache", f"{weights:,} + {all_:,} bytes", write_bytes(weights + all_)),
        (
            f"users that fit into {three(setup.card_gib)} GiB",
            f"({three(setup.card_gib)} GiB × {1 - RESERVE:g} − weights) / cache of one = {max(0, free - weights):,} / {one:,}",
            f"{fit:,}" if fit else "none",
        ),
    ]
    return _columns(rows, ("memory", "arithmetic", ""))


def _users(count: int) -> str:
    return f"{count:,} user{'' if count == 1 else 's'}"


def _cache_words(counted: Counted, setup: Setup) -> str:
    a, size = counted.architecture, setup.bytes_per_value
    if any(a.windows):
        kept = sum(min(setup.n_tokens, window) if window else setup.n_tokens for window in a.windows)
        return f"2 × K × h × {size} bytes × {kept:,} tokens kept in all layers, 2 × {a.n_kv_heads:,} × {a.d_head:,} × {size} each"
    return f"2 × {a.n_layers:,} × {a.n_kv_heads:,} × {a.d_head:,} × {size} bytes × {setup.n_tokens:,}"


def speed_rows(counted: Counted, setup: Setup) -> dict[str, list[str]]:
    """Operations and bounds, line by line."""
    a, n, card = counted.architecture, setup.n_tokens, setup.card
    size: dict[str, Any] = dict(stored=setup.stored, bytes_per_value=setup.bytes_per_value)
    moved = read_per_step_bytes(a, setup.stored) + kv_cache_bytes(a, n, setup.users, setup.bytes_per_value)
    bound = decode_bound(a, card, context=n, users=setup.users, **size)
    causal = causal_prefill_flops(a, n)
    fits = setup.users <= users_that_fit(
        a, card_gib=setup.card_gib, n_tokens=n, stored=setup.stored, bytes_per_value=setup.bytes_per_value
    )
    width = "d" if a.d_embedding == a.d_model else "e"
    rows = [
        (
            "one more token",
            f"2 × (block matrices a token uses + V × {width}) + 4 × H × h × tokens seen, summed over layers, at {n:,} tokens",
            operations(decode_flops(a, n)),
        ),
        (
            f"{n:,} tokens at once (prefill)",
            "as eager attention computes it, all pairs",
            operations(prefill_flops(a, n)),
        ),
        (
            "prefill at the card's full rate",
            f"{operations(causal)} causal pairs, one readout / {operations(card.flops_per_second)} per second",
            f"{three(causal / card.flops_per_second)} s",
        ),
        ("read in a decode step", "weights used and cache", write_bytes(moved)),
        (
            "decode at most",
            f"one token per step for {_users(setup.users)}; bandwidth {write_bytes(int(card.bytes_per_second))} per second",
            f"{three(bound)} tokens/s in all, {three(bound / setup.users)} per user" if fits else "does not fit",
        ),
        (
            "operations per byte",
            f"bandwidth is the limit below the card's ridge, {three(ridge(card))}",
            three(intensity(a, context=n, users=setup.users, **size)),
        ),
    ]
    return _columns(rows, ("speed", "arithmetic", ""))


def _columns(rows: list[tuple[str, str, str]], names: tuple[str, str, str]) -> dict[str, list[str]]:
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}


def draw_memory(counted: Counted) -> None:
    """The calculator."""
    setup = choose_setup(counted.architecture.n_ctx)
    show_table(memory_rows(counted, setup))
    show_table(speed_rows(counted, setup))
    say_note(setup_words(setup))


def setup_words(setup: Setup) -> str:
    """What the tables assume, with sources."""
    cache, card = "float32" if setup.bytes_per_value == 4 else "bfloat16", setup.card
    return (
        f"1 GiB = 1024³ bytes, 1 GB = 10⁹ bytes. The cache is in {cache}. {RESERVE:.0%} of the card stays free for "
        "activations and the driver. Not counted: scales of int8 and 4-bit weights. "
        f"{setup.card_name}: {card.gib} GB on its sheet, read as GiB; {three(card.bytes_per_second / 1e12)} TB/s; "
        f"{three(card.flops_per_second / 1e12)} TFLOP/s in bfloat16, dense ({card.source}). "
        "Upper bounds from arithmetic: real servers reach a fraction. With several users a model with experts reads more "
        "experts than one token uses, so its bound is lower still."
    )
