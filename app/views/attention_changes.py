"""What each step of attention does, and what positions do: the same prompt with one thing changed."""

import numpy as np
import streamlit as st

from app.ui.controls import run_when_asked
from app.ui.frame import Frame
from app.ui.token_text import percent, powers, visible
from app.ui.words import literal


def draw_changed_steps(frame: Frame) -> None:
    """The same prompt with one step of attention changed in all heads."""
    outcome = run_when_asked(
        "attention_steps",
        frame.tokens.ids,
        slot="attention.steps",
        model=frame.model.config.fingerprint,
        button="Change each step",
        words="The scale, the place of the mask, and the soft lookup are changed in every head, one at a time.",
    )
    if outcome is None or outcome.stale:
        return
    result = outcome.result
    words = {
        "unchanged": "the model as it is",
        "scale": "another scale",
        "hard lookup": "only the best match, as in a dictionary",
    }
    scaled = "q·k" if result.scale is not None else "the model's own,"
    columns = {
        "what is changed": [
            words.get(kind, kind) + (f" ({scaled} times {scale:.3f})" if kind == "scale" else "")
            for kind, scale in zip(
                result.variants, result.scale if result.scale is not None else result.factor, strict=True
            )
        ],
        "loss (nats)": result.loss_nats,
        "mean row sum": result.row_sum,
        "mean largest weight": result.largest_weight,
        "largest change of a logit": result.largest_logit_change,
        "first choice": [visible(frame.model.vocabulary.piece(int(ids[0]))) for ids in result.top_ids],
        "its probability": [percent(float(np.exp(row[0]))) for row in result.top_log_probability],
    }
    st.dataframe(columns, hide_index=True)
    st.caption(
        "A mask after the softmax with rescaled rows is the same as before it: no logit moves. Without rescaling, rows lose what "
        "they gave to later tokens. Without a mask each token sees the answer, so a low loss there is no achievement. The model "
        "was trained with its own steps: a change is a shock, not what training with it would give."
    )


def draw_positions(frame: Frame, opened: tuple[int, int]) -> None:
    """Shuffled tokens, and a pair moved along the context."""
    if len(frame.tokens.ids) < 3:
        st.caption("Shuffling needs at least three tokens.")
        return
    outcome = run_when_asked(
        "attention_position",
        frame.tokens.ids,
        slot="attention.positions",
        model=frame.model.config.fingerprint,
        button="Shuffle and shift",
        words=f"The prompt's tokens are shuffled in layer {opened[0]}, and a pair of them is moved along the context.",
        layer=opened[0],
        head=opened[1],
    )
    if outcome is None or outcome.stale:
        return
    result = outcome.result
    gap = result.permutation_gap

    def shown(value: float) -> str:
        return "cannot be shown" if np.isnan(value) else powers(f"{value:.2g}")

    st.dataframe(
        {
            "": ["without positions", "with positions"],
            "without the mask": [shown(float(gap[0, 0])), shown(float(gap[1, 0]))],
            "with the mask": [shown(float(gap[0, 1])), shown(float(gap[1, 1]))],
        },
        hide_index=True,
    )
    st.caption(
        "Largest difference between attention of the shuffled tokens and the shuffled output of attention (unshuffled outputs "
        f"reach {result.output_size:.2g}). Near zero: attention only shuffles along, it does not know any order. Order comes "
        f"from positions and from the causal mask. {literal(result.permutation_reason)}"
    )
    if result.score is None:
        st.caption(f"Distance: {literal(result.distance_reason)}.")
        return
    st.dataframe(
        {
            "pair": [
                "in the prompt",
                *(f"both moved by {shift}" for shift in result.shifts),
                "the key alone moved by 1",
            ],
            "score": [f"{value:.4f}" for value in (result.score, *result.shifted_score, result.moved_key_score)],
        },
        hide_index=True,
    )
    st.caption(
        f"Score of tokens {result.query} and {result.key} in L{result.layer}H{result.head}: with rotary positions it depends on "
        "their distance only (Su et al. 2021)."
    )
