"""The stack of layers: what a browser may send, who owns what is off, and what a click on a layer does."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from app.components.layer_stack.layer_stack import layer_stack, read_clicks

SCRIPT = """
import streamlit as st
from app.components.layer_stack import layer_stack
off = layer_stack(3, {tuple(pair) for pair in st.session_state["off"]}, key="stack", label="Layers")
st.text(sorted(off))
"""


def shown(app):
    assert not app.exception, app.exception[0].message
    return app.text[0].value


def test_a_click_wins_in_the_run_it_causes_and_the_caller_in_every_other():
    app = AppTest.from_string(SCRIPT)
    app.session_state["off"] = [[1, "mlp"]]
    assert shown(app.run()) == "[(1, 'mlp')]"
    app.session_state["stack"] = {"off": {"names": ["0.attention", "0.mlp"], "time": 5}}
    assert shown(app.run()) == "[(0, 'attention'), (0, 'mlp')]"
    assert shown(app.run()) == "[(1, 'mlp')]", "the same click is not taken twice"
    app.session_state["stack"] = {"off": {"names": [], "time": 6}}
    assert shown(app.run()) == "[]"
    data = json.loads(json.loads(app.get("bidi_component")[0].proto.json))
    assert data["n"] == 3 and data["off"] == []


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {"off": None},
        {"off": {"names": ["3.mlp"], "time": 1}},
        {"off": {"names": ["1.head"], "time": 1}},
        {"off": {"names": [1], "time": 1}},
        {"off": {"names": ["²,mlp"], "time": 1}},
        {"off": {"names": "0.mlp", "time": 1}},
        {"off": {"names": ["0.mlp"] * 9, "time": 1}},
        {"off": {"names": [], "time": "now"}},
        {"off": {"names": [], "time": True}},
    ],
)
def test_what_no_browser_of_ours_sends_is_ignored(state):
    assert read_clicks(state, 3) is None


def test_only_addends_of_this_model_can_be_off():
    with pytest.raises(ValueError, match=r"needs layers 0 to 2 with attention or mlp; found \(3, 'mlp'\)"):
        layer_stack(3, {(3, "mlp")}, key="k", label="Layers")
    with pytest.raises(ValueError, match="needs one note per layer; found 1 for 3"):
        layer_stack(3, [], key="k", label="Layers", notes=["x"])
