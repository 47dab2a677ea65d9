"""The same words as the beginning of a document and as a question in a chat: a completer beside an assistant."""

import streamlit as st

from analyses.tokenization import Tokens
from app.backend import get_backend
from app.backend.protocol import Refused
from app.ui.controls import run_when_asked
from app.ui.frame import Frame
from app.ui.run import Outcome, run
from app.ui.words import literal, say_error
from app.views.generate_choices import Settings, words_of_params

MARKS = ("As it stands", "In the chat template")


def draw_chat(frame: Frame, settings: Settings) -> None:
    """Both texts side by side, once somebody asks; nothing for a model without a chat template."""
    if not frame.model.has_chat_template or not frame.prompt:
        return
    st.header(
        "Completed, or answered?",
        help="A chat template wraps a message in the marks that the model saw when it was trained to answer.",
    )
    both = _tokenize(frame)
    if both is None:
        return
    raw, chat = both
    params = {**settings.params, "samples": 1} if "samples" in settings.params else settings.params
    room = frame.model.config.n_ctx - max(len(raw.ids), len(chat.ids))
    if room < 1 or not raw.ids:
        st.caption("There is no room for both in the context.")
        return
    params["max_new_tokens"] = min(params["max_new_tokens"], room)
    same = {"model": frame.model.config.fingerprint, **params}
    first = run_when_asked(
        "generation",
        chat.ids,
        slot="generate.chat",
        button="Write both",
        words=f"The same prompt twice, as it stands and in the chat template, {words_of_params(params)}.",
        **same,
    )
    if first is None or first.stale:
        return
    second = run("generation", raw.ids, slot="generate.raw", **same)
    if second is None or second.stale:
        return
    _draw_both(frame, (raw, chat), (second, first))


def difference_words(raw: Tokens, chat: Tokens, ended: tuple[bool, bool]) -> str:
    """What differs, said with its numbers."""
    marks = sum(chat.special) - sum(raw.special)
    added = len(chat.ids) - len(raw.ids)
    said = (
        f"The template adds {added:,} tokens, {marks:,} of them special; the others name the roles or are text of its own, "
        "such as a system message. "
    )
    if ended[1] and not ended[0]:
        return (
            said
            + "As it stands the text goes on until it is cut off; in the template the model ends its turn by itself."
        )
    if ended[0] and ended[1]:
        return said + "Both ended by themselves."
    if ended[0]:
        return said + "Only the text as it stands ended by itself."
    return said + "Both were cut off at the number of tokens."


def _tokenize(frame: Frame) -> tuple[Tokens, Tokens] | None:
    """The prompt both ways."""
    backend, same = get_backend(), {"plain": frame.plain, "keep": frame.keep}
    try:
        raw = backend.tokenize(frame.prompt, bos="default" if frame.chat else frame.bos, chat=False, **same)
        return raw, backend.tokenize(frame.prompt, chat=True, **same)
    except (ValueError, Refused) as error:
        say_error(str(error))
        return None


def _draw_both(frame: Frame, tokens: tuple[Tokens, Tokens], outcomes: tuple[Outcome, Outcome]) -> None:
    for place, name, each, outcome in zip(st.columns(2), MARKS, tokens, outcomes, strict=True):
        result = outcome.result
        with place:
            st.markdown(f"**{name}**: {len(each.ids):,} tokens of prompt")
            st.code(result.text or " ", language=None, wrap_lines=True)
            how = "ended by itself" if result.ended else "cut off"
            st.caption(f"{len(result.ids):,} tokens, {how}.")
    ended = tuple(outcome.result.ended for outcome in outcomes)
    st.caption(literal(difference_words(*tokens, (ended[0], ended[1]))))
