"""One head's attention, large, with tokens on both sides."""

from app.components.head_map.head_map import head_map

__all__ = ["head_map"]
