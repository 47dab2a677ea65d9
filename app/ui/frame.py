"""The picture frame: the model and the prompt, in one place, shared by every page and kept in the address of the page."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st

from analyses.tokenization import Tokens
from app.backend import get_backend
from app.backend.protocol import ModelInfo, Refused
from app.catalogue import load_catalogue
from app.ui.choices import BOS_WORDS, CUT_WORDS
from app.ui.examples import EXAMPLES, look_for
from app.ui.loading import show_opening, wait_for_model
from app.ui.saved_view import read_view
from app.ui.words import literal, say_error

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
AS_IT_COMES = {"bos": "default", "chat": False, "plain": False, "keep": None}  # what the examples' remarks are about
_IN_BOX = "frame.in_box"  # the prompt of the run before
LINK_CHARACTERS = 2000  # proxies usually accept addresses of 8 KB; a character may take 12 bytes there


@dataclass(frozen=True)
class Frame:
    """What every page is about."""

    model: ModelInfo
    prompt: str
    tokens: Tokens
    bos: str  # "default", "none", "own" or "endoftext"
    chat: bool
    plain: bool
    keep: str | None  # the end of an over-long prompt that is kept; None: it is refused
    step: int | None = None  # training step of `model`, where it has several to choose from


def draw_frame() -> None:
    """Draw the sidebar and put the `Frame` where `current_frame` finds it.

    Stops the page when there is nothing to show.
    """
    model = wait_for_model()
    with st.sidebar:
        _draw_model(model)
        model, step = _draw_step(model)
        prompt = _draw_prompt()
        hint = st.empty()  # always there: what comes below must not move up and down with it
        options = _draw_choices(model)
        if (remark := look_for(prompt)) and options == AS_IT_COMES and model.config.kind == "embedded":
            hint.caption(f"**Look for:** {literal(remark)}")
        tokens = _tokenize(prompt, options)
        if tokens is not None:
            _draw_usage(tokens)
        _draw_open_view()
        _draw_words()
    if tokens is None:
        st.stop()
    st.session_state["frame"] = Frame(model, prompt, tokens, **options, step=step)


def current_frame() -> Frame:
    """The frame of this run."""
    return st.session_state["frame"]


def _draw_model(model: ModelInfo) -> None:
    catalogue = load_catalogue()
    config = model.config
    status = get_backend().status()
    st.markdown(f"**{literal(config.name)}**")
    st.caption(literal(" · ".join(filter(None, [f"on {config.device}", config.dtype, config.note]))))
    if status.opening:
        show_opening(config.fingerprint)
    elif status.error:
        say_error(f"{status.error} {config.name} is still open.")
    labels = [entry.label for entry in catalogue.entries]
    if len(labels) > 1 or catalogue.any_hub_id:
        with st.expander("Open another model"), st.form("frame.model", border=False):
            chosen = st.selectbox("Model", labels, key="frame.label")
            typed = (
                st.text_input("or a hub id", placeholder="owner/name", key="frame.hub_id")
                if catalogue.any_hub_id
                else ""
            )
            st.caption("Everybody on this server gets this model.")
            if st.form_submit_button("Open", width="stretch"):
                _open(typed.strip() or chosen)


def _open(label: str) -> None:
    try:
        entry = load_catalogue().find(label)
    except ValueError as error:
        say_error(str(error))
        return
    get_backend().open(entry.source, revision=entry.revision)
    st.rerun()


def _draw_step(model: ModelInfo) -> tuple[ModelInfo, int | None]:
    """The model at the training step that is chosen, and the step; every page asks for it (app/ui/run.py)."""
    steps = model.config.checkpoints
    if not steps:
        return model, None
    if st.session_state.get("step") not in steps:  # kept from a model with other steps, or from a link
        st.session_state["step"] = _step_of_address(steps)
    step = st.select_slider(
        "Training step",
        steps,
        format_func=lambda step: f"{step:,}",
        key="step",
        bind="query-params",
        help="The weights this model had after so many training steps. Every page shows the model at this step.",
    )
    return replace(model, config=model.config.at(step)), step


def _step_of_address(steps: tuple[int, ...]) -> int:
    """The step that a link names, else the last."""
    found = st.query_params.get("step", "").replace(",", "")  # the slider writes 1,900
    return int(found) if found.isascii() and found.isdigit() and int(found) in steps else steps[-1]


def _draw_prompt() -> str:
    """Example and prompt.

    The text is taken over on the button, on Ctrl+Enter, or when anything else is clicked, not while it is typed: "Write" on a
    page would else go on with the old text.
    """

    def use_example() -> None:
        chosen = st.session_state["frame.example"]
        if chosen is not None:
            st.session_state["after"] = st.session_state["depth"] = None  # the hint is about the last token, at the end
            st.session_state["prompt"] = next(example.prompt for example in EXAMPLES if example.name == chosen)

    names = [example.name for example in EXAMPLES]
    st.selectbox(
        "Example", names, index=None, key="frame.example", on_change=use_example, placeholder="Choose an example"
    )
    prompt = st.text_area("Prompt", **_text_of_box(), key="prompt", height=140)
    st.button("Show", key="frame.show", width="stretch", help="Ctrl+Enter in the text does the same.")
    st.session_state[_IN_BOX] = prompt
    _keep_in_address(prompt)
    return prompt


def _text_of_box() -> dict[str, str]:
    """What the box holds when the browser draws it for the first time.

    In every run the same as the prompt: a browser that first draws the box in the second run (the first was cut short by another)
    would else draw an empty one and send that back. Not where the prompt was just put there, which Streamlit sends by itself.
    """
    first = st.query_params.get("prompt", EXAMPLES[0].prompt)
    if (text := st.session_state.get("prompt", first)) == st.session_state.get(_IN_BOX, text):
        return {"value": text}
    return {}


def _keep_in_address(prompt: str) -> None:
    """The prompt is part of the link as long as a link can carry it; `bind` would put 100 KB into the address."""
    if len(prompt) > LINK_CHARACTERS or prompt == EXAMPLES[0].prompt:
        st.query_params.pop("prompt", None)
    elif st.query_params.get("prompt") != prompt:
        st.query_params["prompt"] = prompt


def _draw_choices(model: ModelInfo) -> dict[str, Any]:
    """How the text becomes tokens."""
    chat = plain = False
    with st.expander("How it becomes tokens"):
        if model.has_chat_template:
            chat = st.toggle(
                "Chat template",
                key="chat",
                bind="query-params",
                help="Wrap the prompt as a user's message, with the marks this model was trained on.",
            )
        bos = st.selectbox(
            "Token in front (BOS)",
            list(model.bos_choices),
            format_func=lambda choice: BOS_WORDS[choice],
            key="bos",
            bind="query-params",
            disabled=chat,
            help="Some models expect a beginning-of-sequence token. It changes the numbers. A chat template brings its own.",
        )
        plain = st.toggle(
            "Treat special strings as plain text",
            key="plain",
            bind="query-params",
            help="Off: text that spells a special token, such as an end-of-text mark, becomes that token.",
        )
        keep = st.selectbox(
            "A prompt longer than the context",
            list(CUT_WORDS),
            format_func=CUT_WORDS.__getitem__,
            key="keep",
            bind="query-params",
        )
    return {"bos": "default" if chat else bos, "chat": chat, "plain": plain, "keep": None if keep == "refuse" else keep}


def _tokenize(prompt: str, options: dict[str, Any]) -> Tokens | None:
    try:
        return get_backend().tokenize(prompt, **options)
    except (ValueError, Refused) as error:
        say_error(str(error))
        return None


def _draw_usage(tokens: Tokens) -> None:
    used = len(tokens.ids)
    st.progress(min(1.0, used / tokens.n_ctx), text=f"{used:,} of {tokens.n_ctx:,} tokens of the context")
    if tokens.n_cut:
        st.warning(
            f"The {tokens.cut} of the prompt was cut: {tokens.n_cut:,} tokens are missing.",
            icon=":material/content_cut:",
        )
    elif used > tokens.n_ctx:
        st.warning(
            f"{used - tokens.n_ctx:,} tokens too many for the model. Shorten the prompt, or keep one end of it "
            '(under "How it becomes tokens").',
            icon=":material/content_cut:",
        )


def _draw_words() -> None:
    """The glossary, where the words are used."""
    with st.expander("Words used here"):
        st.markdown(GLOSSARY.read_text("utf-8").partition("\n")[2])


def _draw_open_view() -> None:
    """Open a view that was saved as a file."""

    def take_over() -> None:
        file = st.session_state["frame.view"]
        if file is None:
            return
        try:
            read_view(file.getvalue().decode("utf-8", "replace"), st.session_state)
        except ValueError as error:
            st.session_state["frame.view_error"] = str(error)

    with st.expander("Open a saved view"):
        st.file_uploader(
            "A view (JSON)", type="json", key="frame.view", on_change=take_over, label_visibility="collapsed"
        )
        if error := st.session_state.pop("frame.view_error", ""):
            say_error(error)
