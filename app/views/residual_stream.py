"""How large the stream is, and how much each block turns it."""

import numpy as np
import streamlit as st

from analyses.residual_stream import ResidualStream
from app.figures.by_layer import depth_labels
from app.figures.residual_stream import cosine_figure, norm_figure
from app.ui.words import show_figure


def draw_residual_stream(result: ResidualStream, n_layers: int, position: int) -> None:
    """Two pictures side by side, and what stands out in words."""
    norms, turns = st.columns(2)
    with norms:
        show_figure(
            norm_figure(result, depth_labels(n_layers), position), key="lens.norms", alt="Norm of the stream by depth"
        )
    with turns:
        show_figure(cosine_figure(result, position), key="lens.cosines", alt="Cosine before and after each block")
    st.caption(massive_words(result))
    with st.expander("The numbers: norms and cosines"):
        st.dataframe(result.to_frame(), hide_index=True)


def massive_words(result: ResidualStream) -> str:
    """What position 0 carries against the rest."""
    if result.norm.shape[1] == 1:
        return "One token has no others to compare with."
    ratio = result.norm[:, 0] / result.mean_norm
    depth = int(np.argmax(ratio))
    if ratio[depth] < 10:
        return (
            "Token 0 is left out of every mean, because in many models it carries a norm many times that of the others; "
            f"here it is at most {ratio[depth]:.1f} times."
        )
    where = f"depth {depth} (after layer {depth - 1})" if depth else "depth 0 (the embedding)"
    return (
        f"Token 0 carries a norm of {result.norm[depth, 0]:,.0f} at {where}, against {result.mean_norm[depth]:,.0f} on average "
        "elsewhere. Such massive activations are common (Sun, Chen, Kolter and Liu 2024); they say nothing about its content, "
        "so token 0 is left out of every mean, and the scale is logarithmic."
    )
