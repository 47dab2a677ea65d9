"""The token strip: a text as the tokens the model sees, one of which can be selected.

The tokens travel once, compressed; a click sends back one position and nothing else. Streamlit resends a message only
when its bytes change, so the payload must not change when the user clicks: it holds the selection only as it was when
something other than the strip last set it (another picture, a link, a new text), and the browser keeps its own since.
`Memo` is what the server has to remember for that, one per strip and session.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import streamlit as st

from app.ui.token_text import split_characters, visible

_HERE = Path(__file__).parent
_HTML = """
<div class="box"><div class="strip" role="listbox" aria-label="Tokens" aria-orientation="horizontal"></div></div>
<div class="tip" id="tip" role="tooltip" hidden></div>
"""
# The text of one long token (a run of spaces, a pasted special token) is cut in the tooltip: 64 bytes fill four lines.
_MAX_HEX_BYTES = 64

_component = st.components.v2.component(
    "token_strip",
    html=_HTML,
    css=(_HERE / "token_strip.css").read_text(encoding="utf-8"),
    js=(_HERE / "token_strip.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True)
class Memo:
    """What the browser shows, as far as the server knows."""

    digest: int = 0  # of the tokens
    sent: int | None = None  # the selection inside the payload
    shown: int | None = None  # the selection on the screen: `sent`, or what was clicked since
    revision: int = 0  # counts the selections that came from outside
    seen: tuple[int, int] | None = None  # the last click taken notice of: its position and its time


def token_strip(
    pieces: Sequence[bytes],
    ids: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    special: Sequence[bool],
    *,
    selected: int | None,
    key: str,
    added: Sequence[bool] | None = None,
    label: str = "Tokens",
) -> int | None:
    """Draw the strip and return the position that is selected now.

    The caller owns the selection: pass what is selected, keep what comes back and pass it again in the next run. A
    click wins in the run it causes; in every other run `selected` does.

    Args:
        pieces: the bytes of every token.
        ids: token ids.
        starts: offset of the first character in the text; -1 for a token that is not in the text.
        ends: offset after the last character in the text; -1 for a token that is not in the text.
        special: whether the token is a special one (drawn as a pill).
        selected: position selected by the caller; None or a position that does not exist selects nothing.
        key: name of the strip in this session.
        added: whether the token was put there by us (a BOS, a chat template); by default those with start -1.
        label: what a screen reader calls the strip.

    Raises:
        ValueError: the sequences have different lengths.
    """
    if added is None:
        added = [start < 0 for start in starts]
    columns = [tuple(column) for column in (pieces, ids, starts, ends, special, added)]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"needs one entry per token; found columns of {sorted(lengths)}; pass all of the same tokens.")
    n_tokens = len(pieces)
    tokens = _describe(*columns, label)
    memo_key = f"_{key}_memo"
    click = read_click(st.session_state.get(key))
    memo, selected = reconcile(st.session_state.get(memo_key, Memo()), zlib.crc32(tokens), n_tokens, click, selected)
    head = f'{{"digest":{memo.digest},"revision":{memo.revision},"selected":{json.dumps(memo.sent)},"tokens":'
    _component(key=key, data=zlib.compress(head.encode() + tokens + b"}"), on_selected_change=lambda: None)
    # Only now: a run that Streamlit ends at the line above must find the same click again.
    st.session_state[memo_key] = memo
    return selected


def read_click(state: Any) -> tuple[int, int] | None:
    """Position and time of the last click, or None: what a browser sends is any JSON and not to be trusted."""
    found = state.get("selected") if isinstance(state, Mapping) else None
    if type(found) is int:  # AppTest sets the position alone
        found = {"position": found, "time": 0}
    if not isinstance(found, Mapping):
        return None
    position, time = found.get("position"), found.get("time")
    return (position, time) if type(position) is int and type(time) is int else None


def reconcile(
    memo: Memo, digest: int, n_tokens: int, click: tuple[int, int] | None, selected: int | None
) -> tuple[Memo, int | None]:
    """What the server remembers after this run, and the selection it returns.

    Args:
        memo: what it remembered before.
        digest: of the tokens drawn now.
        n_tokens: how many they are; no other position is ever returned.
        click: the last click in the component's state, new or not.
        selected: what the caller passes.
    """
    fresh = click is not None and click != memo.seen and 0 <= click[0] < n_tokens
    wanted = click[0] if click is not None and fresh else selected
    result = wanted if wanted is not None and 0 <= wanted < n_tokens else None
    shown = result if fresh else memo.shown
    # Taken off the page, the component forgets its clicks: then the payload has to say what is selected.
    forgotten = click is None and memo.seen is not None
    if forgotten or digest != memo.digest or shown != result:
        return Memo(digest, result, result, memo.revision + 1, click), result
    return Memo(digest, memo.sent, shown, memo.revision, click), result


# Describing 8,192 tokens takes 85 ms of CPU and a page runs again at every click; 16 of them are about 10 MB.
@lru_cache(maxsize=16)
def _describe(
    pieces: tuple[bytes, ...],
    ids: tuple[int, ...],
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    special: tuple[bool, ...],
    added: tuple[bool, ...],
    label: str,
) -> bytes:
    """Everything the browser draws, as JSON: columns, because they compress best."""
    runs = split_characters(pieces)
    columns = {
        "label": label,
        "shown": [visible(piece) for piece in pieces],
        "hex": [piece[:_MAX_HEX_BYTES].hex(" ").upper() for piece in pieces],
        "n_bytes": [len(piece) for piece in pieces],
        "id": [int(i) for i in ids],
        "start": [int(i) for i in starts],
        "end": [int(i) for i in ends],
        "special": [int(flag) for flag in special],
        "added": [int(flag) for flag in added],
        "newline": [int(b"\n" in piece) for piece in pieces],
        "broken": [int(not _is_utf8(piece)) for piece in pieces],
        "runs": [[first, last, visible(b"".join(pieces[first : last + 1]))] for first, last in runs],
    }
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode()


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
