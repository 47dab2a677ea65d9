"""What is left out, and on which text: the choices of the page "Layer deletion"."""

from dataclasses import dataclass

import streamlit as st

from analyses._addends import Addends, name, read_addends
from analyses.passages import PASSAGES
from analyses.tokenization import Tokens
from app.backend import get_backend
from app.backend.protocol import Refused
from app.ui.frame import Frame
from app.ui.words import literal, say_error

OWN_TEXT = "my prompt"
TEXTS = (OWN_TEXT, *PASSAGES)


@dataclass(frozen=True)
class Deletion:
    """A text and what is left out of the model that reads it."""

    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]
    off: Addends
    text: str  # one of TEXTS

    @property
    def variant(self) -> list[int | str]:
        """As analyses name it: [10, "11.mlp"]."""
        return list(name(self.off))


def default_off(n_layers: int) -> str:
    """What is left out when a person has not chosen: the block in the middle."""
    return str(n_layers // 2)


def read_off(text: str, n_layers: int) -> Addends:
    """What a person wrote: layers, ranges and parts, separated by commas; "none" or nothing is nothing.

    Raises:
        ValueError: an unknown name, a layer that is not there, or an addend twice.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if [word.lower() for word in words] == ["none"]:
        words = []
    items: list[int | str] = []
    for word in words:
        first, dash, last = word.partition("-")
        numbers = [part.strip() for part in (first, last) if part.strip().isascii() and part.strip().isdecimal()]
        if dash and len(numbers) == 2:
            items += range(int(numbers[0]), min(int(numbers[1]), n_layers) + 1)  # one too far is refused below
        else:
            items.append(int(word) if word.isascii() and word.isdecimal() else word)
    return read_addends(items, n_layers)


def write_off(off: Addends) -> str:
    """The same in writing; "none" for nothing, so that it is not the default."""
    return ", ".join(str(item) for item in name(off)) or "none"


def choose_text(frame: Frame) -> tuple[str, Tokens | None]:
    """The text on which damage is measured: the prompt, or one of the built-in passages."""
    text = st.selectbox(
        "Text",
        TEXTS,
        key="text",
        bind="query-params",
        help="The built-in passages were written for this app: one text of each kind. One text is one text.",
    )
    if text == OWN_TEXT:
        return text, frame.tokens
    try:
        return text, get_backend().tokenize(PASSAGES[text], bos=frame.bos, plain=True)
    except (ValueError, Refused) as error:
        say_error(str(error))
        return text, None


def choose_off(n_layers: int) -> Addends:
    """The field that says what is left out; the stack beside it sets it too."""
    if "cut.clicked" in st.session_state:
        st.session_state["without"] = st.session_state.pop("cut.clicked")
    written = st.text_input(
        "Left out",
        key="without",
        bind="query-params",
        placeholder=f"{default_off(n_layers)} (the middle block)",
        help="Layers and parts, separated by commas: 10, 12-15, 11.attention, 12.mlp; none for nothing. The stack sets it too.",
    )
    kept = "cut.understood"
    try:
        off = read_off(written or default_off(n_layers), n_layers)
    except ValueError as error:
        before = read_off(st.session_state.get(kept, default_off(n_layers)), n_layers)
        say_error(
            f"{error} Write names with commas between, such as 3, 5-8, 10.mlp. Below is without {in_words(before, n_layers)}."
        )
        return before
    st.session_state[kept] = write_off(off)
    return off


def in_words(off: Addends, n_layers: int) -> str:
    """What is left out, in words for a sentence."""
    items = name(off)
    if not items:
        return "nothing"
    if len(off) == 2 * n_layers:
        return f"all {n_layers} layers"
    shown = [_item(item) for item in items]
    if len(shown) > 4:
        return f"{len(off)} parts ({', '.join(shown[:3])} and others)"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _item(item: int | str) -> str:
    if isinstance(item, int):
        return f"layer {item}"
    layer, part = item.split(".")
    return f"the {'MLP' if part == 'mlp' else part} of layer {layer}"


def show_text(deletion: Deletion) -> None:
    """The passage itself, when it is not the prompt."""
    if deletion.text != OWN_TEXT:
        with st.expander(f"The text: {deletion.text}, {len(deletion.ids)} tokens"):
            st.markdown(literal(PASSAGES[deletion.text]).replace("\n", "  \n"))
