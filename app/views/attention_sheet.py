"""The contact sheet of all heads, the sentence above it, and the table of scores."""

from typing import Any

import numpy as np
import streamlit as st

from analyses.attention import Attention
from analyses.head_scores import HeadScores
from app.components.head_grid import head_grid
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.words import literal
from app.views.attention_choices import SCORES, Choices, why_not

WIDE = 20  # heads per line where lines are not layers
STRONG = 0.5  # of the weight: the threshold that the finding names


def draw_sheet(
    maps: Attention,
    scores: HeadScores,
    choices: Choices,
    *,
    selected: tuple[int, int],
    ticked: tuple[tuple[int, int], ...],
) -> tuple[int, int] | None:
    """Every head as a small picture; returns the head that is open now."""
    n_layers, n_heads = scores.previous_token.shape
    values = getattr(scores, choices.score)
    heads = order_of(values, n_layers, n_heads, by_score=choices.by_score, top=choices.top)
    packed = maps.packed.reshape(n_layers * n_heads, -1)[[layer * n_heads + head for layer, head in heads]]
    ranks = None if values is None else scores.rank(choices.score)
    shown = {name: getattr(scores, field) for field, name in SCORES.items()}
    if values is None:
        st.caption(f"{SCORES[choices.score].capitalize()}: {literal(why_not(scores, choices.score))}")
    at = tuple(np.array(heads).T)
    return head_grid(
        packed,
        -(-maps.n_tokens // maps.block),
        heads,
        n_heads if not (choices.by_score or choices.top) else WIDE,
        {name: array[at] for name, array in shown.items() if array is not None},
        None if values is None else np.clip(values[at], 0, 1),
        None if ranks is None else ranks[at],
        selected=selected,
        ticked=ticked,
        key="attention.sheet",
        label="Attention of every head",
        block=maps.block,
        n_tokens=maps.n_tokens,
        hide_first=choices.hide_first,
        tint_label=SCORES[choices.score],
    )


def draw_layer(frame: Frame, layer: int, head: int, *, hide_first: bool) -> None:
    """All heads of one layer with every pair, where the sheet shows blocks."""
    with st.expander(f"All heads of layer {layer}, every pair", expanded=False):
        if not st.toggle("Draw them", key="attention.layer.draw"):
            st.caption("About a megabyte for 512 tokens: drawn when it is asked for.")
            return
        outcome = run(
            "attention",
            frame.tokens.ids,
            slot="attention.layer",
            model=frame.model.config.fingerprint,
            layers=(layer,),
            detail="full",
        )
        if outcome is None or outcome.stale:
            return
        maps: Attention = outcome.result
        n_heads = maps.packed.shape[1]
        head_grid(
            maps.packed[0],
            maps.n_tokens,
            [(layer, number) for number in range(n_heads)],
            min(n_heads, 4),
            {},
            None,
            None,
            selected=(layer, head),
            key="attention.layer.sheet",
            label=f"Attention of layer {layer}",
            hide_first=hide_first,
        )


def order_of(values: Any, n_layers: int, n_heads: int, *, by_score: bool, top: int) -> list[tuple[int, int]]:
    """Heads in the order to be drawn.

    Args:
        values: score of every head, or None where it is not defined; then the layers decide.
        n_layers: layers of the model.
        n_heads: heads of a layer.
        by_score: strongest first.
        top: how many of the strongest to keep; 0 for all.
    """
    heads = [divmod(i, n_heads) for i in range(n_layers * n_heads)]
    if values is None:
        return heads
    strongest = [heads[i] for i in np.argsort(-values.ravel(), kind="stable")]
    if top:
        strongest = strongest[:top]
    return strongest if by_score else sorted(strongest)


def strongest(values: Any) -> tuple[int, int]:
    """The head with the highest score; the first one where the score is not defined."""
    if values is None:
        return 0, 0
    layer, head = np.unravel_index(int(np.argmax(values)), values.shape)
    return int(layer), int(head)


def sheet_words(scores: HeadScores, score: str) -> str:
    """The computed sentence: how many heads are strong, the strongest, and how many rest on the first token."""
    n = scores.first_token.size
    resting = int((scores.first_token > STRONG).sum())
    rest = f"{resting} of {n} put more than half on the first token."
    values = getattr(scores, score)
    where = "on random tokens repeated once" if scores.on == "random" else "on your prompt"
    if values is None:
        return f"{SCORES[score].capitalize()}: {why_not(scores, score)}. {rest}"
    layer, head = strongest(values)
    if score == "entropy_share":
        return (
            f"The most spread head {where} is L{layer}H{head} ({values[layer, head]:.2f} of the largest entropy); "
            f"the mean is {values.mean():.2f}. {rest}"
        )
    strong = int((values > STRONG).sum())
    return (
        f"{strong} of {n} heads score above {STRONG} for {SCORES[score]} {where} (strongest L{layer}H{head}, "
        f"{values[layer, head]:.2f}). {'' if score == 'first_token' else rest}"
    ).rstrip()


def draw_table(scores: HeadScores) -> None:
    """Every number of the sheet as text."""
    with st.expander("The numbers: every head's scores"):
        st.dataframe(scores.to_frame(), hide_index=True)
        if scores.on == "random":
            st.caption(
                f"{scores.n_sequences} sequences of {scores.n_copy} random tokens and the same again, seed {scores.seed}; "
                f"spread: standard deviation over {scores.n_seeds} seeds. Push: what a head writes straight towards the "
                "token that follows, in logits. The loss falls from "
                f"{scores.first_copy_loss_nats:.1f} nats on the first copy to {scores.second_copy_loss_nats:.1f} on the second."
            )


def layer_words(maps: Attention, n_heads: int) -> str:
    """What is particular to the model's attention: shared keys, windows, sinks."""
    said = []
    kv = len(set(maps.kv_head_of.tolist()))
    if kv < n_heads:
        said.append(
            f"{n_heads // kv} heads in a row share one set of keys and values (GQA: {kv} KV heads for {n_heads})."
        )
    windows = {window for window in maps.window if window is not None}
    if windows:
        n = sum(window is not None for window in maps.window)
        said.append(f"{n} of {len(maps.window)} layers see only the last {max(windows):,} tokens (sliding window).")
    if any(maps.sinks):
        said.append(
            f"In {sum(maps.sinks)} layers rows do not sum to one by design: a part goes to a sink that is no token. "
            f"Nothing is rescaled (smallest row sum {maps.least_row_sum.min():.2f})."
        )
    if maps.block > 1:
        said.append(
            f"With {maps.n_tokens:,} tokens each cell is the largest weight of {maps.block} x {maps.block} pairs."
        )
    return " ".join(said)
