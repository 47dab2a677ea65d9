"""One head large: who looks where, with the tokens on both sides, one of which can be pinned.

The exact numbers of the lower triangle travel once, compressed; a click sends back one token and nothing else
(app/components/_selection.py says how the payload stays the same meanwhile).
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from jaxtyping import Float

from app.components._script import SHARED, source
from app.components._selection import Memo, reconcile
from app.ui.token_text import visible

_HERE = Path(__file__).parent
_HTML = """
<div class="legend" hidden><span class="what"></span><span class="low"></span><span class="bar" role="img"></span>
<span class="high"></span><span class="without" hidden></span>
<span class="tools"><button class="less" type="button" aria-label="Smaller cells">−</button>
<button class="more" type="button" aria-label="Larger cells">+</button>
<button class="png" type="button" aria-label="Download the map as a PNG picture">PNG</button></span></div>
<div class="main"><div class="box"><div class="plane">
<div class="top"><div class="corner"><span>looks at →</span><span>token ↓</span></div></div>
<canvas class="canvas" aria-hidden="true"></canvas>
<div class="surface" tabindex="0" role="application" aria-roledescription="attention map" aria-describedby="keys"></div>
<div class="rest"><div class="side"></div></div>
</div></div>
<div class="strip"><div class="keys" id="keys">Arrow keys move; Enter pins where a token looks, Shift+Enter who looks at it.</div>
<div class="live" role="status"></div>
<div class="heading"></div><ol class="list"></ol><div class="others"></div></div></div>
<div class="tip" role="tooltip" hidden></div>
"""
AXES = ("query", "key")  # a query looks, a key is looked at
MAX_TOKENS = 512  # 0.5 MB on the wire, and about as many cells as a screen has pixels

_component = st.components.v2.component(
    "head_map",
    html=_HTML,
    css=source(_HERE / "head_map.css"),
    js=source(SHARED, *(_HERE / f"{name}.js" for name in ("plane", "parts", "print", "head_map"))),
)

Pin = tuple[int, str]  # a token's position, and "query" (where it looks) or "key" (who looks at it)


def head_map(
    weights: Float[np.ndarray, "query key"],
    pieces: Sequence[bytes],
    *,
    name: str,
    selected: Pin | None,
    key: str,
    label: str,
    hide_first: bool = False,
    upper: float = 1.0,
    measure: str = "attention weight",
) -> Pin | None:
    """Draw the map and return the token that is pinned now, with its side.

    The caller owns the selection: pass what is pinned, keep what comes back and pass it again in the next run. A click
    wins in the run it causes (a second click on the same token takes the pin away); in every other run `selected` does.

    Args:
        weights: exact numbers of every query (row) and key (column), not negative; what lies above the diagonal is not
            sent and drawn as hidden.
        pieces: bytes of the prompt's tokens.
        name: of the head, as in "L18H6".
        selected: position and "query" or "key", pinned by the caller; None or a token that does not exist pins nothing.
        key: name of the map in this session.
        label: what a screen reader calls the map, and the title of the downloaded picture.
        hide_first: leave key 0 out of the colours, which then run to the largest number of the others. The numbers
            stay as they are.
        upper: where the colours end; fixed, so that maps can be compared.
        measure: what the numbers are, with the unit.

    Raises:
        ValueError: no square of numbers, too many tokens, another number of tokens, or numbers that are negative or not
            finite.
    """
    _check(weights, pieces, upper)
    n_tokens = len(pieces)
    rows, columns = np.tril_indices(n_tokens)
    lower = np.ascontiguousarray(weights[rows, columns], "<f4")
    head = {
        "label": label,
        "name": name,
        "tokens": [visible(bytes(piece)) for piece in pieces],
        "hide_first": hide_first,
        "upper": float(upper),
        "measure": measure,
    }
    body = _compress(json.dumps(head, ensure_ascii=False).encode(), lower.tobytes())
    memo_key = f"_{key}_memo"
    memo = st.session_state.get(memo_key, Memo())
    click = read_pin(st.session_state.get(key))
    memo, found = reconcile(memo, zlib.crc32(body), 1 + 2 * n_tokens, click, encode(selected, n_tokens))
    front = json.dumps({"digest": memo.digest, "revision": memo.revision, "selected": decode(memo.sent)}).encode()
    _component(key=key, data=struct.pack("<I", len(front)) + front + body, on_selected_change=lambda: None)
    # Only now: a run that Streamlit ends at the line above must find the same click again.
    st.session_state[memo_key] = memo
    return decode(found)


def encode(pin: Pin | None, n_tokens: int) -> int:
    """One number for what is pinned, the same for every length of the prompt; 0 where nothing is."""
    if pin is None or pin[1] not in AXES or not 0 <= pin[0] < n_tokens:
        return 0
    return 1 + 2 * int(pin[0]) + AXES.index(pin[1])


def decode(code: int | None) -> Pin | None:
    """What `encode` made a number of."""
    return ((code - 1) // 2, AXES[(code - 1) % 2]) if code else None


def read_pin(state: Any) -> tuple[int, int] | None:
    """Number and time of the last click, or None: what a browser sends is any JSON and not to be trusted."""
    found = state.get("selected") if isinstance(state, Mapping) else None
    if isinstance(found, list | tuple) and len(found) == 2:  # AppTest sets position and side alone
        found = {"position": found[0], "axis": found[1], "time": 0}
    if not isinstance(found, Mapping):
        return None
    position, axis, time = found.get("position"), found.get("axis"), found.get("time")
    if type(time) is not int:
        return None
    if position is None and axis is None:  # the pin was taken away
        return 0, time
    if type(position) is not int or axis not in AXES:
        return None
    return (1 + 2 * position + AXES.index(axis) if position >= 0 else -1, time)


def _check(weights: Float[np.ndarray, "query key"], pieces: Sequence[bytes], upper: float) -> None:
    """A square of numbers for these tokens that colours can show."""
    n_tokens = len(pieces)
    if weights.shape != (n_tokens, n_tokens) or not n_tokens:
        raise ValueError(
            f"needs one row and one column per token; found {weights.shape} for {n_tokens} tokens; pass the exact weights "
            "of the same prompt."
        )
    if n_tokens > MAX_TOKENS:
        raise ValueError(f"needs at most {MAX_TOKENS} tokens; found {n_tokens:,}; show a part of the prompt.")
    lower = np.tril(weights)
    if not np.isfinite(lower).all() or lower.min() < 0:
        raise ValueError(
            f"needs finite numbers from 0 up; found {lower.min():.3g} to {lower.max():.3g}; pass weights, not raw scores."
        )
    if not 0 < upper < np.inf:
        raise ValueError(f"needs a range that ends above 0; found {upper}; pass where the colours should end.")


# A page runs again at every click; 512 tokens are 0.5 MB, take 20 ms to compress, and eight maps 8 MB here.
@lru_cache(maxsize=8)
def _compress(head: bytes, numbers: bytes) -> bytes:
    """Length of the header, header, then all lowest bytes of the numbers, the next ones, ...: zlib finds more that way."""
    planes = np.frombuffer(numbers, np.uint8).reshape(-1, 4).T.tobytes()
    return zlib.compress(struct.pack("<I", len(head)) + head + planes)
