"""What would it say if it stopped here? Every depth read as if it were the last, and who wrote the answer."""

import math

import streamlit as st

from app.components.finding import finding
from app.ui.frame import current_frame
from app.views.lens_choices import choose
from app.views.lens_finding import EMPTY
from app.views.lens_page import draw_page

frame = current_frame()
n_tokens = len(frame.tokens.ids)

st.title(
    "What would it say if it stopped here?",
    help="The logit lens reads the residual stream after each layer with the model's own last step (final norm and "
    "unembedding), as if no layer came after it. Depth 0 is the embedding; the last depth is the model itself. A nat is "
    f"1.44 bits; a uniform guess costs ln {frame.model.config.d_vocab:,} = {math.log(frame.model.config.d_vocab):.1f} nats.",
)
answer = st.container()
choices = choose(frame.model, n_tokens)
if n_tokens:
    draw_page(frame, choices, answer)
else:
    with answer:
        finding([EMPTY], key="finding")

st.header("What this does not show")
st.write(
    "The lens shows what the *output* step would say of a half-finished state. Early layers write in other directions than "
    "the last one reads, so a poor answer there is a property of the lens, not proof that the model does not know yet "
    "(nostalgebraist 2020; Belrose et al. 2023 call it brittle; the linear lens follows Din, Karidi, Choshen and Geva 2023). "
    "Low entropy in a middle layer can be false confidence: compare it with KL."
)
st.write(
    "Who wrote it counts direct effects only: what a head does through later layers is invisible, and the final norm is "
    "held at its value for this prompt, which hides how one part rescales the others (direct logit attribution: Elhage et "
    "al. 2021). A linear lens may also find what a map can find, not what the model uses."
)
