"""The grid of the logit lens: what a row, a colour and a number in it mean."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Shaped

from analyses.logit_lens import LogitLens
from app.backend.protocol import ModelInfo
from app.components.lens_grid import LensPicture
from app.figures.by_layer import depth_labels
from app.ui.token_text import visible
from app.views.lens_choices import rows_drawn

HOVERED = 5  # most probable tokens in the hover text


def numbers(lens: LogitLens) -> Mapping[str, Shaped[np.ndarray, "depth pos"]]:
    """The numbers of every cell, by what the hover text calls them."""
    found = {
        "target": lens.target_probability,
        "target's rank (0 = first)": lens.target_rank,
        "entropy": lens.entropy_nats,
        "KL from the end": lens.kl_nats,
    }
    if lens.distractor_log_probability is not None:
        found["distractor"] = np.exp(lens.distractor_log_probability)
    return found


UNITS = {"target": "%", "distractor": "%", "entropy": "nats", "KL from the end": "nats"}


def shade(lens: LogitLens, colour: str, d_vocab: int) -> tuple[Float[np.ndarray, "depth pos"], tuple[str, str]]:
    """How strongly each cell is coloured, 0 to 1 on a range that is the same for every prompt, and its two ends in words."""
    most = float(np.log(d_vocab))
    if colour == "Entropy":
        return np.clip(lens.entropy_nats / most, 0, 1), ("0 nats", f"{most:.1f} nats: all tokens equal")
    if colour == "Rank":
        rank = np.maximum(lens.target_rank, 0)
        return 1 - np.log1p(rank) / np.log(d_vocab), (f"{d_vocab - 1:,}", "0 = first (log scale)")
    if colour == "KL":
        return np.clip(lens.kl_nats / most, 0, 1), ("0 nats: the final distribution", f"{most:.1f} nats or more")
    return lens.top_probability[..., 0], ("0 %", "100 % (token shown)")


def grid_picture(
    model: ModelInfo, tokens: Sequence[int], lens: LogitLens, colour: str, stride: int, label: str
) -> LensPicture:
    """What `lens_grid` and `standalone_html` draw of a result.

    Args:
        model: what the page is about.
        tokens: ids of the prompt that the result belongs to.
        lens: the result; cells that are not known yet hold -1 and NaN.
        colour: one of `lens_choices.COLOURS`.
        stride: every how many depths a row is drawn.
        label: title of the picture.
    """
    rows = rows_drawn(lens.n_depths, stride)
    labels = depth_labels(model.config.n_layers)
    shades, legend = shade(lens, colour, model.config.d_vocab)
    known = lens.top_ids[rows, :, 0] >= 0
    return LensPicture(
        rows=[labels[row] for row in rows],
        columns=[model.vocabulary.piece(tokens[position]) for position in lens.positions],
        positions=lens.positions.tolist(),
        top_ids=lens.top_ids[rows],
        top_log_probability=lens.top_log_probability[rows],
        pieces=model.vocabulary.piece,
        values={name: value[rows] for name, value in numbers(lens).items()},
        shade=np.where(known, shades[rows], np.nan),
        legend=legend,
        label=label,
        target=known & (lens.top_ids[rows, :, 0] == lens.target_ids),
        target_label=_target_label(model, lens),
        units=UNITS,
        measure=colour,
        hidden_after={at: count for at, count in enumerate(gaps(rows), start=-1) if count},
    )


def gaps(rows: Sequence[int]) -> list[int]:
    """How many depths are left out before each row."""
    return [row - before - 1 for before, row in zip([-1, *rows[:-1]], rows, strict=True)]


def _target_label(model: ModelInfo, lens: LogitLens) -> str:
    known = lens.target_ids[lens.target_ids >= 0]
    if (known != known[0]).any():
        return "the model's own answer"
    return visible(model.vocabulary.piece(int(known[0])))
