"""A vector as text and bytes: little-endian float32, checked before anybody computes with it.

No pickle: a file or a link that somebody sends holds numbers and cannot run code.
"""

import base64
import binascii
from typing import Any

import numpy as np
from jaxtyping import Float, Float32


def encode_values(values: Float[np.ndarray, " d_model"]) -> str:
    """A vector as text for JSON: base64 of little-endian float32. Exact."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")


def decode_values(text: Any, d_model: int) -> Float32[np.ndarray, " d_model"]:
    """The direction that a text holds, scaled to length one; read-only.

    Raises:
        ValueError: no base64, another width than the model's, a value that is not finite, or only zeros.
    """
    raw = decode_raw(text, d_model).astype(np.float64)
    unit = (raw / np.linalg.norm(raw)).astype(np.float32)
    unit.flags.writeable = False
    return unit


def decode_raw(text: Any, d_model: int) -> Float32[np.ndarray, " d_model"]:
    """The vector that a text holds, with its own length.

    Raises:
        ValueError: as `decode_values`.
    """
    if not isinstance(text, str):
        raise ValueError(f"needs values as base64 text; found {type(text).__name__}; pass a vector's intervention.")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(
            f"needs values as base64 of float32 numbers; found text that is not ({error}); copy it whole."
        ) from error
    if len(data) != 4 * d_model:
        raise ValueError(
            f"needs a vector of {d_model:,} numbers ({4 * d_model:,} bytes), the width of this model; found {len(data):,} bytes; "
            "make the vector with this model."
        )
    return check_values(np.frombuffer(data, dtype="<f4").astype(np.float32))


def check_values(values: Float32[np.ndarray, " d_model"]) -> Float32[np.ndarray, " d_model"]:
    """The same values.

    Raises:
        ValueError: one that is not finite, or only zeros (or so small that they have no direction).
    """
    if not np.isfinite(values).all():
        raise ValueError("needs finite numbers in the vector; found NaN or infinity; make the vector again.")
    if not np.linalg.norm(values.astype(np.float64)) > 1e-20:
        raise ValueError("needs a vector that points somewhere; found only zeros; use two groups of texts that differ.")
    return values
