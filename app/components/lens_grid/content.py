"""What the lens grid shows, whether on a page or as a document of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped


@dataclass(frozen=True, eq=False)
class LensPicture:
    """Rows, columns and everything about their cells; not which one is pinned."""

    rows: Sequence[str]  # what each depth is called, from the top down; the last one always stays visible at the bottom
    columns: Sequence[bytes]  # the prompt's token at each column; equal tokens stay separate columns
    positions: Sequence[int]  # theirs in the prompt
    # The k most probable tokens, best first; the first is drawn in the cell. -1 leaves a cell empty: not read yet.
    top_ids: Int[np.ndarray, "row column k"]
    top_log_probability: Float[np.ndarray, "row column k"]  # nats
    pieces: Callable[[int], bytes]  # bytes of a token id (`vocabulary.piece`)
    # More numbers that hovering shows: integers exactly (negative: none), others with three digits (NaN: none).
    values: Mapping[str, Shaped[np.ndarray, "row column"]]
    shade: Float[np.ndarray, "row column"]  # 0 to 1, the colour: a measure on its fixed range; NaN draws no colour
    legend: tuple[str, str]  # what shade 0 and shade 1 stand for, with the unit
    label: str  # what a screen reader calls the grid, and the title of a downloaded picture
    target: Bool[np.ndarray, "row column"] | None = None  # True where the cell reads as the target: a green outline
    target_label: str = "the target"  # visible text
    units: Mapping[str, str] = field(default_factory=dict)  # of a value by its name; `%`: a probability from 0 to 1
    measure: str = ""  # name of what the colours show, beside the colour bar
    hidden_after: Mapping[int, int] = field(default_factory=dict)  # layers not shown after a row (-1: before the first)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows), len(self.columns)
