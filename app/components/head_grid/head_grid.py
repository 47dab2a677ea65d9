"""The contact sheet: a small attention picture of every head, one of which can be opened.

Two components draw it. The pictures (about 1 MB for 270 heads of 128 tokens) travel once, in the order of the layers, and
are kept in the browser; the sheet itself says where each head stands and with which numbers, in a few kilobytes. So sorting,
tinting, marking and opening heads resends only the sheet, and a click not even that (app/components/_selection.py).
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
from jaxtyping import UInt8

from app.components._script import SHARED, source
from app.components._selection import Memo, reconcile

_HERE = Path(__file__).parent
_HTML = """
<div class="legend" hidden><span class="what"></span><span class="low"></span><span class="bar" role="img"></span>
<span class="high"></span><span class="tinted" hidden><span class="tintwhat"></span><span class="tintlow"></span>
<span class="tintbar" role="img"></span><span class="tinthigh"></span></span>
<span class="marked" hidden>marked for ablation</span>
<span class="tools"><button class="less" type="button" aria-label="Smaller pictures">−</button>
<button class="more" type="button" aria-label="Larger pictures">+</button>
<button class="png" type="button" aria-label="Download the sheet as a PNG picture">PNG</button></span></div>
<div class="box"><div class="sheet"><canvas class="canvas" aria-hidden="true"></canvas>
<div class="grid" role="grid"></div></div></div>
<div class="tip" role="tooltip" hidden></div>
"""
_MAX_HEADS = 1 << 16  # per layer: a head is one number, layer * _MAX_HEADS + head, whatever the sheet shows
_MAX_LAYERS = 1 << 12

_sheet = st.components.v2.component(
    "head_grid",
    html=_HTML,
    css=source(_HERE / "head_grid.css"),
    js=source(SHARED, *(_HERE / f"{name}.js" for name in ("sheet", "parts", "print", "head_grid"))),
)
_pixels = st.components.v2.component("head_grid_pixels", html="<span></span>", js=source(SHARED, _HERE / "pixels.js"))


def head_grid(
    packed: UInt8[np.ndarray, "head_index cell"],
    size: int,
    heads: Sequence[tuple[int, int]],
    columns: int,
    scores: Mapping[str, Sequence[float]],
    tint: Sequence[float] | None,
    ranks: Sequence[int] | None,
    *,
    selected: tuple[int, int] | None,
    ticked: Sequence[tuple[int, int]] = (),
    key: str,
    label: str,
    block: int = 1,
    n_tokens: int | None = None,
    hide_first: bool = False,
    tint_label: str = "chosen score",
    tint_range: tuple[str, str] = ("0", "1"),
) -> tuple[int, int] | None:
    """Draw the sheet and return the head (layer, head) that is open now.

    The caller owns the selection: pass what is open, keep what comes back and pass it again in the next run. A click or
    Enter wins in the run it causes; in every other run `selected` does, also when the sheet does not show that head.

    Args:
        packed: one row per head in the order to be drawn: round(255 * weight), the rows of the lower triangle one after
            the other (`Attention.packed`, its first two axes flattened and sorted).
        size: side of the pictures: tokens, or blocks of them.
        heads: (layer, head) of each row.
        columns: heads per line. Where each line holds the same heads of one layer, lines are named by the layer.
        scores: numbers that hovering and a screen reader give, by name (with the unit); NaN: not defined.
        tint: 0 to 1 per head, the chosen score on its fixed range, drawn above the diagonal; NaN: not defined.
        ranks: how many heads have a higher chosen score (`HeadScores.rank`).
        selected: the head opened by the caller.
        ticked: heads marked for ablation.
        key: name of the sheet in this session.
        label: what a screen reader calls the sheet, and the title of the downloaded picture.
        block: tokens per side of one cell where the pictures show the largest weight of blocks.
        n_tokens: of the prompt; by default size * block.
        hide_first: leave the first column out of the colours, which then run to each head's own largest weight. The
            numbers stay as they are.
        tint_label: name of the chosen score.
        tint_range: what tint 0 and 1 stand for, with the unit.

    Raises:
        ValueError: numbers that do not belong together or lie outside their range, or a head that occurs twice.
    """
    heads = [(int(layer), int(head)) for layer, head in heads]
    n_tokens = size * block if n_tokens is None else n_tokens
    _check(packed, size, heads, columns, block, n_tokens)
    _check_scores(len(heads), {**scores, **_named("tint", tint), **_named("ranks", ranks)}, tint, ranks)
    order = sorted(range(len(heads)), key=heads.__getitem__)
    pixels_digest, pixels = _compress(np.ascontiguousarray(packed[order]).tobytes())
    content = {
        "label": label,
        "size": size,
        "block": block,
        "n_tokens": n_tokens,
        "columns": columns,
        "by_layer": _by_layer(heads, columns),
        "heads": heads,
        "index": np.argsort(order).tolist(),
        "scores": [{"name": name, "values": _numbers(values)} for name, values in scores.items()],
        "tint": None if tint is None else _numbers(tint),
        "tint_label": tint_label,
        "tint_range": list(tint_range),
        "ranks": None if ranks is None else [int(rank) for rank in ranks],
        "ticked": [heads.index(pair) for pair in map(tuple, ticked) if pair in heads],
        "hide_first": hide_first,
        "pixels": {"name": key, "digest": pixels_digest},
    }
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    memo_key = f"_{key}_memo"
    memo = st.session_state.get(memo_key, Memo())
    click = read_head(st.session_state.get(key), heads, memo.seen)
    wanted = None if selected is None else encode(*selected)
    memo, found = reconcile(memo, zlib.crc32(body), _MAX_LAYERS * _MAX_HEADS, click, wanted)
    sent = None if memo.sent is None else divmod(memo.sent, _MAX_HEADS)
    front = f'{{"revision":{memo.revision},"selected":{json.dumps(sent)},'.encode()
    with st.container(gap=None):
        _pixels(key=f"{key}-pixels", data=message({"name": key, "digest": pixels_digest}, pixels))
        _sheet(key=key, data=zlib.compress(front + body[1:]), on_selected_change=lambda: None)
    # Only now: a run that Streamlit ends at the lines above must find the same click again.
    st.session_state[memo_key] = memo
    return None if found is None else divmod(found, _MAX_HEADS)


def message(head: Mapping[str, Any], body: bytes) -> bytes:
    """What the browser opens: the length of a JSON header, the header, the bytes behind it."""
    text = json.dumps(head).encode()
    return struct.pack("<I", len(text)) + text + body


def encode(layer: int, head: int) -> int:
    """One number for a head, the same on every sheet; -1 where there can be none."""
    inside = 0 <= layer < _MAX_LAYERS and 0 <= head < _MAX_HEADS
    return int(layer) * _MAX_HEADS + int(head) if inside else -1


def read_head(
    state: Any, heads: Sequence[tuple[int, int]], seen: tuple[int, int] | None = None
) -> tuple[int, int] | None:
    """Number and time of the last opened head, or None: what a browser sends is any JSON and not to be trusted.

    A head that this sheet does not show gets the number -1, which opens nothing, unless it is the click already `seen`:
    that one must keep its number, or it would count as a new click when the sheet shows the head again.
    """
    found = state.get("selected") if isinstance(state, Mapping) else None
    if isinstance(found, list | tuple) and len(found) == 2:  # AppTest sets layer and head alone
        found = {"layer": found[0], "head": found[1], "time": 0}
    if not isinstance(found, Mapping):
        return None
    layer, head, time = found.get("layer"), found.get("head"), found.get("time")
    if type(layer) is not int or type(head) is not int or type(time) is not int:
        return None
    click = (encode(layer, head), time)
    return click if (layer, head) in heads or click == seen else (-1, time)


def _check(
    packed: UInt8[np.ndarray, "head_index cell"],
    size: int,
    heads: Sequence[tuple[int, int]],
    columns: int,
    block: int,
    n_tokens: int,
) -> None:
    """The pictures belong to the heads, and the sizes to each other."""
    wanted = (len(heads), size * (size + 1) // 2)
    if packed.dtype != np.uint8 or packed.shape != wanted:
        raise ValueError(
            f"needs pictures of {wanted[0]} heads with {wanted[1]:,} bytes each; found {packed.dtype} {packed.shape}; "
            "pass the lower triangle of every head, flattened to one row."
        )
    if not heads or columns < 1 or size < 1:
        raise ValueError(
            f"needs at least one head, column and token; found {len(heads)} heads, {columns} columns and size {size}; "
            "show a message instead of an empty sheet."
        )
    if len(set(heads)) < len(heads) or min(encode(*pair) for pair in heads) < 0:
        raise ValueError(
            "needs each head once, counted from zero; found one twice or a negative one; pass (layer, head)."
        )
    if block < 1 or not (size - 1) * block < n_tokens <= size * block:
        raise ValueError(
            f"needs {size} blocks that hold all tokens; found {n_tokens} tokens in blocks of {block}; pass the block and "
            "the number of tokens of the same result."
        )


def _check_scores(
    n_heads: int,
    values: Mapping[str, Sequence[float]],
    tint: Sequence[float] | None,
    ranks: Sequence[int] | None,
) -> None:
    """One number per head each; tint on its scale; ranks that can be."""
    lengths = {name: len(column) for name, column in values.items() if len(column) != n_heads}
    if lengths:
        raise ValueError(f"needs one number for each of {n_heads} heads; found {lengths}; pass all in the order drawn.")
    if any(np.isinf(np.asarray(column, np.float64)).any() for column in values.values()):
        raise ValueError("needs finite numbers; found an infinite one; pass NaN where a score is not defined.")
    strength = np.asarray([] if tint is None else tint, np.float64)
    if (strength < 0).any() or (strength > 1).any():
        raise ValueError(
            f"needs a tint from 0 to 1; found {np.nanmin(strength):.3g} to {np.nanmax(strength):.3g}; divide by the fixed "
            "range of the score first."
        )
    if ranks is not None and any(rank < 0 for rank in ranks):
        raise ValueError("needs ranks from 0, the highest; found a negative one; pass `HeadScores.rank`.")


def _named(name: str, values: Sequence[float] | None) -> dict[str, Sequence[float]]:
    return {} if values is None else {name: values}


def _numbers(values: Sequence[float]) -> list[float | None]:
    """JSON numbers with more digits than a float32 has, so that the browser rounds the value itself; NaN is null."""
    return [None if np.isnan(value) else float(f"{value:.9g}") for value in np.asarray(values, np.float64)]


def _by_layer(heads: Sequence[tuple[int, int]], columns: int) -> bool:
    """Whether each line holds one layer, and each column the same head of every layer."""
    lines = [heads[first : first + columns] for first in range(0, len(heads), columns)]
    same_heads = {tuple(head for _, head in line) for line in lines}
    return len(same_heads) == 1 and all(len({layer for layer, _ in line}) == 1 for line in lines)


# A page runs again at every click. Compressing 2.2 MB takes 0.1 s; four sheets are at most 45 MB here.
@lru_cache(maxsize=4)
def _compress(pixels: bytes) -> tuple[int, bytes]:
    """Digest of the pictures, and the pictures compressed."""
    return zlib.crc32(pixels), zlib.compress(pixels, 1)
