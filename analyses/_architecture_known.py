"""Well-known configurations, kept as facts: what their config.json says, and what was published about their size.

Only fields that decide shapes are kept. `total` is what transformers 5.23 builds from them; `published` is what the source
says, in its own precision.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

_FILE = Path(__file__).parent / "data" / "architectures.json"


@dataclass(frozen=True)
class Known:
    """One published model."""

    name: str
    config: Mapping[str, Any]
    total: int
    active: int
    published: str
    source: str


@cache
def known_architectures() -> Mapping[str, Known]:
    """Name -> facts, in the order in which a person is offered them."""
    rows = json.loads(_FILE.read_text("utf-8"))
    return MappingProxyType({row["name"]: Known(**row) for row in rows})
