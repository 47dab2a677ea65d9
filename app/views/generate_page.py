"""The pictures of the page "Generate", top to bottom."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from app.components.finding import finding
from app.figures.generation import uncertainty_figure
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.ui.run import about
from app.ui.stream import Stream, current_stream, draw_stream, start_stream
from app.ui.words import say_error, say_note, show_figure
from app.views.generate_chat import draw_chat
from app.views.generate_choices import Settings, words_of_params
from app.views.generate_rows import (
    AT,
    Row,
    chosen_token,
    draw_rows,
    finding_words,
    rows_of,
    surprise_bits,
    table_of,
)
from app.views.generate_step import draw_step
from app.views.next_token import labels_of

SLOT = "generate"
AT_ONCE_SECONDS = 10.0  # a longer text waits for the button
UPPER_BITS = 8.0  # the axis of the second picture: 256 equally likely tokens


@dataclass(frozen=True)
class About:
    """What a text belongs to: with another prompt or model it is not shown."""

    shown: tuple[Any, ...]  # fingerprint and ids
    kept: tuple[int, ...] = ()


def draw_page(frame: Frame, settings: Settings, pressed: bool, seconds: float, answer: Any) -> None:
    """Write when asked, and at once where it is quick; draw what there is. `answer` is where the finding goes."""
    stream = current_stream(SLOT)
    if stream is not None and stream.note.shown != _shown(frame):
        stream = None
    if seconds < float("inf") and (pressed or (stream is None and seconds <= AT_ONCE_SECONDS)):
        stream = _write(frame, settings)
    with answer:
        sentence = st.empty()
    if stream is None:
        with sentence:
            finding([_nothing_words(frame, seconds)], key="finding")
        draw_chat(frame, settings)
        return
    if _asks_for_more(stream, settings):
        was = words_of_params(dict(stream.request.params))
        say_note(f'Below is a text with other settings: {was}. Press "Write" for these: {settings.words}.')
    draw_stream(SLOT, partial(draw_rows, frame.model.vocabulary))
    with (
        sentence
    ):  # after the last look at the stream: it may have ended in between, and the two must not contradict each other
        finding([finding_words(stream, rows_of(stream))], key="finding")
    if not stream.running:
        _draw_finished(frame, settings, stream)
    draw_chat(frame, settings)


def _draw_finished(frame: Frame, settings: Settings, stream: Stream) -> None:
    """What explains the texts, once no more tokens come."""
    if stream.failure is not None:
        say_error(stream.failure.message)
    rows = rows_of(stream)
    chosen = chosen_token(rows)
    if chosen is None:
        return
    row = rows[chosen[0]]
    goes_on = draw_step(frame, stream, row, chosen[1])
    if goes_on is not None:
        _write(frame, settings, goes_on)
        st.rerun()
    if row.ids:
        st.header(
            "How undecided was it?",
            help="Entropy is the surprise to be expected before a token is taken; the surprise of the token that was taken can "
            "be smaller or larger. Both are about the model's own distribution, before temperature.",
        )
        show_figure(_figure(frame, row), key="generate.bits", alt="Entropy and surprise of every new token, in bits")
    with st.expander("The text, to copy"):
        for each in rows:
            st.code(_text(frame, each), language=None, wrap_lines=True)
    _draw_export(frame, stream, row)


def _draw_export(frame: Frame, stream: Stream, row: Row) -> None:
    take_with_you(
        frame,
        tables={"generated": lambda: table_of(frame.model.vocabulary, stream)},
        figures={"uncertainty": lambda: _figure(frame, row)},
        code=python_code(frame, "run_generation", code_lines(stream)),
    )


def code_lines(stream: Stream) -> str:
    """Python that writes the same text; uses `model` and `text`."""
    more = "".join(f", {name}={value!r}" for name, value in stream.request.params.items())
    kept = stream.note.kept
    ids = f"(*text.ids, *{kept!r})" if kept else "text.ids"
    return (
        f"out = run_generation(model, {ids}{more})\n"
        "for written, ended in zip(out.row_text, out.row_ended):\n"
        "    print(repr(written), ended)\n"
        "print(out.to_frame())"
    )


def _write(frame: Frame, settings: Settings, kept: tuple[int, ...] = ()) -> Stream:
    """Ask for a text, also one that goes on after tokens that are kept."""
    st.session_state.pop(AT, None)
    params = settings.params
    room = frame.model.config.n_ctx - len(frame.tokens.ids) - len(kept)
    params["max_new_tokens"] = max(
        1, min(params["max_new_tokens"], room)
    )  # refused by the analysis where there is none
    return start_stream(
        "generation",
        (*frame.tokens.ids, *kept),
        slot=SLOT,
        model=frame.model.config.fingerprint,
        note=About(_shown(frame), kept),
        **params,
    )


def _shown(frame: Frame) -> tuple[Any, ...]:
    return frame.model.config.fingerprint, frame.tokens.ids


def _asks_for_more(stream: Stream, settings: Settings) -> bool:
    return not stream.note.kept and dict(stream.request.params) != settings.params


def _nothing_words(frame: Frame, seconds: float) -> str:
    if not frame.tokens.ids:
        return "An empty prompt has nothing to go on from. Write one on the left."
    if seconds == float("inf"):
        return "Prompt and new tokens do not fit the context together."
    return f'Nothing is written yet. Press "Write": it takes {about(seconds)}, and each token appears as it comes.'


def _figure(frame: Frame, row: Row) -> Any:
    import numpy as np

    labels = labels_of(frame.model, np.array(row.ids))
    bits = np.array(row.entropy_bits), np.array(surprise_bits(row))
    return uncertainty_figure(labels, *bits, upper=UPPER_BITS, first=len(row.kept))


def _text(frame: Frame, row: Row) -> str:
    """What was kept and what is new, complete characters only."""
    kept = b"".join(frame.model.vocabulary.piece(i) for i in row.kept).decode("utf-8", "ignore")
    return (kept + row.text) or " "
