"""What a person chooses on the page "Training": the step, whether it plays, a head to take out, the text."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from analyses.training_log import TrainingLog

TEXT = (
    "The frobnicate_widget() function takes a Zorblat object. If the Zorblat object is empty, call "
    "frobnicate_widget() again. The frobnicate_"
)
MOST_CHARACTERS = 2000  # of a text that a link can carry
NOTHING = "nothing"
TICK_SECONDS = 0.6  # between two steps of the play button
STEP, PLAY, OUT = "train_step", "training.play", "train_out"


Head = tuple[int, int]  # layer and number


@dataclass(frozen=True)
class Choices:
    """The step, the heads that are taken out, and the text."""

    step: int
    out: tuple[Head, ...]
    text: str


def name_of(heads: Sequence[Head]) -> str:
    """Names of heads, such as L1H0+L1H2."""
    return "+".join(f"L{layer}H{head}" for layer, head in heads)


def can_go(log: TrainingLog) -> dict[str, tuple[Head, ...]]:
    """What can be taken out, by its name: every head, and all induction heads where there are several."""
    layers, n_heads = log.induction.shape[1:]
    groups = [((layer, head),) for layer in range(layers) for head in range(n_heads)]
    if len(log.induction_heads) > 1:
        groups.append(tuple(sorted(log.induction_heads)))
    return {name_of(group): group for group in groups}


def is_playing() -> bool:
    """Whether the play button is on."""
    return bool(st.session_state.get(PLAY))


def choose_play() -> None:
    """The play button; outside the part that is drawn again at every step."""
    st.toggle("Play", key=PLAY, help="Goes through the steps that were kept, one after the other, once.")


def advance(log: TrainingLog) -> None:
    """One step further, before the slider is drawn; at the end the play button goes off."""
    steps = list(log.checkpoints)
    now = st.session_state.get(STEP, steps[-1])
    if st.session_state.pop("training.fresh", False) or now not in steps:
        st.session_state[STEP] = steps[0]
    elif now != steps[-1]:
        st.session_state[STEP] = steps[steps.index(now) + 1]


def choose_step(log: TrainingLog) -> int:
    """The training step that is shown."""
    steps = log.checkpoints
    if st.session_state.get(STEP) not in steps:
        found = st.query_params.get(STEP, "").replace(",", "")  # the slider writes 1,900
        known = found.isascii() and found.isdigit() and int(found) in steps
        st.session_state[STEP] = int(found) if known else steps[-1]
    return st.select_slider(
        "Training step",
        steps,
        format_func=lambda step: f"{step:,}",
        key="train_step",
        bind="query-params",
        help=f"How many batches of {log.tokens_per_step:,} tokens the model has been trained on.",
    )


def choose_out(log: TrainingLog) -> tuple[Head, ...]:
    """The heads whose output is set to zero."""
    groups = can_go(log)
    chosen = st.selectbox(
        "Take heads out",
        [NOTHING, *groups],
        key="train_out",
        bind="query-params",
        help="Their output is set to zero at every token, at the chosen step: for the text and for the two copies.",
    )
    return groups.get(chosen, ())


def choose_text() -> str:
    """The text that the small model reads; its own, because the prompt on the left belongs to another tokenizer."""
    if "train_text" not in st.session_state:
        st.session_state["train_text"] = st.query_params.get("train_text", TEXT)
    with st.form("training.text", border=False):
        text = st.text_area(
            "Text for the small model",
            key="train_text",
            height=90,
            help="At most 256 tokens of its own small tokenizer, which is about 500 characters. It has read the "
            "Python documentation and nothing else. Repeat something in it: that is what induction continues.",
        )
        st.form_submit_button("Read this text")
    if text != TEXT and len(text) <= MOST_CHARACTERS:
        st.query_params["train_text"] = text
    else:
        st.query_params.pop("train_text", None)
    return text
