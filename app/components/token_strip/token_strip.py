"""The token strip: a text as the tokens the model sees, one of which can be selected.

The tokens travel once, compressed; a click sends back one position and nothing else (app/components/_selection.py says
how the payload stays the same meanwhile).
"""

import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import streamlit as st

from app.components._selection import Memo, read_click, reconcile
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
    amounts: Sequence[float | None] | None = None,
    notes: Sequence[str] | None = None,
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
        amounts: how strongly each token is coloured, 0 to 1; None for one that has no amount.
        notes: what the tooltip says about each token before its bytes, line by line.
        label: what a screen reader calls the strip.

    Raises:
        ValueError: the sequences have different lengths.
    """
    if added is None:
        added = [start < 0 for start in starts]
    columns = [tuple(column) for column in (pieces, ids, starts, ends, special, added)]
    shades = None if amounts is None else tuple(None if a is None else round(100 * a) for a in amounts)
    said = None if notes is None else tuple(notes)
    lengths = {len(column) for column in (*columns, shades, said) if column is not None}
    if len(lengths) > 1:
        raise ValueError(f"needs one entry per token; found columns of {sorted(lengths)}; pass all of the same tokens.")
    n_tokens = len(pieces)
    tokens = _describe(*columns, label, shades, said)
    memo_key = f"_{key}_memo"
    click = read_click(st.session_state.get(key))
    memo, selected = reconcile(st.session_state.get(memo_key, Memo()), zlib.crc32(tokens), n_tokens, click, selected)
    head = f'{{"digest":{memo.digest},"revision":{memo.revision},"selected":{json.dumps(memo.sent)},"tokens":'
    _component(key=key, data=zlib.compress(head.encode() + tokens + b"}"), on_selected_change=lambda: None)
    # Only now: a run that Streamlit ends at the line above must find the same click again.
    st.session_state[memo_key] = memo
    return selected


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
    shades: tuple[int | None, ...] | None,
    notes: tuple[str, ...] | None,
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
        **({} if shades is None else {"shade": shades}),
        **({} if notes is None else {"note": notes}),
    }
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode()


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True
