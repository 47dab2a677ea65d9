"""What does the model actually see? The prompt as tokens, and what comes next after any of them."""

import math

import streamlit as st

from app.components.finding import finding
from app.figures.next_token import next_token_figure
from app.ui.controls import segments
from app.ui.export import python_code, take_with_you
from app.ui.frame import current_frame
from app.ui.run import run
from app.views.bos import draw_bos
from app.views.languages import draw_languages
from app.views.next_token import MAX_LISTED, draw_next_token, first_k, labels_of
from app.views.position import choose_position, draw_strip
from app.views.splitting import draw_numbers, draw_words
from app.views.token_finding import EMPTY, next_words, split_words
from app.views.token_notes import draw_token_notes

frame = current_frame()
model, tokens = frame.model, frame.tokens

st.title(
    "What does the model actually see?",
    help="A token is a piece of text with a number, its id; the model sees only the ids. Bits say how undecided the "
    f"distribution is: 0 when one token has everything, {math.log2(model.config.d_vocab):.1f} when all "
    f"{model.config.d_vocab:,} are equally likely.",
)
answer = st.container()
controls = st.columns([1, 1, 2], vertical_alignment="bottom")
with controls[0]:
    position = choose_position(len(tokens.ids))
with controls[1]:
    top_k = st.slider("Tokens to list", 5, MAX_LISTED, 10, key="list", bind="query-params")

outcome = None
if not tokens.ids:
    with answer:
        finding([EMPTY], key="finding")
else:
    draw_strip(tokens, position)
    draw_token_notes(frame)
    fingerprint = model.config.fingerprint
    outcome = run(
        "next_token",
        tokens.ids,
        slot="tokens.next",
        model=fingerprint,
        position=position,
        top_k=min(MAX_LISTED, model.config.d_vocab),
    )
    fresh = outcome is not None and not outcome.stale
    with answer:
        finding([split_words(frame), *(next_words(frame, outcome.result) if fresh else [])], key="finding")
if outcome is not None:
    result = first_k(outcome.result, top_k)
    st.header("What comes next", help="The model's only output: a probability for every token of its vocabulary.")
    draw_next_token(model, result)

st.header("Look closer")
SECTIONS = {
    "Languages": lambda: draw_languages(frame),
    "Numbers": draw_numbers,
    "Words": draw_words,
    "BOS": lambda: draw_bos(frame),
}
section = segments("Section", SECTIONS, key="section", titled=False)
SECTIONS[section]()

st.header("What this does not show")
st.write(
    "Counts belong to this tokenizer, and probabilities to this model, this exact beginning and this number format: a "
    "BOS token or a trailing space changes them. A probability says what the model assigns to the next token, not what "
    "is true, and not why. Byte-pair encoding: Sennrich, Haddow and Birch 2016; over bytes: Radford et al. 2019."
)
if outcome is not None and not outcome.stale:
    labels = labels_of(model, result.ids)
    take_with_you(
        frame,
        tables={"tokens": tokens.to_frame(), "next-tokens": result.to_frame(model.vocabulary)},
        figures={"next-tokens": lambda: next_token_figure(labels, result.probability, ids=result.ids.tolist())},
        code=python_code(
            frame,
            "run_next_token",
            f"after = run_next_token(model, text.ids, position={position}, top_k={top_k})\n"
            "for id, probability in zip(after.ids, after.probability):\n"
            "    print(repr(model.tokenizer.decode(id)), probability)",
        ),
    )
