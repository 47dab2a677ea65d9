"""Leave heads out and measure: the causal check, all heads in turn, changed steps, and what positions do."""

import numpy as np
import streamlit as st

from analyses.head_check import HeadCheck
from analyses.head_scores import HeadScores
from app.figures.attention import check_figure, heads_heatmap
from app.figures.next_token import next_token_figure
from app.ui.controls import run_when_asked, segments
from app.ui.frame import Frame
from app.ui.token_text import visible
from app.ui.words import literal, say_error, show_figure
from app.views.attention_choices import read_heads, write_heads
from app.views.next_token import labels_of

DRAWS = 4
MOST_HEADS = 40
HOW = ("zero", "mean")
CHECKS = ("Leave heads out", "Every head in turn", "Who feeds whom", "Change a step", "Order and distance")


def choose_silenced(frame: Frame) -> tuple[tuple[int, int], ...]:
    """The heads that are left out, as written in the field; drawn where the check is."""
    config = frame.model.config
    if "attention.silence" in st.session_state:
        st.session_state["silenced"] = st.session_state.pop("attention.silence")
    try:
        return read_heads(st.session_state.get("silenced") or "", config.n_layers, config.n_heads)[:MOST_HEADS]
    except ValueError:
        return ()


def draw_silencing(frame: Frame, scores: HeadScores, opened: tuple[int, int]) -> HeadCheck | None:
    """Tick heads, measure, compare with random heads."""
    config = frame.model.config
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            "Heads to leave out",
            key="silenced",
            bind="query-params",
            placeholder="L18H6, L17H3",
            help="What they hand to the output matrix is replaced.",
        )
        choices = {f"Add L{opened[0]}H{opened[1]}": _with(frame, text, opened)}
        if scores.induction is not None:
            choices["Top 4 induction"] = ", ".join(scores.top("induction", 4))
        choices["Top previous-token"] = ", ".join(scores.top("previous_token", 1))
        for label, heads in choices.items():
            if st.button(label, key=f"attention.preset.{label.split()[0]}.{label.split()[1][:4]}"):
                st.session_state["attention.silence"] = heads
                st.rerun()
    how = segments(
        "Their output becomes",
        HOW,
        key="how",
        help="Zero, or each head's mean output over repeated random tokens, which disturbs later layers less.",
    )
    try:
        heads = read_heads(text, config.n_layers, config.n_heads)
    except ValueError as error:
        say_error(str(error))
        return None
    if not heads:
        st.caption("Write heads, or press a button, and then Measure what the model loses without them.")
        return None
    outcome = run_when_asked(
        "head_check",
        frame.tokens.ids,
        slot="attention.check",
        model=frame.model.config.fingerprint,
        button="Measure",
        words=f"{len(heads)} head{'' if len(heads) == 1 else 's'} left out, against {DRAWS} draws of as many random heads of the "
        "same layers.",
        heads=[f"L{layer}H{head}" for layer, head in heads],
        how=how,
        draws=DRAWS,
    )
    if outcome is None or outcome.stale:
        return None
    _draw_check(frame, outcome.result)
    return outcome.result


def _with(frame: Frame, text: str, pair: tuple[int, int]) -> str:
    config = frame.model.config
    try:
        heads = read_heads(text, config.n_layers, config.n_heads)
    except ValueError:
        heads = ()
    return write_heads(heads if pair in heads else (*heads, pair))


def _draw_check(frame: Frame, check: HeadCheck) -> None:
    st.caption(check_words(check))
    left, right = st.columns(2)
    with left:
        st.markdown("**Repeated random tokens, second copy**")
        show_figure(check_figure(check, "second copy"), key="attention.check.random", alt="Loss on the second copy")
    with right:
        if check.baseline_prompt is not None:
            st.markdown("**Your prompt**")
            show_figure(check_figure(check, "prompt"), key="attention.check.prompt", alt="Loss on the prompt")
    for place, name, ids, log_probability in (
        (left, "Before", check.baseline_top_ids, check.baseline_top_log_probability),
        (right, "Without them", check.top_ids, check.top_log_probability),
    ):
        with place:
            st.markdown(f"**{name}: what comes next**")
            figure = next_token_figure(labels_of(frame.model, ids), np.exp(log_probability), ids=ids.tolist())
            show_figure(figure, key=f"attention.check.top.{name}", alt=f"{name}: most probable next tokens")
    if check.controls_reason:
        st.caption(literal(check.controls_reason))
    with st.expander("The numbers: every draw"):
        st.dataframe(check.to_frame(), hide_index=True)


def check_words(check: HeadCheck) -> str:
    """What the check found, with its controls."""
    rise = check.second_copy - check.baseline_second_copy
    who = "this head" if len(check.heads) == 1 else f"these {len(check.heads)} heads"
    said = (
        f"Without {who} the loss on the second copy of repeated random tokens goes from {check.baseline_second_copy:.2f} to "
        f"{check.second_copy:.2f} nats ({rise:+.2f})."
    )
    if len(check.control_second_copy):
        controls = check.control_second_copy - check.baseline_second_copy
        said += f" Random heads of the same layers: {controls.min():+.2f} to {controls.max():+.2f}."
    if check.prompt is not None and check.baseline_prompt is not None:
        said += f" On your prompt: {check.prompt - check.baseline_prompt:+.2f}."
    return said


def draw_story(frame: Frame, scores: HeadScores) -> None:
    """A previous-token head feeds the induction heads: leave out one of each, alone, and compare."""
    if scores.induction is None:
        st.caption(f"Induction is not defined here: {literal(scores.induction_reason)}. Measure on random tokens.")
        return
    pair = (*scores.top("previous_token", 1), *scores.top("induction", 1))
    st.write(
        "An induction head looks for the token after an earlier copy of the present one. It can only find it because an "
        "earlier layer has written into each token which one came before it: a previous-token head (Olsson et al. 2022). Several "
        "heads may share either job. If the strongest previous-token head does feed the induction heads, leaving it out "
        "alone must cost much on the second copy, though it copies nothing itself."
    )
    found = []
    for head in pair:
        outcome = run_when_asked(
            "head_check",
            frame.tokens.ids,
            slot="attention.story." + ("before" if head == pair[0] else "after"),
            model=frame.model.config.fingerprint,
            button=f"Leave out {head}",
            words=f"{head} alone is left out, the strongest {'previous-token' if head == pair[0] else 'induction'} head, "
            f"against {DRAWS} other heads of its layer.",
            heads=[head],
            draws=DRAWS,
        )
        if outcome is not None and not outcome.stale:
            st.caption(f"**{head}**: {check_words(outcome.result)}")
            found.append(outcome.result)
    if len(found) == len(pair):
        before, after = (check.second_copy - check.baseline_second_copy for check in found)
        more = "more" if before > after else "less"
        layers = [int(head[1:].split("H")[0]) for head in pair]
        order = "" if layers[0] < layers[1] else " It stands in a later layer, so it cannot feed that one."
        st.markdown(
            f"Leaving out {pair[0]} costs {before:+.2f} nats on the second copy, {more} than leaving out {pair[1]} "
            f"({after:+.2f}).{order}"
        )


def draw_every_head(frame: Frame) -> None:
    """Layers x heads: what each head alone is worth on the prompt."""
    ids = frame.tokens.ids
    config = frame.model.config
    outcome = run_when_asked(
        "head_ablation",
        ids,
        slot="attention.sweep",
        model=frame.model.config.fingerprint,
        button="Try every head",
        words=f"Each of the {config.n_layers * config.n_heads} heads is left out alone, on your prompt.",
        positions="all" if len(ids) > 1 else "last",
    )
    if outcome is None or outcome.stale:
        return
    result = outcome.result
    left, right = st.columns(2)
    target = literal(visible(frame.model.vocabulary.piece(result.target_id)))
    if result.loss_change_nats is not None:
        with left:
            st.markdown("**Change of the loss**")
            upper = max(float(np.abs(result.loss_change_nats).max()), 1e-6)
            figure = heads_heatmap(result.loss_change_nats, title="nats per token", upper=upper)
            show_figure(figure, key="attention.sweep.loss", alt="Change of the loss without each head; numbers below")
    with right:
        st.markdown(f"**Change of the logit of {target}**")
        upper = max(float(np.abs(result.logit_change).max()), 1e-6)
        figure = heads_heatmap(result.logit_change, title="logits", upper=upper)
        show_figure(
            figure, key="attention.sweep.logit", alt="Change of the target's logit without each head; numbers below"
        )
    st.caption("White is exactly no change. The range is that of the strongest head, printed on the bar.")
    with st.expander("The numbers: every head"):
        st.dataframe(result.to_frame(), hide_index=True)
