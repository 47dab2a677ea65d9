"""The part of the page "Training" that follows the step: curves, two heads' maps, what the model says next."""

import numpy as np
import streamlit as st

from analyses.training_film import TrainingFilm
from analyses.training_log import load_training_log
from app.components.head_map import head_map
from app.figures.next_token import next_token_figure
from app.figures.training import curves_figure, heads_out_figure, loss_figure
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.token_text import percent, visible
from app.ui.words import literal, show_figure
from app.views.training_choices import (
    PLAY,
    TICK_SECONDS,
    Choices,
    Head,
    advance,
    can_go,
    choose_out,
    choose_step,
    is_playing,
    name_of,
)

NAME = "tiny-induction"
LOGS = (NAME, f"{NAME}-1-layer", f"{NAME}-second-seed")
NEXT = 8


def draw_now(frame: Frame, text: str) -> None:
    """Everything that changes with the step; while it plays, only this is drawn again."""
    st.fragment(_draw, run_every=TICK_SECONDS if is_playing() else None)(frame, text)


def _draw(frame: Frame, text: str) -> None:
    log, control, other = (load_training_log(name) for name in LOGS)
    if is_playing():
        advance(log)
    controls = st.columns([3, 1], vertical_alignment="bottom")
    with controls[0]:
        step = choose_step(log)
    with controls[1]:
        out = choose_out(log)
    choices = Choices(step, out, text)
    show_figure(
        curves_figure(log, control, other, step),
        key="training.curves",
        alt=f"Four curves over training time, step {step} marked",
    )
    st.caption(
        "The band is where the induction score rises from 5 % to 80 % of its final value. Purple marks the chosen step. "
        "The same windows and the same random tokens are measured at every step; scores of the one-layer model and of "
        f"seed {other.seed} are those of their own best heads."
    )
    film = _ask(frame, choices)
    if film is not None:
        at = film.steps.index(step)
        _draw_maps(film, at)
        _draw_next(film, at)
    _draw_heads_out(step, out)
    show_figure(loss_figure(log, control, step), key="training.loss", alt="Training loss and its slope")
    st.caption(
        "The training loss shows the change best, because a quarter of the training windows repeat a passage; the other "
        "curves use text that the model has not been trained on, and its tokens in a random order."
    )
    if is_playing() and step == log.checkpoints[-1]:
        st.session_state["training.ended"] = True
        st.rerun(scope="app")


def stop_at_the_end() -> None:
    """Before the play button is drawn: it goes off when the last step has been shown."""
    if st.session_state.pop("training.ended", False):
        st.session_state[PLAY] = False


def _ask(frame: Frame, choices: Choices) -> TrainingFilm | None:
    """The text at every step, asked for once: playing it asks the model nothing."""
    asked = (frame.model.config.fingerprint, choices.text, choices.out)
    kept, film = st.session_state.get("training.film", (None, None))
    if kept == asked:
        return film
    outcome = run(
        "training_film",
        (),
        slot="training.film",
        model=frame.model.config.fingerprint,
        text=choices.text,
        name=NAME,
        ablate=[list(head) for head in choices.out] or None,
        top_k=NEXT,
    )
    if outcome is None:
        return None
    if not outcome.stale:
        st.session_state["training.film"] = (asked, outcome.result)
    return outcome.result


def _draw_maps(film: TrainingFilm, at: int) -> None:
    st.subheader("Where two heads look, at this step")
    pictures = (
        (film.previous_head, film.previous_pattern[at], "looks one token back, once it has learnt to"),
        (film.induction_head, film.induction_pattern[at], "looks at what followed the same token before"),
    )
    for place, (name, pattern, words) in zip(st.columns(2), pictures, strict=True):
        with place:
            gone = " (taken out: it still looks, and adds nothing)" if name in film.ablated.split() else ""
            st.markdown(f"**{name}** {words}{gone}")
            head_map(
                pattern.astype(np.float32) / 255,
                film.pieces,
                name=name,
                selected=None,
                key=f"training.map.{name}",
                label=f"Attention of head {name} at step {film.steps[at]:,}",
            )


def _draw_next(film: TrainingFilm, at: int) -> None:
    st.subheader("What it says next", help="A B ... A: does the model continue with B, which followed A last time?")
    labels = [visible(piece) for piece in film.next_pieces[at]]
    target = next((row for row, i in enumerate(film.next_ids[at]) if int(i) == film.copied_id), None)
    show_figure(
        next_token_figure(labels, film.next_probability[at], ids=film.next_ids[at].tolist(), target=target),
        key="training.next",
        alt="Most probable next tokens of the small model",
    )
    last = literal(visible(film.pieces[-1]))
    gone = f" with {film.ablated.replace(' ', ' and ')} taken out" if film.ablated else ""
    if film.copied_from < 0:
        st.caption(f"The last token, {last}, has not come before in this text: there is nothing to copy.")
        return
    st.caption(
        f"The last token, {last}, has come before; {literal(visible(film.copied_piece))} (green, token "
        f"{film.copied_from}) followed it. At step {film.steps[at]:,}{gone} the model gives that "
        f"{percent(float(film.copied_probability[at]))}."
    )


def _draw_heads_out(step: int, out: tuple[Head, ...]) -> None:
    log = load_training_log(NAME)
    mark, names, chosen = log.mark_of(step), list(can_go(log)), name_of(out)
    losses, scores = log.ablated_second_copy_loss_nats[mark].ravel(), log.ablated_induction[mark].ravel()
    if len(names) > len(losses):
        losses = np.append(losses, log.together_second_copy_loss_nats[mark])
    first, second = float(log.first_copy_loss_nats[mark]), float(log.second_copy_loss_nats[mark])
    st.subheader("Heads taken out, at this step", help="127 random tokens, given twice; the loss on the second copy.")
    show_figure(
        heads_out_figure(names, losses, first=first, second=second, chosen=chosen),
        key="training.out",
        alt="Loss on the second copy with heads taken out",
    )
    if out:
        at = names.index(chosen)
        before = float(log.induction[mark, *log.induction_head])
        looks = (
            f"; the induction score of {name_of([log.induction_head])} is {float(scores[at]):.2f} instead of {before:.2f}"
            if at < len(scores)
            else ""
        )
        st.caption(
            f"Without {chosen} the second copy costs {float(losses[at]):.2f} nats per token instead of {second:.2f}{looks}."
        )
