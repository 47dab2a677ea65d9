"""The pictures of the page "Attention", top to bottom."""

from typing import Any

import streamlit as st

from analyses.head_scores import HeadScores
from app.components.finding import finding
from app.figures.attention import row_figure
from app.ui.controls import segments
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.token_text import visible
from app.ui.words import say_note
from app.views.attention_changes import draw_changed_steps, draw_positions
from app.views.attention_check import (
    CHECKS,
    choose_silenced,
    draw_every_head,
    draw_silencing,
    draw_story,
)
from app.views.attention_choices import SCORES, Choices, choose_head, open_head
from app.views.attention_head import draw_head, name_of
from app.views.attention_sheet import draw_layer, draw_sheet, draw_table, layer_words, sheet_words, strongest


def draw_page(frame: Frame, choices: Choices, answer: Any) -> None:
    """Ask for the numbers and draw them; `answer` is where the finding goes."""
    ids, config = frame.tokens.ids, frame.model.config
    fingerprint = config.fingerprint
    on_prompt = choices.on == "prompt" and len(ids) > 1
    scores = run(
        "head_scores",
        ids if on_prompt else (),  # the same request for everybody, so it is computed once
        slot="attention.scores",
        model=fingerprint,
        on="prompt" if on_prompt else "random",
    )
    maps = run("attention", ids, slot="attention.maps", model=fingerprint)
    if scores is None or maps is None:
        return
    if maps.stale or scores.stale:
        return
    if choices.on == "prompt" and not on_prompt:
        say_note("One token has nothing to look back at; the scores are those on random tokens.")
    with answer:
        finding([sheet_words(scores.result, choices.score)], key="finding")
    best = strongest(getattr(scores.result, choices.score))
    above, below = st.container(), st.container()
    with below:  # first: the fields know the chosen head, which the sheet marks
        st.header("One head", help="Each row is a token; what stands in it says where this token looks.")
        selected, position = choose_head(frame.model, best, len(ids))
    with above:
        clicked = draw_sheet(maps.result, scores.result, choices, selected=selected, ticked=choose_silenced(frame))
        st.caption(
            f"Blue: attention on your prompt. Grey: the score, {SCORES[choices.score]}, measured on "
            f"{'your prompt' if scores.result.on == 'prompt' else 'random tokens'}. L{selected[0]}H{selected[1]} is open below. "
            + layer_words(maps.result, config.n_heads)
        )
        draw_table(scores.result)
    if clicked is not None and clicked != selected:
        open_head(clicked)
    with below:
        _draw_opened(frame, choices, selected, position, scores.result, maps.result.block)


def _draw_opened(
    frame: Frame, choices: Choices, opened_head: tuple[int, int], position: int, scores: HeadScores, block: int
) -> None:
    ids, fingerprint = frame.tokens.ids, frame.model.config.fingerprint
    layer, head = opened_head
    values = {
        name: float(array[layer, head])
        for field, name in SCORES.items()
        if (array := getattr(scores, field)) is not None
    }
    st.caption(
        f"**L{layer}H{head}**: "
        + ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        + (f", push {scores.push[layer, head]:+.2f} logits" if scores.push is not None else ""),
        help="0 to 1, shares of attention; entropy as a share of the largest possible. Push: what the head itself writes "
        "towards the token that induction would predict; below zero it writes against it.",
    )
    opened = run("attention", ids, slot="attention.head", model=fingerprint, layers=(), layer=layer, head=head)
    if opened is None or opened.stale:
        return
    draw_head(frame, opened.result, position, hide_first=choices.hide_first)
    if block > 1:
        draw_layer(frame, layer, head, hide_first=choices.hide_first)
    st.header("Does it matter?", help="Where a head looks is not what it does. Leave it out and measure.")
    check = segments("Check", CHECKS, key="check", titled=False)
    if check == CHECKS[0]:
        draw_silencing(frame, scores, (layer, head))
    elif check == CHECKS[1]:
        draw_every_head(frame)
    elif check == CHECKS[2]:
        draw_story(frame, scores)
    elif check == CHECKS[3]:
        draw_changed_steps(frame)
    else:
        draw_positions(frame, (layer, head))
    one = opened.result
    labels = [visible(piece) for piece in frame.tokens.pieces[: position + 1]]
    row = one.exact[position, : position + 1]
    take_with_you(
        frame,
        tables={"scores": scores.to_frame(), name_of(one): lambda: one.to_frame()},
        figures={"row": lambda: row_figure(labels, row, row)},
        code=python_code(
            frame,
            "run_attention, run_head_scores, run_head_check",
            f"maps = run_attention(model, text.ids, layer={layer}, head={head})\n"
            f"scores = run_head_scores(model, {'text.ids, on=' + repr('prompt') if scores.on == 'prompt' else 'seed=0'})\n"
            f"check = run_head_check(model, text.ids, heads=[{name_of(one)!r}])\n"
            "print(maps.to_frame(), scores.to_frame(), check.to_frame(), sep='\\n')",
        ),
    )
