"""What has been written, row by row: as coloured tokens, as a sentence, as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from analyses.generation import Generation
from analyses.vocabulary import Vocabulary, printable
from app.components.token_strip import token_strip
from app.ui.stream import Stream
from app.ui.token_text import percent, visible
from app.ui.words import say_note
from app.views.next_token import in_bits

AT = "generate.at"  # the chosen token: (row, number), in the session
SHOWN = 3  # alternatives in a tooltip


@dataclass(frozen=True)
class Row:
    """One text; numbers of tokens count what was kept from before too."""

    kept: tuple[int, ...]  # written before, and taken over with a token that was chosen by hand
    ids: tuple[int, ...]  # new since then
    probability: Sequence[float]  # of the new ones
    rank: Sequence[int]
    entropy_bits: Sequence[float]
    top: Sequence[Sequence[tuple[int, float]]]  # alternatives with their probabilities; empty while it is being written
    text: str
    ended: bool

    @property
    def whole(self) -> tuple[int, ...]:
        """Kept and new."""
        return (*self.kept, *self.ids)


def rows_of(stream: Stream) -> list[Row]:
    """The rows of what a stream holds now."""
    found = stream.fields
    if found is None:
        return []
    return [_row(found, index, tuple(stream.note.kept)) for index in range(len(found["row_ids"]))]


def _row(found: Any, index: int, kept: tuple[int, ...]) -> Row:
    ids = [int(i) for i in found["row_ids"][index] if i >= 0]
    n = len(ids)
    top: list[list[tuple[int, float]]] = [[] for _ in ids]
    if "top_ids" in found:
        chances = np.exp(found["top_log_probability"][index][:n])
        pairs = zip(found["top_ids"][index][:n].tolist(), chances.tolist(), strict=True)
        top = [list(zip(*pair, strict=True)) for pair in pairs]
    return Row(
        kept,
        tuple(ids),
        np.minimum(np.exp(found["row_log_probability"][index][:n].astype(np.float64)), 1.0).tolist(),
        found["row_rank"][index][:n].tolist(),
        [in_bits(float(nats)) for nats in found["row_entropy_nats"][index][:n]],
        top,
        found["row_text"][index],
        bool(found["row_ended"][index]),
    )


def least_certain(rows: Sequence[Row]) -> tuple[int, int] | None:
    """Row and number of the token whose distribution was the most undecided; None where nothing was written."""
    all_bits = [(bits, -row, -place) for row, each in enumerate(rows) for place, bits in enumerate(each.entropy_bits)]
    if not all_bits:
        return None
    _, row, place = max(all_bits)
    return -row, -place + len(rows[-row].kept)


def finding_words(stream: Stream, rows: Sequence[Row]) -> str:
    """The computed sentence."""
    if stream.running:
        return "Writing. Each token appears as soon as it has been chosen."
    where = least_certain(rows)
    if where is None:
        return "Nothing was written yet." if stream.failure is None else "Nothing was written: see below."
    row, place = where
    bits = rows[row].entropy_bits[place - len(rows[row].kept)]
    counts = [len(each.ids) for each in rows]
    several = len(rows) > 1
    amount = f"{len(rows)} samples, {sum(counts):,} tokens" if several else _tokens(counts[0])
    amount = f"Stopped after {amount}" if stream.stopped else amount
    if rows[row].kept:
        amount += f", after {len(rows[row].kept):,} that were kept"
    of = f" of sample {row}" if several else ""
    ended = "" if several or not rows[0].ended else " The last one is an end mark."
    return f"{amount}; the least certain choice was token {place}{of} ({bits:.1f} bits).{ended}"


def draw_rows(vocabulary: Vocabulary, stream: Stream) -> None:
    """The texts as coloured tokens; a click chooses one. Drawn again and again while they grow."""
    rows = rows_of(stream)
    chosen = chosen_token(rows)
    for index, row in enumerate(rows):
        if len(rows) > 1:
            st.caption(f"Sample {index}")
        place = chosen[1] if chosen is not None and chosen[0] == index else None
        clicked = token_strip(
            **strip_columns(vocabulary, row),
            selected=place,
            key=f"generate.strip.{index}",
            label=f"New tokens of sample {index}" if len(rows) > 1 else "New tokens",
        )
        if clicked is not None and (index, clicked) != chosen:
            st.session_state[AT] = (index, clicked)
            if not stream.running:
                st.rerun()
    if rows:
        stronger = "Lighter" if st.context.theme.type == "dark" else "Darker"  # little is near the background
        kept = " A dashed box was kept from before." if rows[0].kept else ""
        say_note(
            f"{stronger}: the token taken was more probable, from 0 to 100 %.{kept} Choose a token to see what else could "
            "follow."
        )


def chosen_token(rows: Sequence[Row]) -> tuple[int, int] | None:
    """Row and number of the chosen token, the least certain one unless another was clicked."""
    found = st.session_state.get(AT)
    if found is not None and found[0] < len(rows) and found[1] < len(rows[found[0]].whole):
        return found
    return least_certain(rows)


def strip_columns(vocabulary: Vocabulary, row: Row) -> dict[str, Any]:
    """Arguments of the token strip for one text."""
    pieces = [vocabulary.piece(i) for i in row.whole]
    ends, before = [], b""
    for piece in pieces:
        before += piece
        ends.append(len(before.decode("utf-8", "ignore")))
    n_kept = len(row.kept)
    return {
        "pieces": pieces,
        "ids": row.whole,
        "starts": [0, *ends[:-1]] if ends else [],
        "ends": ends,
        "special": [bool(vocabulary.special[i]) for i in row.whole],
        "added": [place < n_kept for place in range(len(pieces))],
        "amounts": [None] * n_kept + list(row.probability),
        "notes": ["kept from before"] * n_kept + [note(vocabulary, row, place) for place in range(len(row.ids))],
    }


def note(vocabulary: Vocabulary, row: Row, place: int) -> str:
    """What the tooltip of a new token says."""
    lines = [f"probability {percent(row.probability[place])} · {rank_words(row.rank[place])}"]
    lines.append(f"entropy before it {row.entropy_bits[place]:.2f} bits")
    others = [(i, chance) for i, chance in row.top[place] if i != row.ids[place]][:SHOWN]
    if others:
        said = ", ".join(f"{visible(vocabulary.piece(i))} {percent(min(chance, 1.0))}" for i, chance in others)
        lines.append(f"instead of {said}")
    return "\n".join(lines)


def rank_words(rank: int) -> str:
    """A rank as a sentence says it."""
    return "the first choice" if rank == 0 else f"rank {rank:,} (0 is the first choice)"


def surprise_bits(row: Row) -> list[float]:
    """Minus log2 of the probability of every new token."""
    return [-math.log2(max(chance, 1e-300)) for chance in row.probability]


def table_of(vocabulary: Vocabulary, stream: Stream) -> Any:
    """The table of the result; of a text that was stopped, the part that is there."""
    if isinstance(stream.result, Generation):
        return stream.result.to_frame(vocabulary)
    import pandas as pd

    lines = [
        {
            "row": index,
            "step": place,
            "id": i,
            "token": printable(vocabulary.piece(i)),
            "probability": row.probability[place],
        }
        | {"rank": row.rank[place], "entropy_bits": row.entropy_bits[place]}
        for index, row in enumerate(rows_of(stream))
        for place, i in enumerate(row.ids)
    ]
    return pd.DataFrame(lines)


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"
