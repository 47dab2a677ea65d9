"""What a person sees while a model is being opened: how far it is, what is being done, and a way to stop."""

import time

import streamlit as st

from app.backend import get_backend
from app.backend.protocol import ModelInfo, Status
from app.catalogue import label_of, load_catalogue
from app.ui.words import literal, say_error

POLL_SECONDS = 0.2


def wait_for_model() -> ModelInfo:
    """The loaded model; while the first one is loading, its progress takes the page's place."""
    backend = get_backend()
    place = st.empty()
    while (status := backend.status()).model is None:
        if status.error and not status.opening:
            place.empty()
            say_error(status.error)
            if st.button("Try again", icon=":material/refresh:"):
                first = load_catalogue().entries[0]
                backend.open(first.source, revision=first.revision)
                st.rerun()
            st.stop()
        place.progress(*_bar(status))
        time.sleep(POLL_SECONDS)
    place.empty()
    return status.model


def _bar(status: Status) -> tuple[float, str]:
    progress = status.progress
    fraction = min(1.0, progress.done / progress.total) if progress is not None and progress.total > 0 else 0.0
    note = progress.note if progress is not None and progress.note else "loading"
    return fraction, f"Opening {literal(label_of(status.opening))}: {literal(note)} ({fraction:.0%})"


@st.fragment(run_every=0.5)
def show_opening(fingerprint: str) -> None:
    """Progress of a second model beside the loaded one, with a stop button; redraws the page when it takes over."""
    status = get_backend().status()
    if status.model is not None and status.model.config.fingerprint != fingerprint:
        st.rerun()
    if not status.opening:
        st.rerun()
    st.progress(*_bar(status))
    st.caption("The model that is open stays usable until the new one is ready.")
    if st.button("Stop opening", key="frame.stop_opening", icon=":material/close:"):
        get_backend().cancel_open()
        st.rerun()
