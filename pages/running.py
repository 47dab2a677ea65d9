"""What does it cost? Seconds and bytes of running a model, measured here."""

import streamlit as st

from app.ui.frame import current_frame
from app.views.running_page import draw_page

frame = current_frame()

st.title(
    "What does it cost?",
    help="A model first reads the whole prompt in one pass (prefill), then writes token by token (decode). What it has read "
    "stays in a cache of keys and values, which grows with every token.",
)
answer = st.container()
draw_page(frame, answer)

st.header("What this does not show")
st.write(
    "Seconds are those of this machine, this number format and this program, which keeps attention open to be looked at: servers "
    "made for speed fuse operations, pack texts of all lengths together and share prefixes (Kwon et al. 2023). What stays true "
    "elsewhere is the shape: prefill computes, decode waits for memory (Pope et al. 2023). The FLOPs count matrices and "
    "attention only. And what stands in the window is not therefore used: models read the middle of a long context worst "
    "(Liu et al. 2024)."
)
