"""What it writes: baseline, steered and random side by side, token by token, rows of one batch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from analyses.generation import check_budget
from analyses.steering_vector import random_vector_like
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.run import about, seconds_of
from app.ui.stream import Stream, current_stream, draw_stream, start_stream
from app.ui.words import literal, say_error, say_note, show_table
from app.views.generate_choices import GREEDY, MAX_SEED, SAMPLED
from app.views.steering_choices import Setting
from app.views.steering_prompt import Text
from app.views.steering_vectors import Chosen
from app.views.steering_words import run_names, written_table

NEW_TOKENS = 40
SLOT = "steer.write"
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)


@dataclass(frozen=True)
class About:
    """What three texts were written with."""

    shown: tuple[Any, ...]  # model, prompt
    words: str
    targets: tuple[int, ...]
    names: tuple[str, ...]  # of the texts


def draw_writing(frame: Frame, chosen: Chosen, setting: Setting, text: Text) -> Stream | None:
    """The button, and the texts as they grow; they stay until "Write" is pressed again."""
    st.header(
        "What it writes",
        help="The same prompt continued three times: plain, steered, and steered along a random direction with the same size. "
        "The three differ in nothing else; sampled texts use the same random numbers.",
    )
    params, pressed = _choose(frame, chosen, setting, text)
    shown = (frame.model.config.fingerprint, text.ids)
    stream = current_stream(SLOT)
    if stream is not None and stream.note.shown != shown:
        stream = None
    if pressed and params is not None:
        note = About(
            shown, f"{chosen.name}, {setting.in_words}", setting.targets, tuple(run_names(setting.mode).values())
        )
        stream = start_stream("generation", text.ids, slot=SLOT, model=shown[0], note=note, **params)
    if stream is None:
        return None
    if params is not None and dict(stream.request.params) != params:
        say_note(f'Below are texts of other settings ({stream.note.words}). Press "Write" for these.')
    draw_stream(SLOT, partial(_draw_columns, frame))
    if stream.running:
        return None
    if stream.failure is not None:
        say_error(stream.failure.message)
    if stream.fields is None or not len(stream.fields["row_ids"]):
        return None
    show_table(written_table(rows_of(stream), stream.note.targets, stream.note.names))
    say_note(
        "Distinct-1 and distinct-2: share of different tokens, and of different pairs; repeated 4-grams: runs of four tokens "
        "that stood there before. A loop has few distinct pairs. A text is one sample: try other prompts and seeds."
    )
    return stream


def rows_of(stream: Stream) -> list[list[int]]:
    """Ids of every text so far."""
    return [[int(i) for i in row if i >= 0] for row in stream.fields["row_ids"]]


def _choose(frame: Frame, chosen: Chosen, setting: Setting, text: Text) -> tuple[dict[str, Any] | None, bool]:
    """Parameters of the request (None where it does not fit) and whether "Write" was pressed."""
    kind, number, heat, button = st.columns([2, 1.2, 1.6, 1], vertical_alignment="bottom")
    with kind:
        how = segments("The next token", (GREEDY, SAMPLED), key="write", help="As on the page Generate.")
    with number:
        seed = st.number_input(
            "Seed",
            0,
            MAX_SEED,
            0,
            key="seed",
            bind="query-params",
            disabled=how == GREEDY,
            help="The same seed, the same text.",
        )
    with heat:
        temperature = st.slider(
            "Temperature", 0.0, 2.0, 1.0, 0.05, key="temperature", bind="query-params", disabled=how == GREEDY
        )
    params, why = _params(frame, chosen, setting, text, (how, int(seed), temperature))
    with button:
        pressed = st.button("Write", key="steer.go", type="primary", width="stretch", disabled=params is None)
    if params is None:
        say_note(why)
    else:
        seconds = seconds_of("generation", text.ids, model=frame.model.config.fingerprint, **params)
        st.caption(f"At most {params['max_new_tokens']} tokens each; {about(seconds)} here.")
    return params, pressed


def _params(
    frame: Frame, chosen: Chosen, setting: Setting, text: Text, drawing: tuple[str, int, float]
) -> tuple[dict[str, Any] | None, str]:
    room = frame.model.config.n_ctx - len(text.ids)
    try:
        check_budget(len(text.ids), min(NEW_TOKENS, max(room, 1)), frame.model.config.n_ctx)
    except ValueError as error:
        return None, str(error)
    how, seed, temperature = drawing
    random = random_vector_like(chosen.vector, setting.seed)
    used = [[each.intervention(where=setting.where, **setting.place)] for each in (chosen.vector, random)]
    params: dict[str, Any] = {"max_new_tokens": min(NEW_TOKENS, room), "variants": [[], *used], "alternatives": 1}
    if how == SAMPLED and temperature:
        params |= {"temperature": temperature, "seed": seed}
    return params, ""


def _draw_columns(frame: Frame, stream: Stream) -> None:
    """The texts so far, with the target words marked."""
    if stream.fields is None:
        return
    marks = words_of(frame, stream.note.targets)
    for place, name, text in zip(st.columns(3), stream.note.names, stream.fields["row_text"], strict=True):
        with place:
            st.markdown(f"**{name}**")
            st.markdown(as_text(text, marks))


def words_of(frame: Frame, targets: Sequence[int]) -> tuple[str, ...]:
    """Target tokens as words to look for in a text."""
    pieces = (frame.model.vocabulary.piece(i).decode("utf-8", "ignore").strip() for i in targets)
    return tuple(word for word in pieces if word)


def as_text(text: str, marks: Sequence[str] = ()) -> str:
    """A text as Markdown that shows it literally, with line breaks and with whole words marked."""
    pattern = "|".join(re.escape(mark) for mark in sorted(marks, key=len, reverse=True))
    parts = re.split(rf"(?<!\w)({pattern})(?!\w)", text, flags=re.IGNORECASE) if pattern else [text]
    shown = "".join(f":green-background[{literal(part)}]" if i % 2 else literal(part) for i, part in enumerate(parts))
    # Markdown swallows indents and single line breaks, and four blanks would begin a block of code.
    shown = _INDENT.sub(lambda blanks: "\u00a0" * len(blanks[0]), shown)
    return "  \n".join(line or "\u00a0" for line in shown.split("\n"))
