"""The target over depth, after the chosen token."""

import numpy as np
import streamlit as st

from analyses.logit_lens import LogitLens
from app.backend.protocol import ModelInfo
from app.figures.by_layer import depth_labels
from app.figures.logit_lens import Line, measures, trajectory_figure
from app.figures.theme import CHANGE, DISTRACTOR, STREAM, TARGET
from app.ui.controls import segments
from app.ui.token_text import visible
from app.ui.words import show_figure

AXES = ("Probability", "Rank", "Entropy", "KL", "Loss")


def trajectory_lines(lens: LogitLens, axis: str, target: str, distractor: str) -> list[Line]:
    """The lines of one axis; the result holds one position.

    Args:
        lens: read at one position, with the half-way stream where the family has it.
        axis: one of `AXES`.
        target: visible text.
        distractor: visible text; "" for none.
    """
    place = np.arange(lens.n_depths - 1) + 0.5
    if axis in ("Probability", "Rank"):
        found = [Line(f"target {target}", _of_target(lens.target_log_probability, lens.target_rank, axis), TARGET)]
        if lens.distractor_log_probability is not None and lens.distractor_rank is not None:
            values = _of_target(lens.distractor_log_probability, lens.distractor_rank, axis)
            found.append(Line(f"distractor {distractor}", values, DISTRACTOR, dash="dash"))
        if lens.mid_target_log_probability is not None and lens.mid_target_rank is not None:
            values = _of_target(lens.mid_target_log_probability, lens.mid_target_rank, axis)
            found.append(Line("target half-way, after attention", values, TARGET, at=place))
        return found
    values, halfway = {
        "Entropy": (lens.entropy_nats, lens.mid_entropy_nats),
        "KL": (lens.kl_nats, lens.mid_kl_nats),
        "Loss": (lens.next_loss_nats, lens.mid_next_loss_nats),
    }[axis]
    name = {"Entropy": "whole distribution", "KL": "against the last depth", "Loss": "token that follows"}[axis]
    found = [Line(name, values[:, 0], TARGET)]
    if halfway is not None:
        found.append(Line("half-way, after attention", halfway[:, 0], TARGET, at=place))
    return found


def _of_target(log_probability: np.ndarray, rank: np.ndarray, axis: str) -> np.ndarray:
    return rank[:, 0] + 1.0 if axis == "Rank" else np.exp(log_probability[:, 0])


@st.fragment
def draw_trajectory(model: ModelInfo, lens: LogitLens, plain: LogitLens | None, depth: int) -> None:
    """Curves with a switch for the axis.

    Args:
        model: what the page is about.
        lens: read at one position.
        plain: the plain lens beside a fitted one.
        depth: the chosen one, marked.
    """
    axis = segments("Axis", AXES, key="axis", titled=False)
    target = visible(model.vocabulary.piece(int(lens.target_ids[0])))
    distractor = "" if lens.distractor_ids is None else visible(model.vocabulary.piece(int(lens.distractor_ids[0])))
    lines = trajectory_lines(lens, axis, target, distractor)
    if plain is not None:
        first = trajectory_lines(plain, axis, target, distractor)[0]
        lines.append(Line("the plain lens", first.values, STREAM, dash="dot"))
        lines[0] = Line(f"{lines[0].name}, linear lens", lines[0].values, CHANGE)
    if not np.isfinite(lines[0].values).any():
        st.caption("No token follows the last one, so there is no loss. Choose an earlier token in the grid.")
        return
    figure = trajectory_figure(
        lines, depth_labels(model.config.n_layers), measures(model.config.d_vocab)[axis], mark=depth
    )
    show_figure(figure, key="lens.trajectory", alt=f"{axis} by depth; the numbers are in the table below")
    with st.expander("The numbers: every depth"):
        st.dataframe(lens.to_frame(model.vocabulary), hide_index=True)
