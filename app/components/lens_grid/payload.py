"""The lens grid's content as the bytes that travel: checked, deduplicated, rounded to what is shown, compressed.

Inside the zlib stream: the length of the header (4 bytes, little endian), the header (JSON) and the planes of numbers in
the order `top_ids` (as indices into the header's strings), `top_log_probability` (as probabilities), shade, target,
values. A cell is row * n_columns + column; the top-k lie k after k: first the best of every cell.
"""

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from jaxtyping import Int, Shaped

from app.components.lens_grid.content import LensPicture
from app.components.lens_grid.digits import (
    pack_integers,
    pack_numbers,
    pack_planes,
    pack_probabilities,
    pack_sorted_probabilities,
)
from app.ui.token_text import visible

NO_SHADE = 255  # shade 0 to 1 is 0 to 254
PERCENT = "%"  # the unit that says: a probability from 0 to 1, printed as people read it


def pack(picture: LensPicture) -> bytes:
    """Everything the browser draws except the selection, zlib compressed.

    Raises:
        ValueError: shapes that do not belong together, a shade outside 0 to 1, a band after a row that is not there.
    """
    values = {name: np.asarray(array) for name, array in picture.values.items()}
    target, units = picture.target, picture.units
    _check_shapes(picture, {"shade": picture.shade, **({} if target is None else {"target": target}), **values})
    blank = picture.top_ids < 0  # not known yet
    log_probability = picture.top_log_probability
    if (np.isnan(log_probability) & ~blank).any() or (np.diff(log_probability, axis=-1) > 0).any():
        raise ValueError("needs the best token first; found a larger or no probability after it; sort the top k.")
    _check_marks(picture)

    strings, indices = _string_table(picture.top_ids, picture.pieces)
    id_bytes, id_planes = pack_planes(np.moveaxis(indices, -1, 0))
    top = np.exp(np.where(blank, np.nan, log_probability), dtype=np.float64)
    top_spec, top_planes = pack_sorted_probabilities(np.moveaxis(top, -1, 0))
    shade = picture.shade
    shades = np.where(np.isnan(shade), NO_SHADE, np.rint(np.clip(shade, 0, 1) * (NO_SHADE - 1))).astype(np.uint8)
    marks = b"" if target is None else np.ascontiguousarray(target).view(np.uint8).tobytes()
    packed = [(name, *_pack_values(array, units.get(name, ""))) for name, array in values.items()]
    header = {
        "label": picture.label,
        "measure": picture.measure,
        "legend": list(picture.legend),
        "rows": list(picture.rows),
        "columns": [_shown(bytes(piece)) for piece in picture.columns],
        "positions": [int(position) for position in picture.positions],
        "hidden_after": {str(row): int(count) for row, count in picture.hidden_after.items()},
        "k": int(picture.top_ids.shape[2]),
        "strings": strings,
        "id": {"bytes": id_bytes},
        "top": top_spec,
        "target": None if target is None else picture.target_label,
        "values": [{"name": name, "unit": units.get(name, ""), **spec} for name, spec, _ in packed],
    }
    head = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    body = [id_planes, top_planes, shades.tobytes(), marks, *(planes for _, _, planes in packed)]
    return _compress(struct.pack("<I", len(head)) + head + b"".join(body))


def _check_shapes(picture: LensPicture, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
    """Everything belongs to the same rows and columns, and there are some."""
    shape, top_ids, top_log_probability = picture.shape, picture.top_ids, picture.top_log_probability
    if 0 in shape:
        raise ValueError(f"needs at least one row and one column; found {shape[0]} and {shape[1]}; pass a token.")
    found = {name: np.shape(array) for name, array in arrays.items() if np.shape(array) != shape}
    if len(picture.positions) != shape[1]:
        found["positions"] = (len(picture.positions),)
    if top_ids.ndim != 3 or top_ids.shape[:2] != shape or top_ids.shape[2] < 1:
        found["top_ids"] = top_ids.shape
    elif top_log_probability.shape != top_ids.shape:
        found["top_log_probability"] = top_log_probability.shape
    if found:
        listed = ", ".join(f"{name} {size}" for name, size in found.items())
        raise ValueError(
            f"needs arrays for {shape[0]} rows and {shape[1]} columns; found {listed}; pass all of the same lens."
        )


def _check_marks(picture: LensPicture) -> None:
    """Colours on the scale, marks that are yes or no, bands between rows."""
    shade, target, n_rows = picture.shade, picture.target, len(picture.rows)
    low, high = (np.nanmin(shade), np.nanmax(shade)) if np.isfinite(shade).any() else (0.0, 0.0)
    if low < -1e-6 or high > 1 + 1e-6:
        raise ValueError(f"needs a shade from 0 to 1; found {low:.3g} to {high:.3g}; divide by the fixed range first.")
    if target is not None and np.asarray(target).dtype != bool:
        raise ValueError(
            f"needs a true or false target mark per cell; found {np.asarray(target).dtype}; pass `rank == 0`."
        )
    wrong = [row for row, count in picture.hidden_after.items() if not -1 <= row < n_rows - 1 or count < 1]
    if wrong:
        raise ValueError(
            f"needs hidden layers counted after a row from -1 to {n_rows - 2} (the last row is always there); found "
            f"{wrong[0]}: {picture.hidden_after[wrong[0]]}; leave it out."
        )


def _string_table(
    top_ids: Int[np.ndarray, "row column k"], pieces: Callable[[int], bytes]
) -> tuple[list[str], Int[np.ndarray, "row column k"]]:
    """Every token's text once, the commonest first (small numbers compress), and the indices into it."""
    ids, inverse, counts = np.unique(top_ids, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order), dtype=np.uint32)
    return ["" if i < 0 else _shown(bytes(pieces(int(i)))) for i in ids[order]], place[inverse.reshape(top_ids.shape)]


def _pack_values(array: Shaped[np.ndarray, "row column"], unit: str) -> tuple[Mapping[str, object], bytes]:
    """Whole numbers exactly, probabilities as percentages, everything else with three digits."""
    if np.issubdtype(array.dtype, np.integer):
        return pack_integers(array)
    return pack_probabilities(array) if unit == PERCENT else pack_numbers(array)


# A page runs again at every click: the texts of 1,500 tokens take 15 ms, compressing a grid of 600 columns 100 ms.
@lru_cache(maxsize=65_536)
def _shown(piece: bytes) -> str:
    return visible(piece)


@lru_cache(maxsize=8)
def _compress(body: bytes) -> bytes:
    # Small blocks and few searched matches suit planes of near-random digits: 69 instead of 74 KB for 31 x 128 cells.
    stream = zlib.compressobj(memLevel=4, strategy=zlib.Z_FILTERED)
    return stream.compress(body) + stream.flush()
