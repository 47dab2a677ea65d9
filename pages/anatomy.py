"""Where are the parameters? A model counted from its config.json alone: guessed first, then revealed."""

import streamlit as st

from app.components.finding import finding
from app.ui.frame import current_frame
from app.views.anatomy_choices import choose
from app.views.anatomy_page import draw_page
from app.views.inside_block import draw_inside_block

frame = current_frame()

st.title(
    "Where are the parameters?",
    help="A parameter is a number that training sets. A config.json says the shapes of all matrices, so they can be counted "
    "without the model. The cache holds keys and values of earlier tokens, so that they are not computed again.",
)
answer = st.container()
counted, other = choose(frame)
if counted is not None:
    draw_page(frame, counted, other, answer)
else:
    with answer:
        finding(["Nothing is counted yet: the reason stands below."], key="finding")

if st.toggle(
    "Look inside a block of the open model",
    key="look_inside",
    bind="query-params",
    help="Norms, one changed token, an MLP without its nonlinearity, a weight cut to a rank: what the parts do, measured.",
):
    draw_inside_block(frame)

st.header("What the config cannot tell you")
st.write(
    "What the parameters do, and how well: two models of one shape can differ in everything they learned. Data, number of "
    "training tokens, tokenizer and chat template are not in it. Nor is speed: bounds from arithmetic assume a card that never "
    "waits (Williams, Waterman and Patterson 2009), and servers lose memory to fragmentation (Kwon and others 2023). A context "
    "in the file is what positions were made for, not what a model can use. For a family that is not known here no number is "
    "given, because its code may hold parts that no field names."
)
