"""What a token in front changes: the same prompt under every choice this tokenizer offers."""

import streamlit as st

from app.backend import get_backend
from app.backend.protocol import Refused
from app.ui.choices import BOS_WORDS
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.token_text import percent, visible
from app.ui.words import literal, say_error, show_table
from app.views.next_token import in_bits, probability_of


def draw_bos(frame: Frame) -> None:
    """A table: one row per choice, the same token's probability in each."""
    if frame.chat:
        st.caption("A chat template brings its own marks; switch it off to compare what stands in front.")
        return
    model = frame.model
    rows = []
    for choice in model.bos_choices:
        try:
            tokens = get_backend().tokenize(frame.prompt, bos=choice, plain=frame.plain)
        except (ValueError, Refused) as error:
            say_error(str(error))
            return
        if not tokens.ids:
            rows.append((choice, tokens, None))
            continue
        outcome = run(
            "next_token", tokens.ids, slot=f"tokens.bos.{choice}", model=model.config.fingerprint, position=-1, top_k=1
        )
        if outcome is None or outcome.stale:
            return
        rows.append((choice, tokens, outcome.result))
    done = [result for _, _, result in rows if result is not None]
    if not done:
        st.caption("Type a prompt first.")
        return
    target = int(done[0].ids[0])
    name = visible(model.vocabulary.piece(target))
    show_table(
        {
            "in front": [visible(tokens.bos.encode()) if tokens.bos else "nothing" for _, tokens, _ in rows],
            f"P({name})": [percent(probability_of(result, target)) if result else "" for _, _, result in rows],
            "most probable": [
                visible(model.vocabulary.piece(int(result.ids[0]))) if result else "" for _, _, result in rows
            ],
            "bits": [f"{in_bits(result.entropy_nats):.2f}" if result else "" for _, _, result in rows],
            "choice": [BOS_WORDS[choice] for choice, _, _ in rows],
        }
    )
    st.caption(
        f"P({literal(name)}) is the probability of the token that is most probable with the tokenizer's default. "
        "A beginning-of-sequence token is a choice, not a detail: many models were trained with one and put much "
        "of their attention "
        "on it; this page uses what the tokenizer does by itself unless you choose otherwise on the left."
    )
