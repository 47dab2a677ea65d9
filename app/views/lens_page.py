"""The pictures of the page "Logit lens", top to bottom."""

from dataclasses import replace
from typing import Any

import streamlit as st

from analyses.logit_lens import LogitLens
from app.components.finding import finding
from app.components.lens_grid import lens_grid, standalone_html
from app.figures.attribution import attribution_figure
from app.figures.by_layer import depth_labels
from app.figures.logit_lens import measures, trajectory_figure
from app.figures.residual_stream import cosine_figure, norm_figure
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.ui.parts import wait_for_more
from app.ui.run import Outcome, later, run
from app.ui.token_text import visible
from app.views.attribution import draw_attribution
from app.views.lens_choices import LENSES, Choices, pin, rows_drawn
from app.views.lens_columns import adds_columns
from app.views.lens_finding import target_words, worse_than_guessing
from app.views.lens_picture import grid_picture
from app.views.lens_request import GRID_SLOT, ask_grid, ask_one, code_lines, grid_params
from app.views.linear_lens import draw_fit, fitted
from app.views.residual_stream import draw_residual_stream
from app.views.trajectory import draw_trajectory, trajectory_lines

GRID_LABEL = "Most probable token at every depth and position"


def draw_page(frame: Frame, choices: Choices, answer: Any) -> None:
    """Ask for the numbers and draw them; `answer` is where the finding goes."""
    fit = fitted(frame, choices) if choices.lens == LENSES[1] else None
    name = "plain" if fit is None else fit.name
    params = grid_params(choices, len(frame.tokens.ids), name)
    outcome = ask_grid(frame, params)
    if outcome is None and (choices.target or choices.distractor):  # said above; the model's own answer is still true
        choices = replace(choices, target="", distractor="")
        params = grid_params(choices, len(frame.tokens.ids), name)
        outcome = ask_grid(frame, params)
    if outcome is None:
        return
    draw_grid(frame, choices, outcome)
    if outcome.stale:
        return
    if not outcome.finished:
        wait_for_more(GRID_SLOT, is_news=lambda part: adds_columns(part, outcome.result))
    one = ask_one(frame, choices, name)
    plain = ask_one(frame, choices, "plain") if fit is not None else None
    if one is None or one.stale:
        return
    lens: LogitLens = one.result
    target_id = int(lens.target_ids[0])
    pieces = (frame.tokens.pieces[choices.position], frame.model.vocabulary.piece(target_id))
    with answer:
        finding(
            [
                *target_words(lens, 0, pieces),  # exact, also where the grid is read fast
                *worse_than_guessing(outcome.result, frame.model.config.d_vocab),
            ],
            key="finding",
        )
    st.header("The target over depth", help="The chosen token of the vocabulary after the pinned token of the prompt.")
    draw_trajectory(frame.model, lens, plain.result if plain is not None else None, choices.depth)
    if fit is not None:
        st.header("What the two lenses are worth", help="Measured on text that was not used for fitting.")
        draw_fit(fit)
    draw_writers(frame, choices, lens, params, name)


def draw_grid(frame: Frame, choices: Choices, outcome: Outcome) -> None:
    """The grid with the chosen cell marked; a click chooses another."""
    lens: LogitLens = outcome.result
    rows = rows_drawn(lens.n_depths, choices.stride)
    column = lens.positions.tolist().index(choices.position) if choices.position in lens.positions else None
    row = min(range(len(rows)), key=lambda at: abs(rows[at] - choices.depth))
    clicked = lens_grid(
        grid_picture(frame.model, outcome.tokens, lens, choices.colour, choices.stride, GRID_LABEL),
        selected=None if column is None else (row, column),
        key="lens.cells",
    )
    later = "one layer" if choices.stride == 1 else f"{choices.stride} layers"
    quality = (
        ""
        if lens.exact
        else (
            " Read fast (bfloat16, the top tokens again in float32): probabilities within 5 %, rank, entropy and KL "
            'approximate, the last row exact; "More" has exact numbers.'
        )
    )
    st.caption(
        f"Each row stops the model {later} later. The column at a token reads what comes after it. A frame marks cells "
        f"whose first token is the target. Click a cell to pin it.{quality}"
    )
    if clicked is not None and clicked != (row, column):
        pin(int(lens.positions[clicked[1]]), rows[clicked[0]])


def draw_writers(frame: Frame, choices: Choices, lens: LogitLens, params: dict[str, Any], name: str) -> None:
    """Attribution, the stream's size, and what a person can take along."""
    model, ids = frame.model, frame.tokens.ids
    fingerprint = model.config.fingerprint
    distractor = None if lens.distractor_ids is None else int(lens.distractor_ids[0])
    st.header("Who wrote it", help="The logit is a sum: every attention, MLP and head adds its part.")
    target = {"target": int(lens.target_ids[0]), "distractor": distractor, "position": choices.position}
    who = run("attribution", ids, slot="lens.who", model=fingerprint, **target)
    if who is not None and not who.stale:
        draw_attribution(model, who.result)
    st.header(
        "How large the stream is", help="L2 norm of the residual stream, and the cosine before and after each block."
    )
    stream = run("residual_stream", ids, slot="lens.stream", model=fingerprint)
    if stream is not None and not stream.stale:
        draw_residual_stream(stream.result, model.config.n_layers, choices.position)
    if who is None or who.stale or stream is None or stream.stale:
        return
    exact = later("logit_lens", ids, slot="lens.export", model=fingerprint, **{**params, "exact": True})
    labels = depth_labels(model.config.n_layers)
    shown = visible(model.vocabulary.piece(int(lens.target_ids[0])))
    other = "" if distractor is None else visible(model.vocabulary.piece(distractor))

    def page_of_grid() -> str:
        return standalone_html(grid_picture(model, ids, exact(), choices.colour, choices.stride, GRID_LABEL))

    take_with_you(
        frame,
        tables={
            "lens": lambda: exact().to_frame(model.vocabulary),
            "writers": who.result.to_frame(),
            "stream": stream.result.to_frame(),
        },
        figures={
            "lens": page_of_grid,
            "target": lambda: trajectory_figure(
                trajectory_lines(lens, "Probability", shown, other),
                labels,
                measures(model.config.d_vocab)["Probability"],
            ),
            "writers": lambda: attribution_figure(who.result),
            "norms": lambda: norm_figure(stream.result, labels, choices.position),
            "cosines": lambda: cosine_figure(stream.result, choices.position),
        },
        code=python_code(
            frame,
            "run_logit_lens, run_attribution, run_residual_stream" + ("" if name == "plain" else ", run_linear_lens"),
            code_lines(choices, params, name),
        ),
    )
