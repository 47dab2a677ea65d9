"""The figures with labels that Plotly would like to interpret."""

import numpy as np
import streamlit as st

from analyses.languages import LanguageCosts
from app.figures.languages import languages_figure
from app.figures.next_token import next_token_figure
from app.figures.sampling import sampling_figure
from app.figures.theme import text_colour
from app.ui.token_text import visible

PIECES = [b" the", b" the", b"<b>bold</b>", b"<a href='x'>y</a>", b"$x$", b"&lt;b&gt;", b"\n", b"%{x}", b"\xf0\x9f"]
LABELS = [visible(piece) for piece in PIECES]
PROBABILITY = np.array([0.999, 0.25, 0.1, 0.05, 0.02, 0.01, 0.0005, 1e-9, 0.0])
counts = np.array([24, 48, 5])
costs = LanguageCosts(
    name=("English", "Hindi", "<b>mine</b>"),
    n_tokens=counts,
    n_characters=counts * 4,
    n_bytes=counts * 6,
    tokens_per_character=counts / (counts * 4),
    tokens_per_byte=counts / (counts * 6),
    relative_to_english=np.array([1, 2, np.nan]),
)
figures = {
    "next": next_token_figure(LABELS, PROBABILITY, ids=range(9)),
    "sampling": sampling_figure(LABELS, PROBABILITY, PROBABILITY * (PROBABILITY > 0.04)),
    "languages": languages_figure(costs, own="<b>mine</b>"),
}
for key, figure in figures.items():
    st.plotly_chart(text_colour(figure, dark=st.context.theme.type == "dark"), key=key)
