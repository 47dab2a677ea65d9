"""What comes next, token by token? A continuation, each token with the distribution it was taken from."""

import streamlit as st

from app.ui.frame import current_frame
from app.views.generate_choices import choose
from app.views.generate_page import draw_page

frame = current_frame()

st.title(
    "What comes next, token by token?",
    help="The model gives a probability to every token of its vocabulary; one is taken and read in turn, and so on. Entropy says "
    "how undecided a distribution is, in bits: 0 when one token has everything, 1 when two are equally likely.",
)
answer = st.container()
settings, pressed, seconds = choose(frame)
draw_page(frame, settings, pressed, seconds, answer)

st.header("What this does not show")
st.write(
    "One text is one sample: a small change of one probability can turn a token, and with it all that follow. The most probable "
    "text is often dull and repeats itself, and unusual tokens make good text too (Holtzman et al. 2020), so neither a "
    "probability nor an entropy says how good or how true a text is. A seed gives the same text on this machine with this model "
    "and number format; elsewhere a logit may differ in its last digits, and where two tokens are that close, the texts part. A "
    "chat template makes an assistant only of a model that was trained on it."
)
