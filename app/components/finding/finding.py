"""The computed sentence above a picture. Token text reaches the browser as data and is set with textContent, never as Markup."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from app.ui.token_text import visible

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Piece:
    """A token inside a sentence."""

    data: bytes


_component = st.components.v2.component(
    "finding",
    html='<p class="finding"></p>\n',
    css=(HERE / "finding.css").read_text(),
    js=(HERE / "finding.js").read_text(),
)


def finding(parts: Sequence[str | Piece], *, key: str) -> None:
    """Show a sentence made of plain text and tokens."""
    data = [{"text": part} if isinstance(part, str) else {"token": visible(part.data)} for part in parts]
    _component(key=key, data={"parts": data})
