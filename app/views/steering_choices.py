"""How the vector is used: coefficient, layers, positions, and where the sliders stand at first."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from analyses.steering import COEFFICIENT, WORKING
from app.backend.protocol import ModelInfo
from app.ui.controls import segments
from app.ui.frame import Frame
from app.views.steering_prompt import Text, choose_text, choose_words
from app.views.steering_vectors import choose_vector, example_named, layer_of

BEYOND = 1.5
STEP = 0.05
WHERE = ("both", "prompt", "new")
WHERE_WORDS = {"both": "prompt and new", "prompt": "prompt alone", "new": "new alone"}
MODES = ("add", "project_out")
MODE_WORDS = {"add": "add it", "project_out": "take it out"}
_PUT, _ENDS = "steer.put", "steer.ends"


@dataclass(frozen=True)
class Setting:
    """One way of using a vector."""

    amount: float  # coefficient in mean lengths of the stream, or the share that is taken out
    layers: tuple[int, int]  # first and last
    where: str = "both"
    mode: str = "add"
    seed: int = 0  # of the random vector
    targets: tuple[int, ...] = ()
    against: tuple[int, ...] = ()

    @property
    def layer(self) -> int | list[int]:
        """As analyses take it."""
        first, last = self.layers
        return first if first == last else [first, last]

    @property
    def place(self) -> dict[str, Any]:
        """Keywords of how the stream is changed, for every analysis that steers text."""
        return {"coefficient": self.amount, "layer": self.layer, "mode": self.mode}

    @property
    def words(self) -> dict[str, Any]:
        """Keywords of what counts as success."""
        return {"targets": list(self.targets), "against": list(self.against)}

    @property
    def in_words(self) -> str:
        """`0.3 before layer 12`."""
        first, last = self.layers
        layers = f"layer {first}" if first == last else f"layers {first} to {last}"
        if self.mode == "project_out":
            return f"{100 * self.amount:.0f} % taken out before {layers}"
        return f"{self.amount:g} before {layers}"


def choose(frame: Frame) -> tuple[str, Setting, Text | None]:
    """The controls, one row: the vector's name, how it is used, and the prompt."""
    model = frame.model
    first, second, third, more = st.columns([2.2, 3.2, 2.4, 1.1], vertical_alignment="bottom")
    with first:
        name = choose_vector(model, lambda chosen: lay_out(chosen, model))
    with more, st.popover("More", width="stretch"):
        mode, where, beyond, last, seed = _choose_more(model)
        targets, against = choose_words(frame, name)
        text = choose_text(frame, name)
    with second:
        amount = _choose_amount(name, mode, beyond=beyond)
    with third:
        layer = _choose_layer(name, model)
    setting = Setting(amount, (layer, layer if last is None else max(last, layer)), where, mode, seed, targets, against)
    return name, setting, text


def lay_out(name: str, model: ModelInfo) -> None:
    """Put the settings where a vector begins: the example's own, 0.3 at its layer for others."""
    put("coefficient", _usual(name))
    put("steer_layer", layer_of(name, model))
    st.session_state["steer_last"] = None
    st.session_state["targets"] = st.session_state["opposites"] = ""


def put(key: str, value: float) -> None:
    """Move a slider, before it is drawn."""
    st.session_state[key] = value
    st.session_state[_PUT] = {*st.session_state.get(_PUT, ()), key}


def _usual(name: str) -> float:
    example = example_named(name)
    return COEFFICIENT if example is None else example.coefficient


def _start(key: str, usual: float, low: float, high: float) -> dict[str, Any]:
    """Where a slider stands when neither the person nor the link says so; nothing for one that has just been put somewhere.

    Streamlit takes a value that is the usual one out of the address, so the usual value is part of the slider; but it does not
    take both a usual value and one that is put there, and it forgets the person's when the ends of the slider change.
    """
    now, ends = st.session_state.get(key), (low, high)
    if now is not None and st.session_state.get(f"{_ENDS}.{key}", ends) != ends:
        put(key, type(usual)(min(max(now, low), high)))
    st.session_state[f"{_ENDS}.{key}"] = ends
    moved = st.session_state.get(_PUT, set())
    if key in moved:
        moved.discard(key)
        return {}
    return {"value": usual}


def _choose_amount(name: str, mode: str, *, beyond: bool) -> float:
    if mode == "project_out":
        return st.slider(
            "Share taken out",
            0.0,
            1.0,
            1.0,
            STEP,
            key="steer_share",
            bind="query-params",
            help="Of the stream's component along the vector: 1 takes all of it away, 0 nothing.",
        )
    limit = BEYOND if beyond else WORKING[1]
    found = st.slider(
        f"Coefficient (beyond ±{WORKING[1]:g}: breaks)" if beyond else "Coefficient",
        -limit,
        limit,
        step=STEP,
        key="coefficient",
        bind="query-params",
        help="How much of the vector is added, in mean lengths of the stream at that layer: 1 adds as much as is there. 0 adds "
        "nothing, below 0 turns the vector round.",
        **_start("coefficient", _usual(name), -limit, limit),
    )
    return round(found, 2)


def _choose_layer(name: str, model: ModelInfo) -> int:
    n_layers = model.config.n_layers
    if n_layers == 1:
        return 0
    return st.slider(
        "Before layer",
        0,
        n_layers - 1,
        key="steer_layer",
        bind="query-params",
        help="The vector is added to what this block reads. A vector belongs to the layer it was read at; elsewhere it means "
        "something else.",
        **_start("steer_layer", layer_of(name, model), 0, n_layers - 1),
    )


def _choose_more(model: ModelInfo) -> tuple[str, str, bool, int | None, int]:
    """Mode, positions, wider slider, last layer, number of the random vector."""
    mode = segments(
        "The vector", MODES, key="steer_mode", words=MODE_WORDS, help="Add it, or take away the stream's component."
    )
    where = segments(
        "Steered tokens",
        WHERE,
        key="steer_where",
        words=WHERE_WORDS,
        help="The last token of the prompt counts as new: it predicts the first new one. Token 0 is never steered.",
    )
    beyond = st.toggle(
        f"Go beyond ±{WORKING[1]:g}",
        key="beyond",
        bind="query-params",
        disabled=mode == "project_out",
        help="There the embedded model writes broken text; the slider then ends at ±1.5.",
    )
    n_layers = model.config.n_layers
    if (st.session_state.get("steer_last") or 0) >= n_layers:  # another model has fewer layers
        st.session_state["steer_last"] = None
    last = st.number_input(
        "Up to layer",
        min_value=0,
        max_value=n_layers - 1,
        value=None,
        key="steer_last",
        bind="query-params",
        placeholder="that one layer alone",
        help="Steers every layer from the one of the slider to this one. Effect and damage add up.",
    )
    seed = st.number_input(
        "Number of the random vector",
        min_value=0,
        max_value=999,
        value=0,
        key="random_vector",
        bind="query-params",
        help="The control: a random direction of the same length. Try several, one may do something by chance.",
    )
    return mode, where, beyond, None if last is None else int(last), int(seed)
