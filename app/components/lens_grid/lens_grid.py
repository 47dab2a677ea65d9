"""The lens grid: what every layer reads as at every position, one coloured cell each, one of which can be pinned.

The whole grid travels once, compressed, with the numbers that hovering shows; a click sends back one cell and nothing
else (app/components/_selection.py says how the payload stays the same meanwhile). The browser draws the rows and only
those columns that can be seen.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from app.components._script import source
from app.components._selection import Memo, reconcile
from app.components.lens_grid.content import LensPicture
from app.components.lens_grid.payload import pack

_HERE = Path(__file__).parent
HTML = """
<div class="legend" hidden><span class="measure"></span>
<span class="scale"><span class="low"></span><span class="bar" role="img"></span><span class="high"></span></span>
<span class="mark" hidden></span>
<button class="png" type="button" aria-label="Download the grid as a PNG picture">PNG</button></div>
<div class="box"><div class="table" role="grid"></div></div>
<div class="tip" id="tip" role="tooltip" hidden></div>
"""


SCRIPT = source(*(_HERE / name for name in ("unpack.js", "picture.js", "parts.js", "lens_grid.js", "mount.js")))
STYLE = source(_HERE / "lens_grid.css")

_component = st.components.v2.component("lens_grid", html=HTML, css=STYLE, js=SCRIPT)


def lens_grid(picture: LensPicture, *, selected: tuple[int, int] | None, key: str) -> tuple[int, int] | None:
    """Draw the grid and return the cell (row, column) that is pinned now.

    The caller owns the selection: pass what is pinned, keep what comes back and pass it again in the next run. A click
    wins in the run it causes; in every other run `selected` does.

    Args:
        picture: what is drawn.
        selected: (row, column) pinned by the caller; None or a cell that does not exist pins nothing.
        key: name of the grid in this session.

    Raises:
        ValueError: shapes that do not belong together, or a shade outside 0 to 1.
    """
    body, shape = pack(picture), picture.shape
    memo_key = f"_{key}_memo"
    memo, flat = reconcile(
        st.session_state.get(memo_key, Memo()),
        zlib.crc32(body),
        shape[0] * shape[1],
        read_cell(st.session_state.get(key), *shape),
        flatten(selected, *shape),
    )
    data = message(body, memo.digest, memo.revision, memo.sent)
    _component(key=key, data=data, on_selected_change=lambda: None)
    # Only now: a run that Streamlit ends at the line above must find the same click again.
    st.session_state[memo_key] = memo
    return None if flat is None else divmod(flat, shape[1])


def message(body: bytes, digest: int, revision: int, selected: int | None) -> bytes:
    """What the browser gets: the length of a JSON header, the header with the selection, the compressed grid."""
    head = json.dumps({"digest": digest, "revision": revision, "selected": selected}).encode()
    return struct.pack("<I", len(head)) + head + body


def flatten(cell: tuple[int, int] | None, n_rows: int, n_columns: int) -> int | None:
    """Row * n_columns + column, or None for a cell that the grid does not have."""
    if cell is None or not (0 <= cell[0] < n_rows and 0 <= cell[1] < n_columns):
        return None
    return int(cell[0]) * n_columns + int(cell[1])


def read_cell(state: Any, n_rows: int, n_columns: int) -> tuple[int, int] | None:
    """Number and time of the last clicked cell, or None: what a browser sends is any JSON and not to be trusted.

    A cell that this grid does not have (a click on the picture before) gets the number -1, which selects nothing.
    """
    found = state.get("selected") if isinstance(state, Mapping) else None
    if isinstance(found, list | tuple) and len(found) == 2:  # AppTest sets row and column alone
        found = {"row": found[0], "column": found[1], "time": 0}
    if not isinstance(found, Mapping):
        return None
    row, column, time = found.get("row"), found.get("column"), found.get("time")
    if type(row) is not int or type(column) is not int or type(time) is not int:
        return None
    flat = flatten((row, column), n_rows, n_columns)
    return (-1 if flat is None else flat, time)
