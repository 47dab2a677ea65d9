"""Which texts are measured, in which unit, and in windows of what size: the choices of the page "Loss"."""

from dataclasses import dataclass

import streamlit as st

from analyses.loss import n_windows
from analyses.passages import PASSAGES
from analyses.tokenization import Tokens
from app.backend import get_backend
from app.backend.protocol import Refused
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.words import say_error

PROMPT, OWN, NOTHING = "my prompt", "own text", "nothing"
TEXTS = (PROMPT, *PASSAGES, OWN)
AGAINST = (NOTHING, *TEXTS)
UNITS = ("nats", "bits", "perplexity", "probability")
WHOLE = "context"
WINDOWS = (WHOLE, "64", "128", "256", "512", "1024", "2048")
STRIDES = {"half": 2, "quarter": 4, "eighth": 8, "sixteenth": 16}
CLICKED = "loss.clicked"
MAX_CHARACTERS = 200_000  # about 50,000 tokens: minutes on a small machine


@dataclass(frozen=True)
class Text:
    """A text that is measured."""

    name: str  # one of TEXTS
    tokens: Tokens

    @property
    def n_bytes(self) -> int:
        """Bytes of the tokens that have a loss: all but the first."""
        return sum(len(piece) for piece in self.tokens.pieces[1:])


@dataclass(frozen=True)
class Choices:
    """What the page is about."""

    text: Text | None
    other: Text | None
    unit: str
    window: int
    stride: int
    token: int | None  # the one that is explained; None: the most surprising

    @property
    def params(self) -> dict[str, int]:
        """Window and stride, as the analysis takes them."""
        return {"window": self.window, "stride": self.stride}


def choose(frame: Frame) -> Choices:
    """The controls, one row."""
    first, second, third, more = st.columns([2, 2, 3, 1], vertical_alignment="bottom")
    with first:
        name = st.selectbox(
            "Text",
            TEXTS,
            key="measured",
            bind="query-params",
            help="It may be longer than the model's context: then it is read in windows. The built-in texts were written for "
            "this app.",
        )
    with second:
        against = st.selectbox(
            "Compare with",
            AGAINST,
            key="against",
            bind="query-params",
            help="Another text, measured in the same way.",
        )
    with third:
        unit = segments(
            "Unit",
            UNITS,
            key="unit",
            help="The same number four ways: a loss of 1 nat is 1.44 bits, a perplexity of 2.72, a probability of 36.8 %.",
        )
    settings = more.popover("More")
    texts = {each: _tokens(frame, each) for each in dict.fromkeys((name, against)) if each != NOTHING}
    text = texts[name]
    with settings:
        window, stride = _choose_window(frame.model.config.n_ctx)
        token = _choose_token(0 if text is None else len(text.tokens.ids))
    return Choices(text, texts.get(against), unit, window, stride, token)


def _choose_window(n_ctx: int) -> tuple[int, int]:
    """How much is read at once, and how much further the next window begins."""
    offered = [each for each in WINDOWS if each == WHOLE or int(each) < n_ctx]
    if st.session_state.get("loss_window") not in (None, *offered):
        st.session_state["loss_window"] = WHOLE  # a link made with another model
    chosen = st.selectbox(
        "Window (tokens)",
        offered,
        key="loss_window",
        bind="query-params",
        help=f"How many tokens the model reads at once, at most its context of {n_ctx:,}. A longer text is read in windows.",
    )
    share = st.selectbox(
        "Stride (share of a window)",
        list(STRIDES),
        key="loss_stride",
        bind="query-params",
        help="How much further the next window begins. A small stride gives every token more context and takes longer.",
    )
    window = n_ctx if chosen == WHOLE else int(chosen)
    return window, max(1, window // STRIDES[share])


def _choose_token(n_tokens: int) -> int | None:
    """The token that is explained; a click on the strip, which is drawn further down, arrives in the next run."""
    if CLICKED in st.session_state:
        st.session_state["loss_token"] = st.session_state.pop(CLICKED)
    kept = st.session_state.get("loss_token")
    if kept is not None and not 1 <= kept < n_tokens:
        st.session_state["loss_token"] = None
    return st.number_input(
        "Token that is explained",
        min_value=1,
        max_value=max(n_tokens - 1, 1),
        value=None,
        key="loss_token",
        bind="query-params",
        placeholder="the most surprising",
        help="Counted from zero; token 0 has no loss. A click on a token does the same.",
    )


def _tokens(frame: Frame, name: str) -> Text | None:
    """The chosen text as tokens; None where it cannot be one, which is said."""
    if name == PROMPT:
        return Text(name, frame.tokens)
    written = _own_text() if name == OWN else PASSAGES[name]
    try:
        return Text(name, get_backend().tokenize(written, bos=frame.bos, plain=True))
    except (ValueError, Refused) as error:
        say_error(str(error))
        return None


def _own_text() -> str:
    """A text area. What was written stays while other pages are visited, and goes into a saved view, not into the link."""
    kept = "loss.own_text"
    if "own_text" not in st.session_state and kept in st.session_state:
        st.session_state["own_text"] = st.session_state[kept]
    with st.form("loss.own", border=False):
        written = st.text_area(
            "Own text", key="own_text", height=140, max_chars=MAX_CHARACTERS, placeholder="Paste a text of any length."
        )
        st.form_submit_button("Measure", help="Ctrl+Enter in the text does the same.")
    st.session_state[kept] = written
    return written


def window_words(choices: Choices, n_tokens: int) -> str:
    """How a text is read, for a caption."""
    window, stride = choices.window, choices.stride
    n = n_windows(n_tokens, window, stride)
    if n == 1:
        return f"{n_tokens:,} tokens, read in one pass."
    return (
        f"{n_tokens:,} tokens, read in {n:,} windows of W = {window:,} tokens, each S = {stride:,} further. Every token is "
        f"scored once, with at least W − S = {window - stride:,} tokens of context (fewer only at the very beginning)."
    )
