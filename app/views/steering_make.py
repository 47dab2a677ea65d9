"""Another vector: from two groups of texts, from a token, from two vectors, or from a file."""

from typing import Any

import streamlit as st

from analyses._contrast_texts import MAX_TEXTS, METHODS, READ
from analyses.steering_examples import STEERING_EXAMPLES
from analyses.steering_vector import SteeringVector, check_vector, load_vector
from app.backend.protocol import ModelInfo
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.words import say_error, say_note
from app.views.steering_vectors import MAX_KEPT, Chosen, Kept, find_vector, keep_vector, kept_vectors

READ_WORDS = {"mean": "mean over tokens from 1", "last": "last token"}
METHOD_WORDS = {"difference": "difference of the means", "principal": "principal direction of the pairs"}
FIELDS = {"positive": "Towards", "negative": "Away from"}
SIGNS = ("plus", "minus", "without")
_ERROR, _SLOT = "steer.make_error", "steer.make"


def draw_making(frame: Frame, chosen: Chosen | None) -> None:
    """Four ways, one in each tab; a vector that cannot be made leaves the one that is chosen."""
    with st.expander("Make another vector: own texts, a token, two vectors, a file"):
        texts, token, both, file = st.tabs(["Two groups of texts", "A token", "Two vectors", "A file"])
        with texts:
            _from_texts(frame.model)
        with token:
            _from_token(frame.model)
        with both:
            _from_two(frame.model, chosen)
        with file:
            _from_file(frame.model)
        say_note(
            f"Your vectors stay in this browser tab, the last {MAX_KEPT} of them. Save those that you want to keep."
        )


def _from_texts(model: ModelInfo) -> None:
    with st.form("steer.texts", border=False):
        left, right = st.columns(2)
        with left:
            positive = st.text_area(
                "Towards, one text a line",
                key="steer.positive",
                height=150,
                placeholder="I love this film.\nThe soup was delicious.",
            )
        with right:
            negative = st.text_area(
                "Away from, one text a line",
                key="steer.negative",
                height=150,
                placeholder="I hate this film.\nThe soup was disgusting.",
                help="Best the same texts but for one thing: all that differs goes into the vector. One line each is a pair.",
            )
        name, layer, read, method = st.columns([2, 1, 2, 2])
        with name:
            called = st.text_input("Name", key="steer.name", placeholder="my vector", max_chars=60)
        with layer:
            at = _layer_field(model, "steer.texts_layer")
        with read:
            how = st.selectbox("Read at", READ, format_func=READ_WORDS.__getitem__, key="steer.read")
        with method:
            made = st.selectbox("Made as", METHODS, format_func=METHOD_WORDS.__getitem__, key="steer.method")
        if st.form_submit_button("Make the vector"):
            groups = {"positive": _lines(positive), "negative": _lines(negative)}
            if empty := next((name for key, name in FIELDS.items() if not groups[key]), None):
                say_error(f'needs at least one text in "{empty}"; found none; write one a line.')
                return
            if long := next((key for key, lines in groups.items() if len(lines) > MAX_TEXTS), None):
                say_error(
                    f'needs at most {MAX_TEXTS} texts in "{FIELDS[long]}"; found {len(groups[long])}; leave some out.'
                )
                return
            _make(model, called, {**groups, "layer": at, "read": how, "method": made})


def _from_token(model: ModelInfo) -> None:
    with st.form("steer.token", border=False):
        word, layer, button = st.columns([3, 1, 1], vertical_alignment="bottom")
        with word:
            token = st.text_input(
                "Token",
                key="steer.token_text",
                placeholder="·wedding",
                help="Exactly one token; most words begin with a space: write it as a space or as ·. The direction is the "
                "one that raises this token's logit most against the mean of all logits, with the final norm's divisor held.",
            )
        with layer:
            at = _layer_field(model, "steer.token_layer")
        with button:
            pressed = st.form_submit_button("Make the vector", width="stretch")
        if pressed:
            meant = token.replace("·", " ")
            _make(model, meant.strip() or "a token", {"token": meant, "layer": at})


def _from_two(model: ModelInfo, chosen: Chosen | None) -> None:
    if chosen is None:
        say_note("Choose a vector first.")
        return
    names = [example.name for example in STEERING_EXAMPLES] + list(kept_vectors(model))
    others = [name for name in names if name != chosen.name]
    with st.form("steer.sum", border=False):
        sign, other, button = st.columns([1, 3, 1], vertical_alignment="bottom")
        with sign:
            how = st.selectbox(
                "The chosen vector",
                SIGNS,
                key="steer.sign",
                help="Without: what is left when the component along the other one is taken away.",
            )
        with other:
            name = st.selectbox("Other vector", others, key="steer.other")
        with button:
            pressed = st.form_submit_button("Make the vector", width="stretch")
        if pressed and name is not None:
            second = find_vector(model, name, into_address=False)
            if second is None:
                return
            try:
                made = combine(chosen.vector, how, second.vector)
            except ValueError as error:
                say_error(str(error))
                return
            keep_vector(made.name, Kept(vector=made))
            st.rerun()


def combine(first: SteeringVector, how: str, second: SteeringVector) -> SteeringVector:
    """Sum, difference, or the part of the first that is at a right angle to the second; at the first one's layer.

    Raises:
        ValueError: nothing is left, or vectors of different models.
    """
    other = second.at(first.layer)
    if how == "plus":
        return first + other
    return first - other if how == "minus" else first.project_out(other)


def _from_file(model: ModelInfo) -> None:
    def take_over() -> None:
        file = st.session_state["steer.file"]
        if file is None:
            return
        try:
            vector = load_vector(file.getvalue())
            config = model.config
            check_vector(
                vector,
                d_model=config.d_model,
                n_layers=config.n_layers,
                fingerprint=config.fingerprint,
                model=config.name,
            )
        except ValueError as error:
            st.session_state[_ERROR] = str(error)
            return
        keep_vector(vector.name or "a file", Kept(vector=vector))

    st.file_uploader(
        "A vector's file (safetensors, at most 1 MiB)", type="safetensors", key="steer.file", on_change=take_over
    )
    if error := st.session_state.pop(_ERROR, ""):
        say_error(error)


def _layer_field(model: ModelInfo, key: str) -> int:
    n_layers = model.config.n_layers
    usual = min(round(0.4 * n_layers), n_layers - 1)  # 12 of 30, as the first example
    found = st.number_input("Layer", 0, n_layers - 1, usual, key=key, help="The stream before this block is read.")
    return int(found)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _make(model: ModelInfo, name: str, recipe: dict[str, Any]) -> None:
    """Try it in the worker; what was refused is said, and the chosen vector stays."""
    st.session_state.pop(f"outcome.{_SLOT}", None)  # nothing older to fall back to
    outcome = run("steering_vector", (), slot=_SLOT, model=model.config.fingerprint, **recipe)
    if outcome is None:
        return
    keep_vector(name or "my vector", Kept(recipe))
    st.rerun()
