"""Sentences that may contain a person's text, shown literally."""

import re

import streamlit as st

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=@])")


def literal(text: str) -> str:
    """Text escaped so that Streamlit's Markdown shows it as it is: no formatting, no formulas, no icons, no links."""
    return _MARKS.sub(r"\\\1", text)


def say_error(sentence: str) -> None:
    """One sentence that says what is needed, what was found and what to do."""
    st.error(literal(sentence), icon=":material/error:")


def say_note(sentence: str) -> None:
    """A quiet remark beside a picture."""
    st.caption(literal(sentence))
