"""What comes next after one token, and what temperature, top-k and top-p do to it."""

import math
from dataclasses import replace

import numpy as np
import streamlit as st

from analyses.next_token import NextToken
from analyses.sampling import log_softmax, reshape_distribution
from app.backend.protocol import ModelInfo
from app.figures.next_token import next_token_figure
from app.figures.sampling import sampling_figure
from app.ui.controls import segments
from app.ui.token_text import percent, visible
from app.ui.words import show_figure

MAX_LISTED = 30  # asked for once; listing fewer costs no new forward pass
VIEWS = ("The model's own", "Sampling")


def labels_of(model: ModelInfo, ids: np.ndarray) -> list[str]:
    """Token ids as visible text."""
    return [visible(model.vocabulary.piece(int(i))) for i in ids]


def first_k(result: NextToken, k: int) -> NextToken:
    """The same distribution with fewer tokens listed."""
    return replace(
        result,
        ids=result.ids[:k],
        probability=result.probability[:k],
        log_probability=result.log_probability[:k],
    )


def in_bits(nats: float) -> float:
    """Nats as bits."""
    return nats / math.log(2)


@st.fragment
def draw_next_token(model: ModelInfo, result: NextToken) -> None:
    """The most probable tokens; with "Sampling", the same distribution reshaped while a slider moves.

    A fragment: its controls redraw this picture alone, from the logits that are already here.
    """
    view = segments("Show", VIEWS, key="sampling", titled=False)
    labels = labels_of(model, result.ids)
    if view == VIEWS[0]:
        figure = next_token_figure(labels, result.probability, ids=result.ids.tolist())
        show_figure(figure, key="tokens.next", alt="Most probable next tokens")
        shown = percent(min(1.0, float(result.probability.sum())))
        st.caption(
            f"The {len(labels)} tokens shown hold {shown} of the probability of all {len(result.logits):,} tokens."
        )
        with st.expander("The numbers: logits and probabilities"):
            table = result.to_frame(model.vocabulary)
            table["token"] = labels
            st.dataframe(table, hide_index=True)
    else:
        _draw_sampling(result, labels)


def _draw_sampling(result: NextToken, labels: list[str]) -> None:
    """The same tokens before and after the settings, and what the settings left."""
    temperature, top_k, top_p = _choose_settings()
    sampled = reshape_distribution(result.logits, temperature=temperature, top_k=top_k, top_p=top_p)
    figure = sampling_figure(labels, result.probability, sampled.probability[result.ids], ids=result.ids.tolist())
    show_figure(figure, key="tokens.sampling", alt="Next tokens before and after sampling settings")
    tokens = "1 token" if sampled.n_kept == 1 else f"{sampled.n_kept:,} tokens"
    who = "it" if sampled.n_kept == 1 else "they"
    held = f"; {who} held {percent(sampled.kept_mass)} at this temperature" if temperature else ", always the likeliest"
    st.caption(
        f"{tokens} of {len(result.logits):,} can still be drawn{held}. "
        f"Entropy {in_bits(sampled.entropy_nats):.2f} bits, before {in_bits(result.entropy_nats):.2f}. "
        "Computed over the whole vocabulary, not over the tokens shown."
    )
    with st.expander("These settings in Python"):
        settings = f"temperature={temperature}, top_k={top_k}, top_p={top_p}"
        st.code(
            "# after = run_next_token(...), as at the end of this page\n"
            "from analyses import reshape_distribution\n\n"
            f"sampled = reshape_distribution(after.logits, {settings})\n"
            "print(sampled.probability[after.ids], sampled.n_kept, sampled.kept_mass)",
            language="python",
        )


def _choose_settings() -> tuple[float, int, float]:
    """Temperature, top-k and top-p, as `reshape_distribution` takes them."""
    st.caption("Sampling is how a program draws the next token from these probabilities.")
    left, middle, right = st.columns(3)
    with left:
        temperature = st.slider(
            "Temperature",
            0.0,
            2.0,
            1.0,
            0.05,
            key="temperature",
            bind="query-params",
            help="Logits are divided by it: below 1 sharpens, above 1 flattens, 0 always takes the most probable token.",
        )
    with middle:
        top_k = st.slider(
            "Top-k (0 = all)", 0, 200, 0, key="top_k", bind="query-params", help="Only the k most probable tokens stay."
        )
    with right:
        top_p = st.slider(
            "Top-p",
            0.05,
            1.0,
            1.0,
            0.01,
            key="top_p",
            bind="query-params",
            help="The smallest set of most probable tokens that holds this share of what top-k left.",
        )
    return temperature, top_k, top_p


def probability_of(result: NextToken, token_id: int) -> float:
    """Probability of any token of the vocabulary."""
    return float(np.exp(log_softmax(result.logits)[token_id]))
