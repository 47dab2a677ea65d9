"""What surprised it? The loss of every token of a text."""

from math import log

import streamlit as st

from app.components.finding import finding
from app.ui.frame import current_frame
from app.views.loss_choices import choose
from app.views.loss_page import draw_page

frame = current_frame()
d_vocab = frame.model.config.d_vocab

st.title(
    "What surprised it?",
    help="Before each token the model had assigned it a probability. The loss is minus the logarithm of that probability: 0 nats "
    f"for what was certain, {log(d_vocab):.1f} for a blind guess among {d_vocab:,} tokens.",
)
answer = st.container()
choices = choose(frame)
n_tokens = 0 if choices.text is None else len(choices.text.tokens.ids)
if choices.text is not None and n_tokens > 1:
    draw_page(frame, choices, choices.text, answer)
else:
    found = {0: "nothing", 1: "one token, which nothing stands before"}[n_tokens]
    with answer:
        finding([f"Needs at least two tokens; found {found}. Write a longer text, or choose one."], key="finding")

st.header("What this does not show")
st.write(
    "A low loss is not truth and not understanding: a text that repeats itself, or that was in the training data, surprises "
    "little (Carlini et al. 2021, *Extracting Training Data from Large Language Models*). Nats and perplexity per token belong "
    "to one tokenizer: models with different vocabularies are compared by bits per byte. Window, stride and a token in front "
    "change the number, so they belong beside it. One text is one text: its tokens depend on each other, and the difference of "
    "two means is less certain than it looks."
)
