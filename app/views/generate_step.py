"""The distribution that one new token was taken from, and the text that would follow another one."""

from typing import Any

import numpy as np
import streamlit as st

from analyses.sampling import reshape_distribution
from app.figures.next_token import next_token_figure
from app.figures.sampling import sampling_figure
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.stream import Stream
from app.ui.token_text import percent, visible
from app.ui.words import literal, show_figure
from app.views.generate_rows import Row, rank_words
from app.views.next_token import in_bits, labels_of, probability_of

LISTED = 10


def draw_step(frame: Frame, stream: Stream, row: Row, place: int) -> tuple[int, ...] | None:
    """The choice at one place, before and after the sampling settings it was made with.

    Returns:
        The tokens to go on from, when another token was asked for there: those before the place, and that one.
    """
    model, came = frame.model, row.whole[place]
    before = (*frame.tokens.ids, *row.whole[:place])
    outcome = run("next_token", before, slot="generate.next", model=model.config.fingerprint, top_k=LISTED)
    if outcome is None or outcome.stale:
        return None
    result = outcome.result
    ids, probability = result.ids, result.probability.astype(np.float64)
    if came not in ids:
        ids, probability = np.append(ids, came), np.append(probability, probability_of(result, came))
    labels = labels_of(model, ids)
    rank = int((result.logits > result.logits[came]).sum())
    st.markdown(
        f"**New token {place}**, {literal(visible(model.vocabulary.piece(came)))}: {percent(probability_of(result, came))}, "
        f"{rank_words(rank)}. The distribution before it carried {in_bits(result.entropy_nats):.2f} bits."
    )
    settings = {
        name: stream.request.params.get(name, usual)
        for name, usual in (("temperature", 0.0), ("top_k", 0), ("top_p", 1.0))
    }
    if settings["temperature"]:
        _draw_reshaped(result, ids, labels, probability, settings, kept=place < len(row.kept))
    else:
        target = int(np.flatnonzero(ids == came)[0])
        figure = next_token_figure(labels, probability, ids=ids.tolist(), target=target)
        show_figure(figure, key="generate.next", alt="What could follow here; the token taken is green")
        st.caption("Green is the token that was taken.")
    return _choose_another(ids, labels, probability, row, place)


def _draw_reshaped(
    result: Any, ids: Any, labels: list[str], probability: Any, settings: dict[str, Any], *, kept: bool
) -> None:
    reshaped = reshape_distribution(result.logits, **settings)
    figure = sampling_figure(labels, probability, reshaped.probability[ids], ids=ids.tolist())
    show_figure(
        figure, key="generate.next.sampled", alt="What could follow here, before and after the sampling settings"
    )
    tokens = "1 token" if reshaped.n_kept == 1 else f"{reshaped.n_kept:,} tokens"
    written = "of the text after it; this token was kept from before" if kept else "this text was written with"
    st.caption(
        f"{tokens} of {len(result.logits):,} could be drawn here, {in_bits(reshaped.entropy_nats):.2f} bits, with the settings "
        f"{written}."
    )


def _choose_another(ids: Any, labels: list[str], probability: Any, row: Row, place: int) -> tuple[int, ...] | None:
    """Another token here, and writing from there."""
    choice, button = st.columns([3, 1], vertical_alignment="bottom")
    others = [at for at, i in enumerate(ids.tolist()) if i != row.whole[place]]
    with choice:
        other = st.selectbox(
            "Another token here",
            others,
            format_func=lambda at: f"{labels[at]}  {percent(min(1.0, float(probability[at])))}",
            key="generate.other",
            help="What comes before it stays; what came after it is written again.",
        )
    with button:
        if st.button("Continue from here", key="generate.continue", width="stretch") and other is not None:
            return (*row.whole[:place], int(ids[other]))
    return None
