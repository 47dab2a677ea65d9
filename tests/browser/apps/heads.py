"""The contact sheet and an opened head; the address chooses the size: `?layers=30&heads=9&tokens=128`."""

import numpy as np
import streamlit as st

from app.components.head_grid import head_grid
from app.components.head_map import head_map
from tests.app.heads_example import sheet, tokens, weights

st.set_page_config(layout="wide")
n_layers, n_heads, n_tokens = (
    int(st.query_params.get(name, default)) for name, default in (("layers", 30), ("heads", 9), ("tokens", 128))
)
state = st.session_state
only = st.query_params.get("only")


def set_state(**values: object) -> None:
    """What another picture on the page does."""
    state.update(values)


with st.container(horizontal=True):
    st.button("first head", on_click=set_state, kwargs={"opened": (0, 0)})
    st.button("second token", on_click=set_state, kwargs={"pin": (1, "query")})
    st.button("rerun")
    by_score = st.toggle("by score")
    mark = st.toggle("mark")
    hide_first = st.toggle("hide first")
if only != "map":
    made = st.cache_resource(sheet)(n_layers, n_heads, n_tokens)
    if by_score:
        order = np.argsort(made["ranks"])[:60]
        made = made | {
            "packed": made["packed"][order],
            "heads": [made["heads"][i] for i in order],
            "columns": 12,
            "scores": {name: values[order] for name, values in made["scores"].items()},
            "tint": made["tint"][order],
            "ranks": made["ranks"][order],
        }
    ticked = [(1, 1), (2, 0)] if mark else []
    opened = state.get("opened")
    state["opened"] = head_grid(**made, selected=opened, ticked=ticked, hide_first=hide_first, key="sheet")
    st.text(f"opened={state['opened']}")
if only != "sheet":
    head = st.cache_resource(weights)(1, n_tokens, 7)[0]
    state["pin"] = head_map(
        head, tokens(n_tokens), name="L18H6", selected=state.get("pin"), key="map", label="Attention of head L18H6",
        hide_first=hide_first,
    )  # fmt: skip
    st.text(f"pin={state['pin']}")
