"""One token strip; the address chooses the text: `?case=nasty`, `?case=600`, `?case=8192`."""

import re

import streamlit as st

from app.components.token_strip import token_strip

NASTY = [b"<|im_start|>", b" The", b" cat", b"\n", b"\xf0\x9f", b"\x99\x82", b"<b>bold</b>"]
NASTY += [
    b"<img src=x onerror=alert(1)>",
    b"</script><script>alert(2)</script>",
    b"<a href='javascript:alert(3)'>x</a>",
]
NASTY += [b" $x^2$", b":smile:", "\u202eright".encode(), "\u200d".encode(), "مرحبا".encode(), b"&lt;", b"w" * 300]
WORDS = b"the quick brown fox jumps over a lazy dog and then it sleeps in the warm sun for hours\n"


def pieces_of(case: str) -> list[bytes]:
    """The tokens of a case."""
    if case == "nasty":
        return NASTY
    if case == "empty":
        return []
    return (re.findall(rb" ?\w+|\n", WORDS) * (int(case) // 10))[: int(case)]


def offsets(pieces: list[bytes]) -> tuple[list[int], list[int]]:
    """Character offsets: whole characters for whole tokens, the same character for the parts of one."""
    starts, ends, at = [], [], 0
    for piece in pieces:
        length = len(piece.decode("utf-8", "ignore")) or 1
        starts.append(at)
        ends.append(at + length)
        at += length if piece != b"\xf0\x9f" else 0
    return starts, ends


pieces = pieces_of(st.session_state.get("case") or st.query_params.get("case", "nasty"))
starts, ends = offsets(pieces)
special = [piece == b"<|im_start|>" for piece in pieces]


def choose(position: int | None) -> None:
    """What another picture on the page does."""
    st.session_state["mine"] = position


st.button("third", on_click=choose, args=(2,))
st.button("none", on_click=choose, args=(None,))
st.button("rerun")
st.toggle("hidden", key="hidden")
st.button("other text", on_click=lambda: st.session_state.update(case="600"))
if not st.session_state["hidden"]:
    ids = range(1000, 1000 + len(pieces))
    st.session_state["mine"] = token_strip(
        pieces, ids, starts, ends, special, selected=st.session_state.get("mine"), key="strip"
    )
st.text(f"selected={st.session_state.get('mine')}")
