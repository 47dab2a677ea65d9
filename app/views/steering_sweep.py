"""Effect and damage for every layer and coefficient; a clicked cell goes to the sliders."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from analyses.steering_sweep import BREAKS_NATS, TEXTS, SteeringSweep
from app.figures.steering import sweep_figure
from app.figures.theme import text_colour
from app.ui.controls import run_when_asked
from app.ui.frame import Frame
from app.views.steering_choices import Setting, put
from app.views.steering_prompt import Text
from app.views.steering_vectors import Chosen
from app.views.steering_words import HARM_NATS, range_words, working_columns

COEFFICIENTS = (-0.6, -0.45, -0.3, -0.15, 0.0, 0.15, 0.3, 0.45, 0.6, 1.0)
EFFECT_NATS, EFFECT_LENGTHS = 8.0, 1.0  # where the colour of the effect ends
CELL, _COUNT = "steer.cell", "steer.cells"


def take_cell() -> None:
    """Put a clicked cell into the sliders; before these are drawn."""
    if CELL not in st.session_state:
        return
    layer, coefficient = st.session_state.pop(CELL)
    put("steer_layer", layer)
    put("coefficient", coefficient)
    st.session_state["steer_last"] = None
    if abs(coefficient) > -COEFFICIENTS[0]:
        st.session_state["beyond"] = True


def draw_sweep(frame: Frame, chosen: Chosen, setting: Setting, text: Text) -> SteeringSweep | None:
    """The two heat maps, once they are asked for."""
    st.header(
        "Where does it work, and where does it break?",
        help="The vector is added at one layer with one coefficient at a time. Effect: how much the log-odds of the targets "
        "rise at the end of the prompt. Damage: how much the loss on neutral sentences rises.",
    )
    if setting.mode != "add":
        st.caption("The sweep adds the vector: choose that in More.")
        return None
    outcome = run_when_asked(
        "steering_sweep",
        text.ids,
        slot="steer.sweep",
        model=frame.model.config.fingerprint,
        button="Sweep",
        words=f"About ten layers with {len(COEFFICIENTS)} coefficients each, and a row along a random direction.",
        vector=chosen.vector.wire,
        coefficients=list(COEFFICIENTS),
        where=setting.where,
        seed=setting.seed,
        **setting.words,
    )
    if outcome is None or outcome.stale:
        return None
    sweep: SteeringSweep = outcome.result
    in_nats = sweep.unit.startswith("log-odds")
    effect, damage = st.columns(2)
    ends = EFFECT_NATS if in_nats else EFFECT_LENGTHS
    unit = "rise of the targets' log-odds (nats)" if in_nats else "moved along the vector (lengths)"
    with effect:
        st.markdown("**Effect**")
        _draw(sweep, sweep.effect, setting, name="effect", title=unit, upper=ends, signed=True)
    with damage:
        st.markdown("**Damage**")
        title = "rise of the loss (nats per token)"
        _draw(sweep, sweep.loss_change_nats, setting, name="damage", title=title, upper=BREAKS_NATS, signed=False)
    st.caption(
        f"{range_words(sweep, setting.layers[0])} {random_words(sweep)} Colours end at ±{ends:g} and at {BREAKS_NATS:g}. "
        f"Damage is measured on the first {TEXTS} of the eight sentences here, so it differs a little from the table above. "
        "The ring is where the sliders stand. Click a cell to put it there."
    )
    with st.expander("The numbers: every layer and coefficient"):
        st.dataframe(sweep.to_frame(), hide_index=True)
    return sweep


def random_words(sweep: SteeringSweep) -> str:
    """What size alone does, at the vector's own layer, at the largest coefficient that is not beyond."""
    inside = np.flatnonzero(np.abs(sweep.coefficients) <= -COEFFICIENTS[0] + 1e-6)
    at = int(inside[np.argmax(sweep.coefficients[inside])])
    unit = "nats" if sweep.unit.startswith("log-odds") else "lengths"
    return (
        f"A random direction before layer {sweep.random_layer} at {sweep.coefficients[at]:g}: effect "
        f"{sweep.random_effect[at]:+.2g} {unit}, damage {sweep.random_loss_change_nats[at]:+.2g}."
    )


def figure_of(sweep: SteeringSweep, setting: Setting, *, dark: bool = False) -> go.Figure:
    """The damage, for a file."""
    return _figure(
        sweep,
        sweep.loss_change_nats,
        setting,
        dark=dark,
        title=f"rise of the loss (nats per token); outlined below {HARM_NATS:g}",
        upper=BREAKS_NATS,
        signed=False,
    )


def _figure(sweep: SteeringSweep, values: Any, setting: Setting, *, dark: bool, **look: Any) -> go.Figure:
    chosen = (float(setting.layers[0]), setting.amount) if setting.mode == "add" else None
    return sweep_figure(
        values,
        sweep.layers,
        sweep.coefficients,
        dark=dark,
        ranges=working_columns(sweep),
        chosen=chosen,
        **look,
    )


def _draw(sweep: SteeringSweep, values: Any, setting: Setting, *, name: str, **look: Any) -> None:
    """One heat map. After a click it is drawn anew under another name, so that the same cell can be clicked again."""
    dark = st.context.theme.type == "dark"
    shown = st.plotly_chart(
        text_colour(_figure(sweep, values, setting, dark=dark, **look), dark=dark),
        key=f"steer.sweep.{name}.{st.session_state.get(_COUNT, 0)}",
        config={"displaylogo": False},
        alt=f"{name.capitalize()} by layer and coefficient; numbers in the table below",
        on_select="rerun",
        selection_mode="points",
    )
    for point in shown["selection"]["points"][
        :1
    ]:  # numbers of column and row; the browser gives customdata as it likes
        row, column = round(point["y"]), round(point["x"])
        st.session_state[CELL] = (int(sweep.layers[row]), round(float(sweep.coefficients[column]), 2))
        st.session_state[_COUNT] = st.session_state.get(_COUNT, 0) + 1
        st.rerun()
