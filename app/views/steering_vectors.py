"""Which vectors can be chosen: the ready examples, those a person made in this tab, and the one that a link describes.

A vector that was made from texts or a token is kept as its recipe, the parameters it was made with: another model makes its own
from it, and a short one fits a link. A loaded file and a sum are kept as their numbers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from analyses.contrast import Contrast
from analyses.steering_examples import STEERING_EXAMPLES, SteeringExample
from analyses.steering_vector import MAX_TEXT, SteeringVector, check_vector
from app.backend.protocol import ModelInfo
from app.ui.frame import LINK_CHARACTERS
from app.ui.run import run
from app.ui.words import say_error, say_note

EXAMPLE_LAYERS = 30  # of the embedded model, which the examples were measured on
MAX_KEPT = 12  # in one tab; the oldest goes
_KEPT, _NEXT, _TAKEN = "steer.kept", "steer.next", "steer.taken"
_RECIPE_KEYS = frozenset({"positive", "negative", "token", "layer", "read", "method"})


@dataclass(frozen=True, eq=False)
class Chosen:
    """The vector that is steered with, and what is known of it."""

    name: str
    vector: SteeringVector
    contrast: Contrast | None = None  # of one that was made here
    recipe: Mapping[str, Any] | None = None  # keywords of `run_steering_vector`
    example: SteeringExample | None = None


@dataclass(frozen=True, eq=False)
class Kept:
    """One of the person's own: either a recipe or the numbers."""

    recipe: Mapping[str, Any] | None = None
    vector: SteeringVector | None = None


def example_layer(example: SteeringExample, model: ModelInfo) -> int:
    """The example's layer; for another model the one at the same share of its depth, where nobody has measured it."""
    n_layers = model.config.n_layers
    if n_layers == EXAMPLE_LAYERS:
        return example.layer
    return min(round(example.layer / EXAMPLE_LAYERS * n_layers), n_layers - 1)


def example_named(name: str | None) -> SteeringExample | None:
    """The ready example of this name."""
    return next((example for example in STEERING_EXAMPLES if example.name == name), None)


def kept_vectors(model: ModelInfo) -> dict[str, Kept]:
    """The person's own that this model can use, oldest first."""
    return {name: kept for name, kept in st.session_state.get(_KEPT, {}).items() if not _why_not(kept, model)}


def keep_vector(name: str, kept: Kept, *, choose: bool = True) -> str:
    """Keep a vector, and choose it in the next run; the name it got."""
    name = " ".join("".join(c if c.isprintable() else " " for c in name).split())[:MAX_TEXT] or "my vector"
    mine = dict(st.session_state.get(_KEPT, {}))
    if example_named(name) is not None:
        name = f"my {name}"
    mine.pop(name, None)  # the same name is a newer version
    mine[name] = kept
    st.session_state[_KEPT] = dict(list(mine.items())[-MAX_KEPT:])
    if choose:
        st.session_state[_NEXT] = name
    return name


def layer_of(name: str, model: ModelInfo) -> int:
    """The layer that a vector belongs to."""
    if (example := example_named(name)) is not None:
        return example_layer(example, model)
    kept = st.session_state[_KEPT][name]
    return int(kept.vector.layer if kept.recipe is None else kept.recipe.get("layer", 12))


def choose_vector(model: ModelInfo, started: Any) -> str:
    """The select box. `started` is called with a name when another vector is chosen, so that its settings can be laid out."""
    _take_recipe()
    names = [example.name for example in STEERING_EXAMPLES] + list(kept_vectors(model))
    if (found := st.session_state.pop(_NEXT, None)) in names:
        st.session_state["vector"] = found
        started(found)
    wanted = st.session_state.get("vector") or st.query_params.get("vector")
    if wanted and wanted not in names:
        say_note(f'The vector "{wanted}" is not here, or belongs to another model: load its file below.')
        st.session_state["vector"] = names[0]  # Streamlit takes the unknown name out of the address
        started(names[0])
    return st.selectbox(
        "Vector",
        names,
        key="vector",
        bind="query-params",
        on_change=lambda: started(st.session_state["vector"]),
        help="A direction of the stream: what two groups of texts differ in on average. The first ones come with the app; make "
        "your own below.",
    )


def find_vector(model: ModelInfo, name: str, *, into_address: bool = True) -> Chosen | None:
    """The vector itself; made in the worker where it has a recipe. None when that was refused, which has been said."""
    example, kept = example_named(name), st.session_state.get(_KEPT, {}).get(name)
    if into_address:
        _keep_in_address(name, None if kept is None else kept.recipe)
    if kept is not None and kept.recipe is None:
        return Chosen(name, kept.vector)
    recipe = kept.recipe if example is None else example.texts | {"layer": example_layer(example, model)}
    slot = "steer.vector" if into_address else "steer.second"
    outcome = run("steering_vector", (), slot=slot, model=model.config.fingerprint, **recipe)
    if outcome is None or outcome.stale:
        return None
    return Chosen(name, outcome.result.vector(name), outcome.result, recipe, example)


def write_recipe(name: str, recipe: Mapping[str, Any]) -> str:
    """A recipe as text for a link."""
    return json.dumps({"name": name, **recipe}, ensure_ascii=False, separators=(",", ":"))


def read_recipe(text: str) -> tuple[str, dict[str, Any]]:
    """Name and recipe that a link holds; what is in it is checked where the vector is made.

    Raises:
        ValueError: not a recipe.
    """
    try:
        found = json.loads(text)
        json.dumps(found, ensure_ascii=False).encode()  # a lone surrogate cannot be shown
    except (ValueError, RecursionError) as error:
        raise ValueError("needs a vector's recipe in the link; found something else; copy the whole link.") from error
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("name"), str)
        or not set(found) <= _RECIPE_KEYS | {"name"}
    ):
        raise ValueError("needs a vector's recipe in the link; found other JSON; copy the whole link.")
    if type(found.get("layer", 12)) is not int:
        raise ValueError(f"needs a layer in the link's recipe; found {found['layer']!r:.40}; copy the whole link.")
    return found.pop("name"), found


def fits_link(chosen: Chosen) -> bool:
    """Whether the page's address alone brings this vector back."""
    return chosen.example is not None or (
        chosen.recipe is not None and len(write_recipe(chosen.name, chosen.recipe)) <= LINK_CHARACTERS
    )


def _take_recipe() -> None:
    """Keep the vector that a link describes, once; the link's other settings are for it."""
    text = st.query_params.get("recipe", "")
    if not text or text == st.session_state.get(_TAKEN):
        return
    st.session_state[_TAKEN] = text
    try:
        name, recipe = read_recipe(text)
    except ValueError as error:
        say_error(str(error))
        return
    name = keep_vector(name, Kept(recipe), choose=False)
    if st.query_params.get("vector") != name:
        st.session_state[_NEXT] = name


def _keep_in_address(name: str, recipe: Mapping[str, Any] | None) -> None:
    text = "" if recipe is None else write_recipe(name, recipe)
    if not text or len(text) > LINK_CHARACTERS:
        st.query_params.pop("recipe", None)
    elif st.query_params.get("recipe") != text:
        st.session_state[_TAKEN] = text
        st.query_params["recipe"] = text


def _why_not(kept: Kept, model: ModelInfo) -> str:
    config = model.config
    if kept.recipe is not None:
        layer = kept.recipe.get("layer", 12)
        return "" if 0 <= layer < config.n_layers else f"layer {layer} is not there"
    try:
        check_vector(
            kept.vector,
            d_model=config.d_model,
            n_layers=config.n_layers,
            fingerprint=config.fingerprint,
            model=config.name,
        )
    except ValueError as error:
        return str(error)
    return ""
