"""Numbers as the three digits that a person is shown, packed into one to four bytes each.

A quantised value can round to a digit that is not true. So what travels is the rounding itself: mantissa 100 to 999,
exponent and sign, made from the full value. Python and the browser then print the same digits (a test compares them).
The code of a value is `_FIRST + ((exponent - low) * 900 + mantissa - 100)`, doubled plus the sign where a negative
value occurs; codes below `_FIRST` say that there is no such number. Without a sign the codes rise with the values. All
low bytes come first, then the next ones: zlib finds more in them that way.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped, UInt

_ZERO, _NAN, _FIRST = 0, 1, 2
_MANTISSAS = 900
_SMALLEST = 1e-300  # below it a division by the power of ten would leave the range of a float64; shown as 0


def pack_planes(codes: UInt[np.ndarray, "..."]) -> tuple[int, bytes]:
    """Bytes per number, and the numbers: all their lowest bytes, then the next ones."""
    n_bytes = max(1, (int(codes.max(initial=0)).bit_length() + 7) // 8)
    planes = codes.astype("<u4").reshape(-1, 1).view(np.uint8)[:, :n_bytes]
    return n_bytes, np.ascontiguousarray(planes.T).tobytes()


def pack_integers(values: Int[np.ndarray, "..."]) -> tuple[Mapping[str, Any], bytes]:
    """Exact whole numbers, such as ranks; a negative one stands for "there is none"."""
    n_bytes, planes = pack_planes((np.maximum(values, -1) + 1).astype(np.uint32))
    return {"kind": "integer", "bytes": n_bytes}, planes


def pack_probabilities(values: Float[np.ndarray, "..."]) -> tuple[Mapping[str, Any], bytes]:
    """Probabilities from 0 to 1."""
    spec, codes = probability_codes(values)
    n_bytes, planes = pack_planes(codes)
    return {"bytes": n_bytes} | spec, planes


def pack_sorted_probabilities(values: Float[np.ndarray, "k ..."]) -> tuple[Mapping[str, Any], bytes]:
    """Probabilities that fall along the first axis: the first, then by how much each code is below the one before.

    A tenth smaller than the codes themselves for the top five of a lens.
    """
    spec, codes = probability_codes(values)
    steps = np.concatenate([codes[:1], codes[:-1] - codes[1:]])
    n_bytes, planes = pack_planes(steps)
    return {"bytes": n_bytes} | spec, planes


def probability_codes(values: Float[np.ndarray, "..."]) -> tuple[dict[str, Any], UInt[np.ndarray, "..."]]:
    """Codes in which mantissa 100 with exponent 0 is "more than 99.9 %", as `percent` prints 0.9996, and 101 is 1."""
    values = np.asarray(values, np.float64)
    spec, codes = _decimal(np.minimum(values, 1.0))
    return {"kind": "probability"} | spec, codes + (values >= 1).astype(np.uint32)


def pack_numbers(values: Float[np.ndarray, "..."]) -> tuple[Mapping[str, Any], bytes]:
    """Any finite numbers; NaN stands for "there is none".

    Raises:
        ValueError: an infinite number.
    """
    values = np.asarray(values, np.float64)
    if np.isinf(values).any():
        raise ValueError("needs finite numbers; found an infinite one; pass NaN where there is no number.")
    spec, codes = _decimal(values)
    n_bytes, planes = pack_planes(codes)
    return {"kind": "number", "bytes": n_bytes} | spec, planes


def _decimal(values: Shaped[np.ndarray, "..."]) -> tuple[dict[str, Any], UInt[np.ndarray, "..."]]:
    """The lowest exponent, whether there is a sign, and the codes."""
    size = np.abs(values)
    there = size >= _SMALLEST  # False for NaN
    size = np.where(there, size, 1.0)
    exponent = np.floor(np.log10(size)).astype(np.int64)
    mantissa = np.rint(size / 10.0 ** (exponent - 2)).astype(np.int64)
    # The logarithm may be one off beside a power of ten, and 999.6 rounds to 1000.
    exponent += (mantissa >= 1000).astype(np.int64) - (mantissa < 100).astype(np.int64)
    mantissa = np.clip(np.rint(size / 10.0 ** (exponent - 2)).astype(np.int64), 100, 999)
    low = int(exponent[there].min(initial=0))
    signed = bool((values[there] < 0).any())
    codes = (exponent - low) * _MANTISSAS + mantissa - 100
    if signed:
        codes = 2 * codes + (values < 0)
    codes = np.where(there, codes + _FIRST, np.where(np.isnan(values), _NAN, _ZERO))
    return {"low": low, "signed": signed}, codes.astype(np.uint32)
