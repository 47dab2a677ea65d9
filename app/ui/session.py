"""Who is in front of the page, and which of the model's training steps is shown there."""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.backend.protocol import Who

USER_COOKIE = "streamscope_user"


def who(slot: str) -> Who:
    """The person (cookie, else this browser tab) and the place on the page that asks.

    The tab is part of the slot: a newer request cancels the older one of the same tab, never that of another.
    """
    context = get_script_run_ctx()
    tab = context.session_id if context is not None else "script"
    return Who(st.context.cookies.get(USER_COOKIE) or tab, f"{tab}:{slot}")


def chosen_step() -> int | None:
    """The training step that the page's model is shown at; None where it has no steps to choose from."""
    frame = st.session_state.get("frame")
    return None if frame is None else frame.step
