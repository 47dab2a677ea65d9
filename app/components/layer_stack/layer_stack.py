"""The stack of layers, attention and MLP of each as a switch: what is off is left out of the sum.

The caller owns what is off. Clicks are collected for a moment in the browser and arrive together, as the whole set and the time
of the last click, so that five quick clicks cause one run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent
PARTS = ("attention", "mlp")
Addend = tuple[int, str]

_component = st.components.v2.component(
    "layer_stack",
    html='<div class="stack" role="group"></div>\n',
    css=(_HERE / "layer_stack.css").read_text(encoding="utf-8"),
    js=(_HERE / "layer_stack.js").read_text(encoding="utf-8"),
)


def layer_stack(
    n_layers: int,
    off: Iterable[Addend],
    *,
    key: str,
    label: str,
    notes: Sequence[str] = (),
    disabled: bool = False,
) -> frozenset[Addend]:
    """Draw the switches and return what is off now.

    A click wins in the run it causes; in every other run `off` does.

    Args:
        n_layers: how many layers there are; layer 0 is drawn at the top, where the stream begins.
        off: what the caller has left out: pairs of layer and "attention" or "mlp".
        key: name of the component in this session.
        label: what a screen reader calls it.
        notes: a short text beside each layer, or none.
        disabled: whether the switches only show.

    Raises:
        ValueError: a pair that the model does not have, or not one note per layer.
    """
    shown = frozenset(off)
    if wrong := [pair for pair in shown if not (0 <= pair[0] < n_layers and pair[1] in PARTS)]:
        raise ValueError(f"needs layers 0 to {n_layers - 1} with attention or mlp; found {wrong[0]}; leave it out.")
    if notes and len(notes) != n_layers:
        raise ValueError(f"needs one note per layer; found {len(notes)} for {n_layers}; pass one for each.")
    seen_key = f"_{key}_seen"
    click = read_clicks(st.session_state.get(key), n_layers)
    fresh = click is not None and click[1] != st.session_state.get(seen_key)
    if click is not None and fresh:
        shown = click[0]
    data = {
        "n": n_layers,
        "off": sorted(f"{layer}.{part}" for layer, part in shown),
        "label": label,
        "notes": list(notes),
        "disabled": disabled,
    }
    _component(key=key, data=json.dumps(data), on_off_change=lambda: None)
    if click is not None:
        st.session_state[seen_key] = click[1]
    return shown


def read_clicks(state: Any, n_layers: int) -> tuple[frozenset[Addend], int] | None:
    """The set and the time of the last click, or None: what a browser sends is any JSON and not to be trusted."""
    found = state.get("off") if isinstance(state, Mapping) else None
    if not isinstance(found, Mapping) or type(found.get("time")) is not int:
        return None
    names = found.get("names")
    if not isinstance(names, list) or len(names) > 2 * n_layers:
        return None
    pairs = set()
    for name in names:
        layer, _, part = name.partition(".") if isinstance(name, str) else ("", "", "")
        if not (layer.isascii() and layer.isdecimal() and int(layer) < n_layers and part in PARTS):
            return None
        pairs.add((int(layer), part))
    return frozenset(pairs), found["time"]
