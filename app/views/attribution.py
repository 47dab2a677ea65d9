"""Who wrote the answer: the parts of one logit, per layer, and per head of a chosen layer."""

import numpy as np
import streamlit as st

from analyses.attribution import Attribution
from app.backend.protocol import ModelInfo
from app.figures.attribution import attribution_figure, heads_figure
from app.ui.token_text import powers, visible
from app.ui.words import literal, show_figure

N_STRONGEST = 8


def draw_attribution(model: ModelInfo, result: Attribution) -> None:
    """The bars of all layers; a click on one, or the field, shows its heads."""
    target = literal(visible(model.vocabulary.piece(result.target_id)))
    what = f"the logit of {target}"
    if result.distractor_id is not None:
        what += f" minus that of {literal(visible(model.vocabulary.piece(result.distractor_id)))}"
    chosen = choose_layer(model.config.n_layers, result)
    figure = attribution_figure(result, chosen=chosen)
    event = show_figure(
        figure,
        key="lens.writers",
        alt="What each layer's attention and MLP add to the logit; the numbers are in the table below",
        selectable=True,
    )
    take_click(event, model.config.n_layers)
    st.caption(
        f"Check: the parts sum to {what}, {result.logit:.3f}, {close(result.error)}. "
        f"Parts above zero raise it, parts below lower it. {_strongest(result)}"
    )
    if result.model_logit != result.logit and abs(result.model_logit - result.logit) > 1e-3:
        st.caption(
            f"This family changes its logits after the unembedding (softcap or scale): the model's own is "
            f"{result.model_logit:.3f}. The sum is about the logit before that."
        )
    if result.head is None:
        st.caption(f"No bars per head: {literal(result.heads_reason)}")
    else:
        upper = max(float(np.abs(result.head).max()), 1e-6)
        show_figure(
            heads_figure(result.head[chosen], chosen, upper),
            key="lens.heads",
            alt=f"What each head of layer {chosen} adds to the logit",
        )
        st.caption(f"Heads of layer {chosen}. The scale is that of the strongest head of the model.")
    with st.expander("The numbers: every part"):
        st.dataframe(result.to_frame(), hide_index=True)


def close(error: float) -> str:
    """How near the sum comes."""
    return f"up to {powers(f'{error:.1e}')}" if error else "exactly"


def choose_layer(n_layers: int, result: Attribution) -> int:
    """Layer whose heads are shown: chosen, or the one whose attention writes most."""
    if "lens.layer_clicked" in st.session_state:
        st.session_state["writer"] = st.session_state.pop("lens.layer_clicked")
    if (st.session_state.get("writer") or 0) >= n_layers:
        st.session_state["writer"] = None
    most = int(np.abs(result.attention).argmax())
    left, _ = st.columns([1, 3])
    with left:
        layer = st.number_input(
            "Heads of layer",
            min_value=0,
            max_value=n_layers - 1,
            value=None,
            key="writer",
            bind="query-params",
            placeholder=f"strongest attention ({most})",
            help="A click on a bar does the same.",
        )
    return most if layer is None else int(layer)


def take_click(event: list[float], n_layers: int) -> None:
    """A newly clicked bar chooses its layer."""
    places = [int(x) for x in event if 0 <= x < n_layers]
    if places and st.session_state.get("lens.layer_seen") != places[0]:
        st.session_state["lens.layer_seen"] = st.session_state["lens.layer_clicked"] = places[0]
        st.rerun()


def _strongest(result: Attribution) -> str:
    """The largest single parts in words."""
    parts = result.to_frame()
    heads = parts["kind"] == "head" if result.head is not None else parts["kind"] == "attention"
    parts = parts[heads | (parts["kind"] == "mlp") | (parts["kind"] == "embedding")]
    strongest = parts.reindex(parts["contribution_logits"].abs().sort_values(ascending=False).index).head(4)
    listed = ", ".join(
        f"{part} {value:+.2f}" for part, value in zip(strongest["part"], strongest["contribution_logits"], strict=True)
    )
    return f"Largest single heads and MLPs: {literal(listed)}."
