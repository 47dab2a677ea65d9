"""Take it with you: the link, the table, the picture, and the Python that gives the same numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app.ui.frame import LINK_CHARACTERS, Frame
from app.ui.saved_view import write_view
from app.ui.words import literal


def python_code(frame: Frame, imports: str, body: str) -> str:
    """A script that reproduces what is on the page with the library alone.

    Args:
        frame: model, prompt and how it becomes tokens.
        imports: names of `analyses` that `body` needs, besides load_model and run_tokenization.
        body: lines that use `model` and `text`.
    """
    config = frame.model.config
    source = "" if config.kind == "embedded" else repr(config.name)
    if config.revision and source:
        source += f", revision={config.revision!r}"
    if frame.step is not None:
        source += f", checkpoint={frame.step}"
    options = {"bos": frame.bos, "chat": frame.chat, "plain": frame.plain, "keep": frame.keep}
    defaults = {"bos": "default", "chat": False, "plain": False, "keep": None}
    changed = "".join(f", {name}={value!r}" for name, value in options.items() if value != defaults[name])
    names = ", ".join(sorted({"load_model", "run_tokenization", *imports.replace(",", " ").split()}))
    return (
        f"from analyses import {names}\n\n"
        f"model = load_model({source})\n"
        f"text = run_tokenization(model, {frame.prompt!r}{changed})\n"
        f"{body}\n"
    )


def take_with_you(
    frame: Frame,
    *,
    tables: Mapping[str, Any],
    figures: Mapping[str, Callable[[], go.Figure | str]],
    code: str,
) -> None:
    """Downloads and code at the end of a page.

    Args:
        frame: what the page shows.
        tables: file name without ending -> pandas table, or a function that makes it when it is asked for.
        figures: file name without ending -> function that draws the figure, or writes a whole HTML document.
        code: what `python_code` returned.
    """
    with st.expander("Take it with you: link, data, picture, Python"):
        if len(frame.prompt) <= LINK_CHARACTERS:
            st.caption(
                "The address of this page holds the prompt and every choice: copy it to share this view. It does not hold "
                f"the model, which is {literal(frame.model.config.name)} here."
            )
        else:
            st.caption(
                f"The prompt has {len(frame.prompt):,} characters, more than a link should carry "
                f"({LINK_CHARACTERS:,}): "
                "send the view as a file instead, and open it on the left."
            )
        # Made when asked for: a file that a newer run has replaced would be an error in the browser's console.
        view = write_view(frame.prompt, st.session_state)
        with st.container(horizontal=True):
            st.download_button(
                "View (JSON)",
                lambda: view,
                "streamscope-view.json",
                "application/json",
                key="export.view",
            )
            for name, table in tables.items():
                st.download_button(
                    f"{name} (CSV)",
                    lambda table=table: (table() if callable(table) else table).to_csv(index=False),
                    f"{name}.csv",
                    "text/csv",
                    key=f"export.{name}.csv",
                )
            for name, draw in figures.items():
                st.download_button(
                    f"{name} (HTML)",
                    lambda draw=draw: as_html(draw()),
                    f"{name}.html",
                    "text/html",
                    key=f"export.{name}.html",
                )
        st.caption("As PNG: the camera symbol at the top right of a picture.")
        st.code(code, language="python")


def as_html(picture: go.Figure | str) -> str:
    """A document that opens without a network."""
    return picture if isinstance(picture, str) else picture.to_html(include_plotlyjs=True)
