"""Every layer in turn: the guess, the sweep, runs of layers, the order of removal, and the wrong way to do it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import streamlit as st

from analyses.layer_sweep import LayerSweep
from app.figures.layer_deletion import (
    PART_NAMES,
    contrast_figure,
    guess_scatter,
    order_figure,
    runs_figure,
    sweep_figure,
)
from app.ui.controls import run_when_asked, segments
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.words import show_figure
from app.views.deletion_choices import Deletion

SWEEPS = ("Single layers", "Runs of layers", "Order of removal", "The wrong way")
PARTS = ("block", "attention", "mlp")


def draw_single(frame: Frame, deletion: Deletion) -> LayerSweep | None:
    """Guess first, then every layer and part."""
    n_layers = frame.model.config.n_layers
    left, _ = st.columns([1, 2])
    with left:
        guess = st.number_input(
            "Which layer matters least?",
            min_value=0,
            max_value=n_layers - 1,
            value=None,
            key="guess",
            bind="query-params",
            placeholder="your guess, then reveal",
            help="The block whose deletion raises the loss least on this text. Your guess is marked in the picture.",
        )
    outcome = run_when_asked(
        "layer_sweep",
        deletion.ids,
        slot="cut.single",
        model=frame.model.config.fingerprint,
        button="Reveal",
        words=f"Every block, every attention and every MLP is left out alone: {3 * n_layers} deletions.",
    )
    if outcome is None or outcome.stale:
        return None
    sweep: LayerSweep = outcome.result
    st.caption(guess_words(sweep, None if guess is None else int(guess)))
    _draw_sweep(sweep, None if guess is None else int(guess))
    return sweep


@st.fragment
def _draw_sweep(sweep: LayerSweep, guess: int | None) -> None:
    part = segments("Part", PARTS, key="part", titled=False, words=PART_NAMES)
    row = sweep.parts.index(part)
    figure = sweep_figure(
        sweep.loss_nats[row],
        part,
        baseline_nats=sweep.baseline_loss_nats,
        uniform_nats=sweep.uniform_loss_nats,
        guess=guess,
    )
    show_figure(
        figure, key="cut.sweep", alt=f"Loss without the {PART_NAMES[part]} of each layer; numbers in the table below"
    )
    st.caption(
        f"Do cheap scores predict the damage? Rank correlation over the layers: angular distance "
        f"{sweep.spearman_angular[row]:+.2f} (Gromov et al. 2024; at the last token alone "
        f"{sweep.spearman_angular_last[row]:+.2f}), block influence {sweep.spearman_influence[row]:+.2f} (Men et al. 2024). "
        "1 would be the same order, 0 no relation."
    )
    score, rise = sweep.angular_distance, sweep.loss_change_nats[row]
    with st.expander("Score against damage, layer by layer"):
        figure = guess_scatter(score, rise, "angular distance over the block (0 to 1)", range(len(score)))
        show_figure(figure, key="cut.scores", alt="Angular distance against the rise of the loss")
    with st.expander("The numbers: every layer and part"):
        st.dataframe(sweep.to_frame(), hide_index=True)


def guess_words(sweep: LayerSweep, guess: int | None) -> str:
    """What was guessed, and what came out."""
    rise = sweep.loss_change_nats[sweep.parts.index("block")]
    order = np.argsort(rise, kind="stable")
    best, worst = int(order[0]), int(order[-1])
    out = f"Layer {best} matters least ({rise[best]:+.2f} nats), layer {worst} most ({rise[worst]:+.2f})."
    if guess is None:
        return out
    place = int(np.flatnonzero(order == guess)[0])
    if place == 0:
        return f"Your guess was right. {out}"
    others = "1 layer matters" if place == 1 else f"{place} layers matter"
    return f"You said {guess} ({rise[guess]:+.2f} nats): {others} less. {out}"


def sweep_words(sweep: LayerSweep) -> str:
    """The finding of the sweep, for the sentence at the top."""
    rise = sweep.loss_change_nats[sweep.parts.index("block")]
    worst, best = int(np.argmax(rise)), int(np.argmin(rise))
    return f" Of single layers, {worst} costs most ({rise[worst]:+.2f} nats) and {best} least ({rise[best]:+.2f})."


def draw_runs(frame: Frame, deletion: Deletion) -> None:
    """The block heat map."""
    n_layers = frame.model.config.n_layers
    outcome = run_when_asked(
        "layer_runs",
        deletion.ids,
        slot="cut.runs",
        model=frame.model.config.fingerprint,
        button="Try every run",
        words=f"Every run of neighbouring layers is left out: {n_layers * (n_layers + 1) // 2} deletions.",
    )
    if outcome is None or outcome.stale:
        return
    figure = runs_figure(outcome.result, dark=st.context.theme.type == "dark")
    show_figure(
        figure, key="cut.runs.figure", alt="Rise of the loss for every run of layers; numbers in the table below"
    )
    pairs = list(zip(outcome.result.best_start, outcome.result.angular_start, strict=True))
    pairs = pairs[: n_layers - 1]  # a run of all layers has one start only
    found = sum(best == angular for best, angular in pairs)
    st.caption(
        f"For {found} of {len(pairs)} lengths the smallest angular distance picks the cheapest start. "
        "The colour ends at the loss of a uniform guess. Without training afterwards the loss rises fast with the length; "
        "Gromov et al. (2024) train a little after cutting."
    )
    with st.expander("The numbers: every run"):
        st.dataframe(outcome.result.to_frame(), hide_index=True)


def draw_order(frame: Frame, deletion: Deletion) -> None:
    """The greedy order of removal."""
    n_remove = min(8, frame.model.config.n_layers)
    outcome = run_when_asked(
        "removal_order",
        deletion.ids,
        slot="cut.order",
        model=frame.model.config.fingerprint,
        button="Remove one by one",
        words=f"{n_remove} times the block goes without which the loss is lowest.",
        n_remove=n_remove,
    )
    if outcome is None or outcome.stale:
        return
    show_figure(
        order_figure(outcome.result), key="cut.order.figure", alt="Loss after each removal; numbers in the table below"
    )
    st.caption("Greedy is not the best set: two layers can be cheap alone and dear together.")
    with st.expander("The numbers: every step"):
        st.dataframe(outcome.result.to_frame(), hide_index=True)


def draw_wrong(frame: Frame, deletion: Deletion) -> None:
    """The pipeline contrast."""
    n_layers = frame.model.config.n_layers
    common = {"deleted": [[layer] for layer in range(n_layers)]}
    outcome = run_when_asked(
        "layer_deletion",
        deletion.ids,
        slot="cut.wrong",
        model=frame.model.config.fingerprint,
        button="Show what goes wrong",
        words="Each block's whole output is replaced by zero, which also erases what all layers before it wrote.",
        wrong=True,
        **common,
    )
    if outcome is None or outcome.stale:
        return
    right = run("layer_deletion", deletion.ids, slot="cut.right", model=frame.model.config.fingerprint, **common)
    if right is None or right.stale:
        return
    wrong = outcome.result
    figure = contrast_figure(
        right.result.loss_nats,
        wrong.loss_nats,
        baseline_nats=wrong.baseline_loss_nats,
        uniform_nats=wrong.uniform_loss_nats,
    )
    show_figure(
        figure, key="cut.wrong.figure", alt="Loss when a block is left out, and when its output is replaced by zero"
    )
    st.caption(
        "A block's output is the stream itself: everything written so far, plus its own addend. Replacing it by zero is what "
        "deletion would be in a pipeline, where each stage hands its whole result to the next. In a sum, only the addend goes "
        "(Veit, Wilber and Belongie 2016)."
    )


DRAWN: dict[str, Callable[[Frame, Deletion], Any]] = {
    SWEEPS[0]: draw_single,
    SWEEPS[1]: draw_runs,
    SWEEPS[2]: draw_order,
    SWEEPS[3]: draw_wrong,
}
