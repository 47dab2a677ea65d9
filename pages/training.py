"""When does a model learn to look back? Two tiny models, step by step through their training."""

import streamlit as st

from app.ui.frame import current_frame
from app.views.training_page import draw_page

frame = current_frame()

st.title(
    "When does a model learn to look back?",
    help="An induction head continues a repetition: after A B ... A it looks at what followed the first A and writes "
    "B. It needs a second head, in the layer below, that tells every token what came before it.",
)
answer = st.container()
draw_page(frame, answer)

st.header("What this does not show")
st.write(
    "These are models of a tenth of a million parameters, trained on the Python documentation; the model named on the "
    "left is not looked at here. Whoever starts the server can put `tiny-induction` on the list of models "
    "(`STREAMSCOPE_MODELS`): then every page shows it, at any step. A quarter of the training windows repeat a passage: "
    "without that, no induction appeared within this budget. It is one architecture and two seeds, and how many heads "
    "share the work already differs between these. That the curves change together is correlation; what makes it more "
    "here is that heads and single paths were taken out. For large models the evidence is correlational (Olsson et al. "
    "2022), and a toy shows that this can happen, not that it happens there in the same way."
)
