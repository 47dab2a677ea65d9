"""The pictures of the page "Layer deletion", top to bottom."""

from typing import Any

import numpy as np
import streamlit as st

from app.components.finding import finding
from app.components.layer_stack import layer_stack
from app.figures.next_token import next_token_figure
from app.ui.controls import segments
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.views.deletion_choices import OWN_TEXT, Deletion, show_text, write_off
from app.views.deletion_now import (
    ask,
    draw_continuation,
    draw_distance,
    draw_lenses,
    draw_numbers,
    draw_predictions,
    finding_words,
)
from app.views.deletion_sweeps import DRAWN, SWEEPS, sweep_words
from app.views.next_token import labels_of


def draw_page(frame: Frame, deletion: Deletion, answer: Any) -> None:
    """Ask for the numbers and draw them; `answer` is where the finding goes."""
    n_layers = frame.model.config.n_layers
    show_text(deletion)
    stack, now = st.columns([1, 2.2])
    with stack:
        clicked = layer_stack(
            n_layers,
            deletion.off,
            key="cut.stack",
            label="Layers; a pressed part is in the sum, one that is not is left out",
        )
        st.caption("Layer 0 is where the stream begins. A layer's number takes out both its parts.")
        if deletion.off and st.button("Put all back", key="cut.restore"):
            clicked = frozenset()
    if clicked != deletion.off:
        st.session_state["cut.clicked"] = write_off(clicked)
        st.rerun()
    with now:
        whole, cut = ask(frame, deletion)
        if whole is None or cut is None or whole.stale or cut.stale:
            return
        with answer:
            sentence = st.empty()
        said = finding_words(deletion, n_layers, whole.result, cut.result)
        with sentence:
            finding(said, key="finding")
        draw_numbers(whole.result, cut.result)
        draw_predictions(frame, deletion, whole.result, cut.result)
        draw_distance(frame, deletion)
    st.header("Every layer in turn")
    sweep = segments("Sweep", SWEEPS, key="sweep", titled=False)
    found = None
    if len(deletion.ids) > 1:
        found = DRAWN[sweep](frame, deletion)
    else:
        st.caption("A sweep measures the loss, which needs at least two tokens.")
    if found is not None:
        with sentence:
            finding([*said, sweep_words(found)], key="finding.sweep")
    st.header("What it writes", help="Greedy continuation: always the most probable token.")
    draw_continuation(frame, deletion)
    st.header("Where it goes wrong", help="The logit lens of both runs: each depth read as if it were the last.")
    draw_lenses(frame, deletion)
    result = cut.result
    labels, probability = labels_of(frame.model, result.top_ids[0]), np.exp(result.top_log_probability[0])
    take_with_you(
        frame,
        tables={"deletion": result.to_frame(), **({"sweep": found.to_frame()} if found is not None else {})},
        figures={"damaged": lambda: next_token_figure(labels, probability)},
        code=python_code(frame, "run_layer_deletion, run_layer_sweep, run_generation", code_lines(deletion, frame.bos)),
    )


def code_lines(deletion: Deletion, bos: str) -> str:
    """Python that gives the numbers of the page; uses `model` and `text`."""
    first = ""
    if deletion.text != OWN_TEXT:
        first = (
            "from analyses.passages import PASSAGES\n\n"
            f"text = run_tokenization(model, PASSAGES[{deletion.text!r}], bos={bos!r}, plain=True)\n"
        )
    return (
        f"{first}cut = run_layer_deletion(model, text.ids, deleted=[{deletion.variant!r}])\n"
        "sweep = run_layer_sweep(model, text.ids)\n"
        f"writes = run_generation(model, text.ids, interventions=[{{'delete': {deletion.variant!r}}}])\n"
        "print(cut.baseline_loss_nats, cut.to_frame(), sweep.to_frame(), writes.text, sep='\\n')"
    )
