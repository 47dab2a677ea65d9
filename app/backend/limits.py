"""What one request, one person and all open models may take: the one place where limits are set.

A TOML file that STREAMSCOPE_LIMITS names may set any field of `Limits` by its name; an environment variable
STREAMSCOPE_LIMIT_<FIELD> (STREAMSCOPE_LIMIT_SECONDS=30) wins over the file. Read once, when the backend starts.
"""

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

FILE_VARIABLE = "STREAMSCOPE_LIMITS"
PREFIX = "STREAMSCOPE_LIMIT_"


@dataclass(frozen=True)
class Limits:
    """Seconds are estimated seconds of computing; "heavy" and "light" requests are counted apart."""

    seconds: float = 120.0  # one request
    bytes: int = 0  # extra memory of one request; 0: 80 % of what is free when the model is loaded
    result_bytes: int = 16 << 20  # one result; the result cache keeps none that is larger
    heavy_seconds: float = 2.0  # a longer request is heavy
    heavy_jobs: int = 3  # heavy requests that one person may have at a time
    light_jobs: int = 8  # the others; a page asks one thing after another, so this is several tabs
    user_seconds: float = 180.0  # work that one person may have waiting when a heavy request comes
    wait_seconds: float = 600.0  # how long a request may have to wait for other people's
    model_bytes: int = 0  # all open models together; 0: what is free

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"needs a number from 0 up for the limit {item.name}; found {value!r}; correct it.")
            if item.type is int and not isinstance(value, int):
                raise ValueError(f"needs a whole number for the limit {item.name}; found {value!r}; round it.")


def load_limits(environment: Mapping[str, str] = os.environ) -> Limits:
    """The limits that file and environment describe.

    Raises:
        ValueError: a file that cannot be read, an unknown name, or a value that is no number.
    """
    known = {item.name: item.type for item in fields(Limits)}
    found: dict[str, Any] = {}
    if path := environment.get(FILE_VARIABLE):
        found = _read(path)
    for name, kind in known.items():
        if (text := environment.get(PREFIX + name.upper())) is None:
            continue
        try:
            found[name] = int(text) if kind is int else float(text)
        except ValueError:
            whole = "a whole number" if kind is int else "a number"
            raise ValueError(f"needs {whole} in {PREFIX}{name.upper()}; found {text!r}; correct it.") from None
    if unknown := sorted(set(found) - set(known)):
        raise ValueError(f"needs limits named {', '.join(known)}; found {unknown[0]!r}; correct or remove it.")
    return Limits(**found)


def _read(path: str) -> dict[str, Any]:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ValueError(
            f"needs the file that {FILE_VARIABLE} names; found {error.strerror}: {path}; correct it."
        ) from error
    except ValueError as error:  # tomllib's own error, or text that is not UTF-8
        raise ValueError(f"needs TOML in {path}; found {error}; correct it.") from error
