"""The context as one budget: instruction, document, conversation, question and answer, and what falls out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from analyses.chat_marks import ROLES, ChatMarks
from analyses.context_budget import POLICIES, ContextBudget
from analyses.passages import PASSAGES
from app.backend import get_backend
from app.components.finding import finding
from app.figures.next_token import next_token_figure
from app.figures.running import budget_figure
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.words import say_note, show_figure, show_table
from app.views.next_token import labels_of

WINDOWS = (64, 128, 256, 512, 1024, 2048)
DEFAULT_WINDOW = 128
NO_DOCUMENT = "none"
DOCUMENTS = (NO_DOCUMENT, *PASSAGES)
INSTRUCTION = "Answer every question in French, with one word."
OTHER = "Answer every question with a number, and nothing else."
ANSWER = 24
TURNS = 2
# Written for this page: short exchanges, so that a small window fills turn by turn.
TALK = (
    ("Hello! Can you help me plan a day in a city?", "Of course. Which city would you like to see?"),
    ("I am not sure yet. Somewhere with a river.", "A river narrows it down a little. Do you like museums?"),
    ("Yes, but only small ones, and good bread.", "Then a walk, a small museum and a bakery make a day."),
    ("How early should we start?", "At nine the streets are quiet and the bread is warm."),
    ("And if it rains?", "Then the museum comes first and the walk comes after."),
    ("My sister wants to swim.", "Many cities have a pool near the river. Bring a towel."),
    ("How do we get there?", "By train, if you can: the station is near the old town."),
    ("Thank you, one more question.", "Please ask."),
)


@dataclass(frozen=True)
class Part:
    """A part of the context, as ids between its marks."""

    name: str
    ids: tuple[int, ...]
    n_marks: int  # tokens of them that the chat template put there


def draw_context(frame: Frame) -> ContextBudget | None:
    """Controls, the picture of the window, and the two instructions side by side."""
    config = frame.model.config
    st.header(
        "The context is one budget",
        help="Everything the model reads, and the answer it still has to write, share one window of tokens.",
    )
    choices = _draw_choices(config.n_ctx)
    outcome = run("chat_marks", (), slot="running.marks", model=config.fingerprint)
    if outcome is None or outcome.stale:
        return None
    marks: ChatMarks = outcome.result
    parts, other = build_parts(marks, frame.prompt, choices)
    if not parts[-1].ids:
        say_note("An empty prompt asks nothing: write a question on the left.")
        return None
    found = run(
        "context_budget",
        parts[-1].ids,
        slot="running.context",
        model=config.fingerprint,
        before=[[part.name, list(part.ids)] for part in parts[:-1]],
        other=list(other.ids),
        window=choices["window"],
        answer=choices["reserve"],
        policy=choices["policy"],
    )
    if found is None or found.stale:
        return None
    _draw(frame, found.result, parts, marks, choices)
    return found.result


def _draw_choices(n_ctx: int) -> dict[str, Any]:
    """Window, policy, length of the conversation; the texts behind "More"."""
    options = [str(n) for n in WINDOWS if n < n_ctx] + [str(n_ctx)]
    if st.session_state.get("context_window") not in options:
        st.session_state.pop("context_window", None)
    default = options.index(str(DEFAULT_WINDOW)) if str(DEFAULT_WINDOW) in options else len(options) - 1
    window, turns, policy, more = st.columns([1, 2, 2, 1], vertical_alignment="bottom")
    with window:
        size = st.selectbox(
            "Window (tokens)",
            options,
            index=default,
            key="context_window",
            bind="query-params",
            help=f"Smaller than this model's {n_ctx:,} on purpose: short texts then show what long ones do.",
        )
    with turns:
        n_turns = st.slider("Exchanges before your question", 0, len(TALK), TURNS, key="turns", bind="query-params")
    with policy:
        chosen = segments(
            "When it is too much",
            POLICIES,
            key="context_policy",
            help="Whole parts go, the oldest first. The instruction is the oldest, unless it is kept by rule.",
        )
    with more, st.popover("More", width="stretch"):
        first = st.text_input("Instruction", INSTRUCTION, key="instruction", bind="query-params", max_chars=500)
        second = st.text_input(
            "Another instruction, to compare", OTHER, key="other_instruction", bind="query-params", max_chars=500
        )
        document = st.selectbox("Document", DOCUMENTS, key="document", bind="query-params")
        reserve = st.number_input("Tokens kept free for the answer", 1, 60, ANSWER, key="reserve", bind="query-params")
    return {
        "window": int(size),
        "turns": int(n_turns),
        "policy": chosen,
        "instruction": first,
        "other": second,
        "document": document,
        "reserve": min(int(reserve), int(size) - 1),
    }


def build_parts(marks: ChatMarks, prompt: str, choices: dict[str, Any]) -> tuple[list[Part], Part]:
    """Every part as ids, oldest first, the question last; and the other instruction."""
    system, user, assistant = range(len(ROLES))
    parts = [_part(marks, "instruction", [(system, choices["instruction"])])]
    if choices["document"] != NO_DOCUMENT:
        parts.append(_part(marks, "document", [(user, f"Here is a text. {PASSAGES[choices['document']]}")]))
    # The end of the talk comes last, whatever its length: its last exchange leads to the question.
    for number, (asked, said) in enumerate(TALK[len(TALK) - choices["turns"] :], 1):
        parts.append(_part(marks, f"exchange {number}", [(user, asked), (assistant, said)]))
    parts.append(_part(marks, "question", [(user, prompt)], end=marks.header, last=True))
    return parts, _part(marks, "instruction", [(system, choices["other"])])


def _part(marks: ChatMarks, name: str, messages: list[tuple[int, str]], end: str = "", *, last: bool = False) -> Part:
    """Messages of the given roles between their marks. Without marks a message is a paragraph, and the last one is open."""
    ids: list[int] = []
    n_marks = 0
    for role, text in messages:
        opening, content, closing = _ids(marks.opens[role]), _ids(text, plain=True), _ids(marks.closes[role])
        if marks.reason and not last:
            content = _ids(f"{text}\n\n", plain=True)
        ids += [*opening, *content, *closing]
        n_marks += len(opening) + len(closing)
    header = _ids(end)
    return Part(name, (*ids, *header), n_marks + len(header))


def _ids(text: str, *, plain: bool = False) -> tuple[int, ...]:
    """Ids of a piece alone: no token in front; marks are marks, and text that spells one is text."""
    return get_backend().tokenize(text, bos="none", plain=plain).ids if text else ()


def context_words(result: ContextBudget) -> str:
    """What fits, what fell out, and what that means for the instruction."""
    needed, total = int(result.n_tokens.sum()), int(result.n_tokens.sum()) + result.answer
    sizes = zip(result.names, result.n_tokens, result.n_kept, strict=True)
    gone = [name for name, tokens, kept in sizes if tokens and not kept]
    cut = int(result.n_tokens[-1] - result.n_kept[-1])
    words = (
        f"{needed:,} tokens and {result.answer:,} for the answer make {total:,}; the window holds {result.window:,}. "
    )
    words += f"Fell out: {', '.join(gone)}. " if gone else "Everything fits. "
    if cut:
        words += f"The question itself lost its first {cut:,} tokens. "
    if result.same_ids and "instruction" not in gone:
        return f"{words}Both instructions are the same tokens, so nothing can differ: write another one under More."
    if result.same_ids:
        return words + (
            "Both instructions fell out, so both runs read the same ids, and their logits are the same "
            f"{'bit for bit' if result.max_logit_difference == 0 else 'but for rounding'}: largest difference "
            f"{result.max_logit_difference:g}."
        )
    change = (
        f"With the other instruction the logits change by up to {result.max_logit_difference:.2f} "
        f"(KL {result.kl_nats:.3f} nats)"
    )
    lost, lost_other = lost_instructions(result)
    which = (
        "The other one is shorter and stays. "
        if lost
        else "The other one is longer and falls out. "
        if lost_other
        else ""
    )
    unlike = [
        name
        for name, kept, other in zip(result.names[1:], result.n_kept[1:], result.other_n_kept[1:], strict=True)
        if kept != other
    ]
    if unlike:
        return (
            f"{words}{which}{change}, but not by the instruction alone: of {', '.join(unlike)} other tokens are kept."
        )
    return f"{words}{which}{change}: {'the other one' if lost else 'this one' if lost_other else 'it'} is read."


def lost_instructions(result: ContextBudget) -> tuple[bool, bool]:
    """Whether the instruction, and the other one in its place, fell out; one of no tokens cannot."""
    sizes = ((result.n_tokens[0], result.n_kept[0]), (result.other_n_tokens, result.other_n_kept[0]))
    first, other = (bool(tokens and not kept) for tokens, kept in sizes)
    return first, other


def _draw(frame: Frame, result: ContextBudget, parts: list[Part], marks: ChatMarks, choices: dict[str, Any]) -> None:
    finding([context_words(result)], key="finding.context")
    show_figure(budget_figure(result), key="running.budget", alt="The window and its parts; numbers in the table")
    rows = list(zip(parts, result.n_tokens, result.n_kept, strict=True))
    show_table(
        {
            "part": [*(part.name for part in parts), "answer", "sum"],
            "tokens": [
                *(f"{n:,}" for n in result.n_tokens),
                f"{result.answer:,}",
                f"{_sum(result.n_tokens, result):,}",
            ],
            "of these, marks": [*(f"{part.n_marks:,}" for part in parts), "0", f"{sum(p.n_marks for p in parts):,}"],
            "in the window": [
                *(f"{kept:,}" if kept or not tokens else "fell out" for _, tokens, kept in rows),
                f"{result.answer:,} (free)",
                f"{_sum(result.n_kept, result):,} of {result.window:,}",
            ],
        }
    )
    say_note(
        f"Policy: {result.policy}, whole parts, no holes; the question alone may be cut, at its start. Tokens are counted with "
        "this model's tokenizer; your prompt on the left is the question. "
        + (
            f"No chat marks: {marks.reason}."
            if marks.reason
            else "Marks are what its chat template puts around messages."
        )
    )
    for place, name, is_lost, ids, probability in zip(
        st.columns(2),
        (choices["instruction"], choices["other"]),
        lost_instructions(result),
        (result.top_ids, result.other_top_ids),
        (result.top_probability, result.other_top_probability),
        strict=True,
    ):
        with place:
            say_note(
                f"Next token, {'the instruction fell out' if is_lost else 'with the instruction'}: {name or '(empty)'}"
            )
            figure = next_token_figure(labels_of(frame.model, ids), probability, ids=ids.tolist())
            key = f"running.next.{'first' if ids is result.top_ids else 'other'}"
            show_figure(figure, key=key, alt="Most probable next tokens")
    with st.expander("What the model reads"):
        written = b"".join(frame.model.vocabulary.piece(int(i)) for i in result.ids)
        st.code(written.decode("utf-8", "replace") or " ", language=None, wrap_lines=True)


def _sum(tokens: np.ndarray, result: ContextBudget) -> int:
    return int(tokens.sum()) + result.answer
