"""The attention pictures of all heads on one sheet."""

from app.components.head_grid.head_grid import head_grid

__all__ = ["head_grid"]
