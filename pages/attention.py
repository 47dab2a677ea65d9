"""Who looks where? Every head's map, what its numbers mean, and a check by leaving heads out."""

import streamlit as st

from app.components.finding import finding
from app.ui.frame import current_frame
from app.ui.words import literal
from app.views.attention_choices import choose
from app.views.attention_page import draw_page

frame = current_frame()
n_tokens = len(frame.tokens.ids)

st.title(
    "Who looks where?",
    help="In every layer, several heads let each token look back at the ones before it and at itself, with weights that sum "
    "to one. Each small picture is one head: rows are the tokens that look, columns those that are looked at.",
)
answer = st.container()
missing = frame.model.capabilities["pattern"]
choices = choose()
if missing:
    st.info(f"Attention maps are off for {literal(frame.model.config.name)}: {literal(missing)}")
elif n_tokens:
    draw_page(frame, choices, answer)
else:
    with answer:
        finding(["An empty prompt has nothing to look at. Write one on the left."], key="finding")

st.header("What this does not show")
st.write(
    "Attention weights are not an explanation: they say how much of a token's value is mixed in, not what that value does "
    "(Jain and Wallace 2019, *Attention is not Explanation*). The check by leaving heads out is one click away, under "
    "**Does it matter?** A score measures where a head looks on random repeats; Olsson et al. (2022) also require that it "
    "copies. And leaving a head out can under- or overstate it, because later layers make up for it (Rushing and Nanda 2024)."
)
