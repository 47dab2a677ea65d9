"""Controls that every page has: a choice of a few words that stands in the address, and a long analysis that asks first."""

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from app.ui.run import Outcome, about, run, seconds_of


def segments(
    label: str,
    options: Iterable[str],
    *,
    key: str,
    titled: bool = True,
    words: Mapping[str, str] | None = None,
    help: str | None = None,
) -> str:
    """One of a few words, the first unless another was chosen; kept in the address.

    Args:
        label: what is chosen; screen readers say it also where it is not drawn.
        options: what can be chosen.
        key: name of the choice, also in the address and in a saved view.
        titled: whether the label is drawn.
        words: what an option is called on the page, where that is another word.
        help: what the choice does.
    """
    offered = list(options)
    return st.segmented_control(
        label,
        offered,
        default=offered[0],
        required=True,
        format_func=lambda option: (words or {}).get(option, option),
        key=key,
        bind="query-params",
        help=help,
        label_visibility="visible" if titled else "collapsed",
    )


def run_when_asked(
    analysis: str, tokens: tuple[int, ...], *, slot: str, model: str, button: str, words: str, **params: Any
) -> Outcome | None:
    """The outcome of a long analysis; a button with its estimate as long as nobody has asked for it.

    Once asked, it is drawn (from the worker's cache) until the text, the model or the parameters change.

    Args:
        analysis: name in ANALYSES.
        tokens: ids of the text.
        slot: place on the page.
        model: fingerprint of the model the page shows.
        button: what the button says.
        words: one sentence on what is done.
        params: JSON-able keywords of the analysis.
    """
    kept, this = f"asked.{slot}", (model, tokens, repr(sorted(params.items())))
    if st.session_state.get(kept) != this:
        seconds = seconds_of(analysis, tokens, model=model, **params)
        st.caption(f"{words} This takes {about(seconds)} here, and can be stopped by changing anything.")
        if not st.button(button, key=f"ask.{slot}"):
            return None
        st.session_state[kept] = this
    return run(analysis, tokens, slot=slot, model=model, **params)
