"""What is lost without it? Addends left out of the sum that is the stream."""

import streamlit as st

from app.components.finding import finding
from app.ui.frame import current_frame
from app.views.deletion_choices import Deletion, choose_off, choose_text
from app.views.deletion_page import draw_page

frame = current_frame()
n_layers = frame.model.config.n_layers

st.title(
    "What is lost without it?",
    help="Each layer adds twice to the residual stream: its attention and its MLP. To delete one is to leave out what it "
    "adds; the stream passes by. The loss says how surprised the model is by the text, in nats per token.",
)
answer = st.container()
controls = st.columns([1, 2], vertical_alignment="bottom")
with controls[0]:
    text, tokens = choose_text(frame)
with controls[1]:
    off = choose_off(n_layers)

if tokens is not None and tokens.ids:
    draw_page(frame, Deletion(tokens.ids, tokens.pieces, off, text), answer)
else:
    with answer:
        finding(
            ["An empty prompt has nothing to lose. Write one on the left, or choose a built-in text."], key="finding"
        )

st.header("What this does not show")
st.write(
    "One text is one text: which layers are cheap differs between texts and models, so try several. Which layers matter is "
    "not uniform over depth, and a cosine score cannot see everything: a layer that writes one very large value into token 0 "
    "hardly turns any other token's stream, and can still be among the dearest to lose (Sun et al. 2024; the sweep shows this "
    "model's own numbers). Later layers can partly make up for a missing one, so a small loss is not proof that a layer does "
    "nothing (Rushing and Nanda 2024)."
)
