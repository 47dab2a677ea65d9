"""What steering does at once: the next token beside the baseline's, then what it costs, against a random vector."""

from typing import Any

import numpy as np
import streamlit as st
from jaxtyping import Float32, Float64, Int32

from analyses.next_token import NextToken
from analyses.sampling import log_softmax
from analyses.steering import Steering
from analyses.steering_damage import SteeringDamage
from app.figures.steering import predictions_figure, projection_figure
from app.ui.controls import run_when_asked
from app.ui.frame import Frame
from app.ui.run import Outcome, run, seconds_of
from app.ui.token_text import visible
from app.ui.words import literal, say_note, show_figure, show_table
from app.views.next_token import labels_of
from app.views.steering_choices import Setting
from app.views.steering_prompt import Text
from app.views.steering_vectors import Chosen
from app.views.steering_words import cost_table, size_words

LISTED = 8
AT_ONCE_SECONDS = 20.0  # longer measurements wait for a button
UPPERS = (0.1, 0.25, 0.5, 1.0)  # where the probability axis may end


def ask_now(frame: Frame, chosen: Chosen, setting: Setting, text: Text) -> tuple[NextToken, Steering] | None:
    """The plain model's prediction and the steered one: one forward pass, when a slider has been moved."""
    fingerprint = frame.model.config.fingerprint
    plain = run("next_token", text.ids, slot="steer.plain", model=fingerprint, top_k=LISTED)
    if plain is None or plain.stale:
        return None
    steered = run("steering", text.ids, slot="steer.now", model=fingerprint, compare=False, **_how(chosen, setting))
    return None if steered is None or steered.stale else (plain.result, steered.result)


def draw_now(frame: Frame, setting: Setting, text: Text, plain: NextToken, steered: Steering) -> None:
    """Both predictions on one scale."""
    # Both from the logits, by the same sum: where nothing is added the two are equal bit for bit.
    ids = steered.top_ids[0]
    tops = [(plain.ids, _shares(plain.logits, plain.ids)), (ids, _shares(steered.logits[0], ids))]
    largest = max(float(probability.max()) for _, probability in tops)
    upper = next(upper for upper in UPPERS if largest <= upper or upper == UPPERS[-1])
    before = _shares(plain.logits, ids)
    names = ("baseline", "steered")
    whose = "yours" if text.own else "the example's; choose yours in More"
    st.markdown(f"After {literal(_end_of(text))} ({whose}):")
    for place, name, (listed, probability) in zip(st.columns(2), names, tops, strict=True):
        with place:
            heading = "**Baseline**" if name == "baseline" else f"**Steered**: {literal(setting.in_words)}"
            st.markdown(heading)
            figure = predictions_figure(
                labels_of(frame.model, listed),
                probability,
                run=name,
                ids=listed.tolist(),
                targets=setting.targets,
                against=setting.against,
                before=before if name == "steered" else None,
                upper=upper,
            )
            show_figure(figure, key=f"steer.top.{name}", alt=f"Most probable next tokens, {name}")
    drawn = {*plain.ids.tolist(), *ids.tolist()}
    colours = [
        f"{colour}: {name}"
        for colour, name, words in (
            ("Green", "target words", setting.targets),
            ("Pink", "the words they are compared with", setting.against),
        )
        if drawn & set(words)
    ]
    st.caption(" ".join([size_words(setting, steered, len(text.ids)), *(f"{each}." for each in colours)]))


def draw_hint(frame: Frame, chosen: Chosen) -> None:
    """What to look for in a ready example, and what was measured; that is about the embedded model alone."""
    example = chosen.example
    if example is None:
        return
    if frame.model.config.kind != "embedded":
        say_note(
            "The examples were chosen on the embedded model. Here the same texts are read at the same share of the depth."
        )
        return
    low, high = example.working
    st.caption(
        f"**Look for:** {literal(example.look_for)} On average over {len(example.prompts)} prompts, at {example.coefficient:g} "
        f"the targets' log-odds rise by {example.effect_nats:.1f} nats; from {low:g} to {high:g} it has an effect and the text "
        "that it writes stays whole."
    )


def _shares(logits: Float32[np.ndarray, " d_vocab"], ids: Int32[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    """Probabilities of some tokens."""
    return np.exp(log_softmax(logits)[ids])


def ask_costs(frame: Frame, chosen: Chosen, setting: Setting, text: Text) -> tuple[Steering, SteeringDamage] | None:
    """The comparison with a random vector, and the damage on neutral text."""
    fingerprint = frame.model.config.fingerprint
    params = {"vector": chosen.vector.wire, **setting.place, "seed": setting.seed}
    damage = _at_once_or_asked(frame, params)
    if damage is None or damage.stale:
        return None
    how = _how(chosen, setting)
    compared = run("steering", text.ids, slot="steer.compare", model=fingerprint, seed=setting.seed, **how)
    return None if compared is None or compared.stale else (compared.result, damage.result)


def draw_costs(frame: Frame, setting: Setting, steering: Steering, damage: SteeringDamage) -> None:
    """The table of effect and damage."""
    st.header(
        "What it costs",
        help="Damage is what the vector does to eight plain sentences that have nothing to do with it: KL says how far the "
        "predictions move, the loss how much more surprised the model is, both in nats per token. A random vector of the same "
        "size says how much of it is the size's doing. Every token of these sentences from 1 on is steered, whatever is chosen "
        "for the prompt.",
    )
    show_table(cost_table(steering, damage, setting.mode))
    targets, against = (_tokens(frame, ids) for ids in (setting.targets, setting.against))
    if setting.targets:
        say_note(
            f"Log-odds: the targets' total probability against that of {against or 'all other tokens'}, as a logarithm. "
            f"Targets: {targets}. Your own words go into More."
        )
    else:
        say_note('No target words: write some into "More" to measure what the vector should make likelier.')


def draw_projection(setting: Setting, steering: Steering) -> None:
    """How far the last token's stream follows the vector, depth by depth."""
    st.header(
        "How far does the stream follow?",
        help="The part of the last token's stream that lies along the vector, at every depth, in mean lengths of the stream "
        "there. Later layers may pass on what was added, write against it, or drown it.",
    )
    figure = projection_figure(
        steering.projection,
        steering.reference_norms,
        runs=steering.runs,
        layers=steering.layers if setting.amount else (),
    )
    show_figure(figure, key="steer.projection", alt="Stream along the vector by depth: baseline, steered, random")


def _how(chosen: Chosen, setting: Setting) -> dict[str, Any]:
    """Keywords of the analysis "steering"."""
    return {"vector": chosen.vector.wire, **setting.place, "where": setting.where, **setting.words, "top_k": LISTED}


def _at_once_or_asked(frame: Frame, params: dict[str, Any]) -> Outcome | None:
    same = {"slot": "steer.damage", "model": frame.model.config.fingerprint, **params}
    if (
        seconds_of("steering_damage", (), **{key: value for key, value in same.items() if key != "slot"})
        <= AT_ONCE_SECONDS
    ):
        return run("steering_damage", (), **same)
    return run_when_asked(
        "steering_damage",
        (),
        button="Measure",
        words="Eight neutral sentences are read plain, steered, and at random.",
        **same,
    )


def _end_of(text: Text) -> str:
    """The last words of a prompt."""
    pieces = text.tokens.pieces[-8:]
    start = "…" if len(text.ids) > len(pieces) else ""
    return start + "".join(visible(piece) for piece in pieces)


def _tokens(frame: Frame, ids: tuple[int, ...]) -> str:
    shown = ", ".join(visible(frame.model.vocabulary.piece(i)) for i in ids[:12])
    return f"{shown} and {len(ids) - 12} more" if len(ids) > 12 else shown
