"""The page "Training", top to bottom."""

from typing import Any

import numpy as np
import streamlit as st

from analyses.training_causes import PATHS
from analyses.training_log import TrainingLog, load_training_log
from app.components.finding import finding
from app.figures.training import curves_figure, loss_figure, transition
from app.ui.export import take_with_you
from app.ui.frame import Frame
from app.ui.words import show_table
from app.views.training_choices import OUT, STEP, Head, can_go, choose_play, choose_text
from app.views.training_now import LOGS, NAME, draw_now, stop_at_the_end


def draw_page(frame: Frame, answer: Any) -> None:
    """The finding, the part that plays, and what the copying rests on at the end."""
    log, control, other = (load_training_log(name) for name in LOGS)
    with answer:
        finding(finding_words(log), key="finding")
    stop_at_the_end()
    text = choose_text()
    choose_play()
    draw_now(frame, text)
    st.header("What it rests on, at the end")
    _draw_causes(log)
    st.caption(seeds_words(log, other))
    step = int(st.session_state.get(STEP, log.checkpoints[-1]))
    take_with_you(
        frame,
        tables={
            "training": log.to_frame(),
            "training_one_layer": control.to_frame(),
            "training_second_seed": other.to_frame(),
        },
        figures={
            "curves": lambda: curves_figure(log, control, other, step),
            "training_loss": lambda: loss_figure(log, control, step),
        },
        code=code_lines(text, step, can_go(log).get(st.session_state.get(OUT, ""), ())),
    )


def finding_words(log: TrainingLog) -> list[Any]:
    """The computed sentence, from the record that ships."""
    start, end = transition(log)
    layer, head = log.induction_head
    score = log.induction[:, layer, head]
    heads = [f"L{one}H{number}" for one, number in log.induction_heads]
    without = float(log.together_second_copy_loss_nats[-1])
    named = "this head" if len(heads) == 1 else f"the {len(heads)} induction heads ({', '.join(heads)})"
    return [
        f"Between step {start:,} and {end:,} the induction score of L{layer}H{head} rises from "
        f"{score[log.mark_of(start)]:.2f} to {score[log.mark_of(end)]:.2f}; without {named} the second copy costs "
        f"{without:.1f} nats per token at the end instead of {float(log.second_copy_loss_nats[-1]):.1f}."
    ]


def seeds_words(*logs: TrainingLog) -> str:
    """Which heads do it in each run; the runs differ in their seed alone."""
    words = []
    for log in logs:
        heads = [f"L{one}H{number}" for one, number in log.induction_heads]
        alone = ", ".join(
            f"{float(log.ablated_second_copy_loss_nats[-1, *head]):.1f} without {name}"
            for head, name in zip(log.induction_heads, heads, strict=True)
        )
        both = f", {float(log.together_second_copy_loss_nats[-1]):.1f} without all of them" if len(heads) > 1 else ""
        n = f"{len(heads)} induction head{'' if len(heads) == 1 else 's'}"
        words.append(
            f"Seed {log.seed} ends with {n}: the second copy costs {float(log.second_copy_loss_nats[-1]):.1f} nats per token, "
            f"{alone}{both}."
        )
    return " ".join(words)


def _draw_causes(log: TrainingLog) -> None:
    layer, head = log.induction_head
    name, below = " and ".join(f"L{one}H{number}" for one, number in log.induction_heads), layer - 1
    st.write(
        f"What one head of layer {below} writes is kept from the query, the key or the value of {name}, and from "
        "nothing else (path patching). If the induction score falls when it is kept from the key, the two heads work "
        "together through the key: K-composition (Elhage et al. 2021)."
    )
    rows: dict[str, list[str]] = {"kept from its": list(PATHS)}
    for number in range(log.path_induction.shape[2]):
        rows[f"L{below}H{number}"] = [
            f"{score:.2f} ({loss:.1f} nats)"
            for score, loss in zip(
                log.path_induction[-1, :, number], log.path_second_copy_loss_nats[-1, :, number], strict=True
            )
        ]
    show_table(rows)
    copies = ", ".join(f"L{layer}H{number} {share:.0%}" for number, share in enumerate(log.copying[-1]))
    strongest = int(np.argmin(log.path_induction[-1, PATHS.index("key")]))
    st.caption(
        f"Induction score of L{layer}H{head} and loss on the second copy, at step {int(log.marks[-1]):,}; with nothing kept they "
        f"are {float(log.induction[-1, layer, head]):.2f} and {float(log.second_copy_loss_nats[-1]):.1f}. The key needs "
        f"L{below}H{strongest}, the head that looks one token back. Copying: reading a token after the start, each head "
        f"of layer {layer} raises that same token most for this share of the vocabulary's merged tokens: {copies}."
    )


def code_lines(text: str, step: int, out: tuple[Head, ...]) -> str:
    """Python that gives the numbers of the page."""
    ablate = f", ablate={[list(head) for head in out]}" if out else ""
    return (
        "from analyses import run_training_dynamics, run_training_view\n"
        "from analyses.training_log import load_training_log\n\n"
        f"log = load_training_log({NAME!r})\n"
        f"view = run_training_view(text={text!r}, step={step}{ablate})\n"
        f"here = run_training_dynamics(step={step}{ablate}, n_windows=64)\n"
        "print(log.to_frame(), view.to_frame(), here.to_frame(), sep='\\n')"
    )
