"""What a person should know about these tokens: what was lost, cut, added, or taken for a special token."""

import unicodedata

import streamlit as st

from app.ui.frame import Frame
from app.ui.token_text import visible
from app.ui.words import literal

MAX_LISTED = 12


def draw_token_notes(frame: Frame) -> None:
    """One line per remark, nothing when there is nothing to say."""
    tokens = frame.tokens
    if tokens.lost:
        names = ", ".join(
            f"{visible(c.encode())} ({unicodedata.name(c, f'U+{ord(c):04X}')})" for c in tokens.lost[:MAX_LISTED]
        )
        more = f" and {len(tokens.lost) - MAX_LISTED} more" if len(tokens.lost) > MAX_LISTED else ""
        st.warning(
            f"This vocabulary cannot represent: {literal(names)}{more}. The model does not see them.",
            icon=":material/visibility_off:",
        )
    if tokens.replaced:
        st.warning(
            f"{tokens.replaced} broken characters (lone surrogates) were replaced by U+FFFD.",
            icon=":material/broken_image:",
        )
    # In a chat the template's own marks are special too; only what the person typed is worth a remark.
    first = tokens.text.rfind(frame.prompt) if frame.chat else 0
    own = range(first, first + len(frame.prompt)) if first >= 0 else range(0)
    if any(special and start in own for special, start in zip(tokens.special, tokens.starts, strict=True)):
        st.info(
            "Your text spells a special token, so it became that token (drawn as a pill)"
            f"{'; in a chat it may end your message for the model' if frame.chat else ''}. "
            'To see it as plain text, use the switch under "How it becomes tokens".',
            icon=":material/label:",
        )
    if frame.prompt.endswith(" ") and not frame.chat:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.info(
                "The prompt ends with a space. Most tokens bring their own space in front, so a space of its own "
                "changes what comes next.",
                icon=":material/space_bar:",
            )
            st.button("Remove it", on_click=_strip_end, key="tokens.remove_space")


def _strip_end() -> None:
    st.session_state["prompt"] = st.session_state["prompt"].rstrip(" ")
