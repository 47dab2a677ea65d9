"""What if we add a direction? A vector added to the stream, and what it costs."""

import streamlit as st

from app.ui.frame import current_frame
from app.views.steering_page import draw_page

frame = current_frame()

st.title(
    "What if we add a direction?",
    help="Every layer reads the stream and adds to it. Here one more thing is added: a vector, the same at every token. Usually "
    "it is what two groups of texts differ in on average. The coefficient says how much, in mean lengths of the stream there.",
)
draw_page(frame, st.container())

st.header("What this does not show")
st.write(
    "That concepts are directions is a working hypothesis (Park, Choe and Veitch 2023). A vector is what two groups of texts "
    "differ in, and that may be something else than its name says. Effects vary strongly between prompts and can reverse (Tan et "
    "al. 2024, arXiv 2407.12404; Braun et al. 2025, arXiv 2505.22637), and on two Gemma 2 models prompting beat every steering "
    "method tried (Wu et al. 2025, AxBench). A coefficient is in units of the stream's mean length at that layer, over tokens "
    "from 1 of a fixed text, so 0.3 is another raw size in every layer and model; ActAdd and CAA state raw sizes (Turner et al. "
    "2023; Rimsky et al. 2023). Eight neutral sentences do not show all damage: a vector may spare them and harm code, facts or "
    "refusals."
)
