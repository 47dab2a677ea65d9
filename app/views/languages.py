"""What the same content costs in different languages, beside the person's own prompt."""

import streamlit as st

from analyses.languages import ARTICLE_1, compare_languages
from analyses.tokenization import Tokens
from app.backend import get_backend
from app.figures.languages import languages_figure
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.words import show_figure

OWN = "Your prompt"
MEASURES = {
    "relative_to_english": "Against English",
    "tokens_per_character": "Per character",
    "tokens_per_byte": "Per byte",
}


@st.cache_data(max_entries=8, show_spinner=False)
def _article_tokens(fingerprint: str) -> dict[str, Tokens]:
    """The sixteen texts with one model's tokenizer; the fingerprint is the key."""
    return {name: get_backend().tokenize(text, bos="none") for name, text in ARTICLE_1.items()}


def draw_languages(frame: Frame) -> None:
    """Bars and a table, one row per language."""
    texts = dict(_article_tokens(frame.model.config.fingerprint))
    own = not frame.chat and frame.tokens.n_cut == 0 and frame.prompt != ""
    if own:
        texts[OWN] = frame.tokens
    costs = compare_languages(texts)
    measure = segments("Compare tokens", MEASURES, key="measure", words=MEASURES)
    show_figure(
        languages_figure(costs, measure=measure, own=OWN if own else None),
        key="tokens.languages",
        alt="Tokens per language",
    )
    st.caption(
        "Article 1 of the Universal Declaration of Human Rights (United Nations, 1948): the same two sentences "
        "each time. "
        "Counts belong to this tokenizer; one short text is no average of a language."
    )
    with st.expander("The numbers"):
        st.dataframe(costs.to_frame(), hide_index=True)
