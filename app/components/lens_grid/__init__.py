"""The logit lens as a grid of layers and positions, in the page and as a document of its own."""

from app.components.lens_grid.content import LensPicture
from app.components.lens_grid.lens_grid import lens_grid
from app.components.lens_grid.standalone import standalone_html

__all__ = ["LensPicture", "lens_grid", "standalone_html"]
