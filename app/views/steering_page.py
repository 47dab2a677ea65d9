"""The page "Steering", top to bottom."""

from typing import Any

import streamlit as st

from app.components.finding import finding
from app.figures.steering import projection_figure
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.ui.stream import Stream
from app.views.steering_about import draw_vector
from app.views.steering_choices import Setting, choose
from app.views.steering_make import draw_making
from app.views.steering_now import ask_costs, ask_now, draw_costs, draw_hint, draw_now, draw_projection
from app.views.steering_prompt import Text
from app.views.steering_sweep import draw_sweep, figure_of, take_cell
from app.views.steering_vectors import Chosen, find_vector
from app.views.steering_words import code_lines, finding_words
from app.views.steering_write import draw_writing


def draw_page(frame: Frame, answer: Any) -> None:
    """Controls, pictures and files; `answer` is where the finding goes."""
    with answer:
        sentence = st.empty()
    if reason := frame.model.missing(("resid_writable", "readout")):
        with sentence:
            finding([f"This model's stream cannot be steered. {reason}"], key="finding")
        return
    take_cell()
    name, setting, text = choose(frame)
    chosen = find_vector(frame.model, name)
    draw_making(frame, chosen)
    if chosen is None or text is None:
        with sentence:
            finding(["Nothing is steered: see below."], key="finding")
        return
    if not text.ids:
        with sentence:
            finding(["An empty prompt has nothing to steer. Write one on the left."], key="finding")
        return
    now = ask_now(frame, chosen, setting, text)
    if now is None:
        with sentence:
            finding(["Nothing is steered: see below."], key="finding")
        return
    draw_now(frame, setting, text, *now)
    draw_hint(frame, chosen)
    _draw_measured(frame, chosen, setting, text, sentence)


def _draw_measured(frame: Frame, chosen: Chosen, setting: Setting, text: Text, sentence: Any) -> None:
    """What takes more than one forward pass."""
    costs = ask_costs(frame, chosen, setting, text)
    if costs is None:
        with sentence:
            finding(["The next token is shown; what steering costs has not been measured."], key="finding")
        return
    with sentence:
        finding([finding_words(setting, *costs)], key="finding")
    draw_costs(frame, setting, *costs)
    stream = draw_writing(frame, chosen, setting, text)
    sweep = draw_sweep(frame, chosen, setting, text)
    draw_vector(frame, chosen, *costs, setting.seed)
    draw_projection(setting, costs[0])
    _draw_export(frame, chosen, setting, text, (*costs, stream, sweep))


def _draw_export(frame: Frame, chosen: Chosen, setting: Setting, text: Text, found: tuple[Any, ...]) -> None:
    steering, damage, stream, sweep = found
    tables = {"steering": steering.to_frame(), "damage": damage.to_frame()}
    figures: dict[str, Any] = {
        "along-the-vector": lambda: projection_figure(
            steering.projection, steering.reference_norms, runs=steering.runs, layers=steering.layers
        )
    }
    if chosen.contrast is not None and len(chosen.contrast.positive):
        tables["texts"] = chosen.contrast.to_frame()
    if sweep is not None:
        tables["sweep"] = sweep.to_frame()
        figures["sweep"] = lambda: figure_of(sweep, setting)
    if isinstance(stream, Stream) and stream.result is not None:
        tables["written"] = stream.result.to_frame(frame.model.vocabulary)
    imports = "run_steering, run_steering_damage, run_generation, "
    imports += "load_vector" if chosen.recipe is None else "make_steering_vector"
    code = code_lines(chosen, setting, None if text.own else text.prompt, frame.bos)
    take_with_you(frame, tables=tables, figures=figures, code=python_code(frame, imports, code))
