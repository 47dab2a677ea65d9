"""How much does a text repeat itself? Counts on token ids, for texts that a steered model wrote.

`distinct` is the share of different n-grams (Li, Galley, Brockett, Gao and Dolan 2016, "A Diversity-Promoting Objective Function
for Neural Conversation Models"); `repetition` the share of 4-grams that stood in the text before (Welleck et al. 2020, "Neural
Text Generation with Unlikelihood Training").

Identity: repetition(ids, n) = 1 - distinct(ids, n).

Limit: a long text repeats more than a short one, so compare texts of equal length. The loss under the unsteered model does not
replace these counts: repetition lowers it.
"""

from collections.abc import Sequence
from typing import Any


def distinct(ids: Any, n: int = 2) -> float:
    """Different n-grams over all n-grams; NaN where the text has none.

    Raises:
        ValueError: n below one, or text instead of ids.
    """
    if n < 1:
        raise ValueError(f"needs n-grams of at least one token; found n = {n}; choose 1 or more.")
    if isinstance(ids, str):
        raise ValueError("needs token ids; found text; pass the ids that were generated.")
    grams = n_grams([int(i) for i in ids], n)
    return len(set(grams)) / len(grams) if grams else float("nan")


def repetition(ids: Any, n: int = 4) -> float:
    """Share of the n-grams that stood in the text before: 0 for none, near 1 for a loop; NaN where the text is too short."""
    return 1 - distinct(ids, n)


def n_grams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """All runs of n neighbours, in order."""
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
