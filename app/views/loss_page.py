"""The pictures of the page "Loss", top to bottom."""

from typing import Any

import numpy as np
import streamlit as st

from analyses.loss import Loss, loss_by_context
from app.components.finding import finding
from app.components.token_strip import token_strip
from app.figures.loss import context_figure, histogram_figure
from app.figures.next_token import next_token_figure
from app.ui.controls import run_when_asked
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.ui.run import Outcome, run, seconds_of
from app.ui.token_text import visible
from app.ui.words import literal, say_note, show_figure
from app.views.loss_choices import CLICKED, OWN, PROMPT, Choices, Text, window_words
from app.views.loss_words import (
    amount,
    called,
    compared_words,
    finding_words,
    in_unit,
    mean_in_unit,
    most_surprising,
    notes_of,
    scale_words,
)
from app.views.next_token import labels_of

ASK_SECONDS = 10.0  # a longer measurement asks first


def draw_page(frame: Frame, choices: Choices, text: Text, answer: Any) -> None:
    """Ask for the numbers and draw them; `answer` is where the finding goes."""
    outcome = _ask(frame, choices, text, "loss.first")
    if outcome is None or outcome.stale:
        return
    loss: Loss = outcome.result
    with answer:
        finding(finding_words(text, loss), key="finding")
    draw_strip(frame, choices, text, loss)
    other = choices.other if choices.other is not None and len(choices.other.tokens.ids) > 1 else None
    if choices.other is not None and other is None:
        say_note("The text to compare with needs at least two tokens.")
    second = None if other is None else _ask(frame, choices, other, "loss.second")
    there = [(text, loss)]
    if other is not None and second is not None and not second.stale:
        there.append((other, second.result))
        draw_compared(frame, there, choices)
    draw_context(there)
    _draw_export(frame, choices, there)


def _ask(frame: Frame, choices: Choices, text: Text, slot: str) -> Outcome | None:
    """The losses of a text; a long one asks first."""
    ids, model = text.tokens.ids, frame.model.config.fingerprint
    if seconds_of("loss", ids, model=model, **choices.params) <= ASK_SECONDS:
        return run("loss", ids, slot=slot, model=model, **choices.params)
    words = f"{called(text)}: {window_words(choices, len(ids))}"
    return run_when_asked(
        "loss",
        ids,
        slot=slot,
        model=model,
        button="Run it",
        words=literal(words[:1].upper() + words[1:]),
        **choices.params,
    )


def draw_strip(frame: Frame, choices: Choices, text: Text, loss: Loss) -> None:
    """The text in the colours of its losses, and the guesses at the chosen token."""
    tokens, unit = text.tokens, choices.unit
    selected = choices.token or most_surprising(loss)
    uniform = loss.uniform_loss_nats
    clicked = token_strip(
        tokens.pieces,
        tokens.ids,
        tokens.starts,
        tokens.ends,
        tokens.special,
        selected=selected,
        amounts=[None, *(amount(float(nats), unit, uniform) for nats in loss.loss_nats)],
        notes=notes_of(frame.model, loss, unit),
        key="loss.strip",
        label="Tokens of the text, coloured by their loss",
    )
    st.caption(
        f"{scale_words(unit, uniform)} {window_words(choices, len(tokens.ids))} Choose a token to see what was expected."
    )
    if clicked == 0:
        say_note("Token 0 is the first: nothing stands before it, so it has no loss.")
    elif clicked is not None and clicked != selected:
        st.session_state[CLICKED] = clicked
        st.rerun()
    draw_guesses(frame, text, loss, selected, unit)


def draw_guesses(frame: Frame, text: Text, loss: Loss, position: int, unit: str) -> None:
    """What the model expected at one place, and where the token that came stands."""
    i = position - 1
    ids, probability = loss.top_ids[i], np.exp(loss.top_log_probability[i].astype(np.float64))
    came = int(loss.target_ids[i])
    if came not in ids:
        ids, probability = np.append(ids, came), np.append(probability, loss.probability[i])
    labels = labels_of(frame.model, ids)
    rank, nats, expected = int(loss.rank[i]), float(loss.loss_nats[i]), "bits" if unit == "bits" else "nats"
    where = "the first choice" if rank == 0 else f"rank {rank:,}, where 0 is the first choice"
    st.markdown(
        f"**Token {position}**, {literal(visible(text.tokens.pieces[position]))}: {literal(in_unit(nats, unit))}, {where}. "
        f"Before it came, the distribution carried {literal(in_unit(float(loss.entropy_nats[i]), expected))} of entropy: the "
        "loss to be expected."
    )
    target = int(np.flatnonzero(ids == came)[0])
    figure = next_token_figure(labels, probability, ids=ids.tolist(), target=target)
    show_figure(
        figure, key="loss.guesses", alt="What the model expected at this place, and the token that came (green)"
    )
    st.caption("Green is the token that came. Its loss is −ln of its probability.")


def draw_compared(frame: Frame, there: list[tuple[Text, Loss]], choices: Choices) -> None:
    """Two texts beside each other."""
    st.header("Two texts")
    for column, (text, loss) in zip(st.columns(2), there, strict=True):
        bytes_too = f"{loss.bits_per_byte(text.n_bytes):.3f} bits per byte" if text.n_bytes else "no bytes"
        column.metric(
            literal(f"{called(text)}, {len(loss.loss_nats):,} tokens"),
            literal(mean_in_unit(loss.mean_nats, choices.unit)),
            bytes_too,
            delta_color="off",
            delta_arrow="off",
        )
    words = compared_words(there[0], there[1])
    st.markdown(literal(words[:1].upper() + words[1:]))
    figure = histogram_figure(
        [(called(text), loss.loss_nats) for text, loss in there], uniform_nats=there[0][1].uniform_loss_nats
    )
    show_figure(figure, key="loss.histogram", alt="Histogram of the losses of both texts; numbers in the tables below")
    st.caption(
        "The mean is over tokens and is exponentiated last: the mean of two perplexities is not the perplexity of two texts. "
        "Per byte compares texts whose tokens have different lengths."
    )
    with st.expander(f"The tokens of {literal(called(there[1][0]))}, coloured alike"):
        text, loss = there[1]
        token_strip(
            text.tokens.pieces,
            text.tokens.ids,
            text.tokens.starts,
            text.tokens.ends,
            text.tokens.special,
            selected=None,
            amounts=[None, *(amount(float(x), choices.unit, loss.uniform_loss_nats) for x in loss.loss_nats)],
            notes=notes_of(frame.model, loss, choices.unit),
            key="loss.other_strip",
            label="Tokens of the other text, coloured by their loss",
        )


def draw_context(there: list[tuple[Text, Loss]]) -> None:
    """Loss by tokens of context: does the model use what it has read?"""
    st.header(
        "Does more context help?",
        help="In-context learning in the widest sense: later tokens are predicted better than earlier ones, because there is "
        "more to go by (Olsson et al. 2022).",
    )
    parts = [(called(text), loss_by_context(loss)) for text, loss in there]
    figure = context_figure(parts, uniform_nats=there[0][1].uniform_loss_nats)
    show_figure(figure, key="loss.context", alt="Mean loss by the number of tokens before; numbers in the table below")
    st.caption(
        "Each point is a mean over the tokens with that much context; n says how many, the bar is its standard error. One text "
        "has few tokens with little context: the left end is hardly more than an anecdote."
    )
    with st.expander("The numbers: every token"):
        table = there[0][1].to_frame()
        table.insert(1, "token", [visible(piece) for piece in there[0][0].tokens.pieces[1:]])
        st.dataframe(table, hide_index=True)


def _draw_export(frame: Frame, choices: Choices, there: list[tuple[Text, Loss]]) -> None:
    uniform = there[0][1].uniform_loss_nats
    parts = [(called(text), loss_by_context(loss)) for text, loss in there]
    losses = [(called(text), loss.loss_nats) for text, loss in there]
    figures: dict[str, Any] = {"loss by context": lambda: context_figure(parts, uniform_nats=uniform)}
    if len(there) > 1:
        figures["loss histogram"] = lambda: histogram_figure(losses, uniform_nats=uniform)
    names = ("loss", "loss of the other text")
    take_with_you(
        frame,
        tables={name: loss.to_frame for name, (_, loss) in zip(names, there, strict=False)},
        figures=figures,
        code=python_code(frame, "run_loss", code_lines(choices, [text for text, _ in there], frame.bos)),
    )


def code_lines(choices: Choices, texts: list[Text], bos: str) -> str:
    """Python that gives the numbers of the page; uses `model` and `text`."""
    lines, options = [], f"window={choices.window}, stride={choices.stride}"
    if any(text.name not in (PROMPT, OWN) for text in texts):
        lines.append("from analyses.passages import PASSAGES\n")
    for name, text in zip(("loss", "other"), texts, strict=False):
        source = "text" if text.name == PROMPT else f"{name}_text"
        if text.name != PROMPT:
            written = repr(text.tokens.text) if text.name == OWN else f"PASSAGES[{text.name!r}]"
            lines.append(f"{source} = run_tokenization(model, {written}, bos={bos!r}, plain=True)")
        lines.append(f"{name} = run_loss(model, {source}.ids, {options})")
        lines.append(f"print({name}.mean_nats, {name}.mean_bits, {name}.perplexity, {name}.to_frame(), sep='\\n')")
    return "\n".join(lines)
