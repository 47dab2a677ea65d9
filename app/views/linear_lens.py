"""The fitted lens: when it is there, how to get it, and what it is worth."""

import streamlit as st

from analyses.linear_lens import LinearLens, is_fitted, own_name
from app.figures.by_layer import depth_labels
from app.figures.logit_lens import Line, Measure, trajectory_figure
from app.figures.theme import CHANGE, STREAM
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.run import about, run, seconds_of
from app.ui.words import show_figure
from app.views.lens_choices import FIT_TEXTS, Choices


def fitted(frame: Frame, choices: Choices) -> LinearLens | None:
    """The fit that was chosen, or None: then this says what it takes, and offers to make it."""
    model = frame.model.config.fingerprint
    own = choices.fit_on == FIT_TEXTS[1]
    tokens = frame.tokens.ids if own else ()  # the same request for everybody, so it is computed once
    request = {"model": model, "text": "prompt" if own else "built-in"}
    name = own_name(tokens) if own else "linear"
    asked = f"lens.asked.{model}.{name}"
    if not is_fitted(model, name) and not st.session_state.get(asked):
        seconds = seconds_of("linear_lens", tokens, **request)
        text = f"your prompt ({len(tokens):,} tokens)" if own else "a text that ships with the app"
        st.info(
            f"The linear lens has not been fitted for this model yet. Fitting it on {text} takes {about(seconds)} here; "
            "it is kept on disk, for everybody. Until then the plain lens is shown.",
            icon=":material/straighten:",
        )
        if st.button("Fit it now", key="lens.fit"):
            st.session_state[asked] = True
            st.rerun()
        return None
    outcome = run("linear_lens", tokens, slot="lens.fit", **request)
    st.session_state[asked] = False
    return None if outcome is None or outcome.stale else outcome.result


@st.fragment
def draw_fit(fit: LinearLens) -> None:
    """What the plain and the fitted lens are worth on text that the fit has not seen."""
    measure = segments("Worth", ("Loss", "KL"), key="worth", titled=False)
    if measure == "Loss":
        pair = (fit.linear_loss_nats, fit.plain_loss_nats)
        axis = Measure(
            "loss on the next token (nats)",
            reference=(fit.uniform_loss_nats, f"all tokens equal: {fit.uniform_loss_nats:.1f} nats"),
            range=(0, 2.2 * fit.uniform_loss_nats),
        )
    else:
        pair = (fit.linear_kl_nats, fit.plain_kl_nats)
        axis = Measure("KL from the final distribution (nats)", range=(0, 2.2 * fit.uniform_loss_nats))
    lines = [Line("linear lens", pair[0], CHANGE), Line("plain lens", pair[1], STREAM, dash="dot")]
    labels = depth_labels(len(pair[0]) - 1)
    show_figure(trajectory_figure(lines, labels, axis), key="lens.fit.figure", alt=f"{measure} by depth of both lenses")
    st.caption(fit_words(fit))
    with st.expander("The numbers: both lenses at every depth"):
        st.dataframe(fit.to_frame(), hide_index=True)


def fit_words(fit: LinearLens) -> str:
    """What was fitted on what, and what came out."""
    through = fit.plain_worse_than_uniform_through
    plain = (
        f"The plain lens is worse than guessing through depth {through}."
        if through >= 0
        else "The plain lens is better than guessing at every depth."
    )
    middle = len(fit.plain_kl_nats) // 2
    return (
        f"Fitted on {fit.n_fitted:,} tokens, measured on {fit.n_held_out:,} others of the same kind of text. {plain} "
        f"Half-way, at depth {middle}, KL is {fit.linear_kl_nats[middle]:.1f} instead of {fit.plain_kl_nats[middle]:.1f} nats. "
        "At the last depth both are the model itself."
    )
