"""Finished results, by key, least recently used first out, bounded in bytes. Used by the worker under its lock."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np


def size_of(value: Any) -> int:
    """Bytes a result holds: array buffers, text, and a little for every object."""
    if isinstance(value, np.ndarray):
        return value.nbytes + 128
    if isinstance(value, bytes | str):
        return len(value) + 64
    if isinstance(value, Mapping):
        return 64 + sum(size_of(key) + size_of(item) for key, item in value.items())
    if isinstance(value, tuple | list):
        return 64 + sum(size_of(item) for item in value)
    return 32


class ResultCache:
    """At most `max_bytes`, and no entry above a quarter of it, so that one result cannot throw all others out."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.hits = 0
        self._entries: OrderedDict[str, tuple[int, Any]] = OrderedDict()

    def get(self, key: str) -> Any | None:
        """A stored value, or None."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return entry[1]

    def put(self, key: str, value: Any) -> None:
        """Store a value unless it is too large."""
        size = size_of(value)
        if size > self.max_bytes // 4:
            return
        if key in self._entries:
            self.bytes -= self._entries.pop(key)[0]
        self._entries[key] = (size, value)
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, (dropped, _) = self._entries.popitem(last=False)
            self.bytes -= dropped
