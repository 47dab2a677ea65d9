"""Inside a block: what its norms, its MLP and its matrices do, each shown on a real activation or weight."""

from collections.abc import Callable

import streamlit as st

from analyses.linear_mlp import LinearMlp
from analyses.norm_order import DEPTHS, MEASURED
from analyses.position_wise import PositionWise
from app.figures.inside_block import (
    activation_figure,
    changed_positions_figure,
    collapse_figure,
    gradient_figure,
    norm_order_figure,
)
from app.ui.controls import run_when_asked
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.token_text import powers, visible
from app.ui.words import literal, show_figure, show_table
from app.views.inside_choices import VIEWS, Inside, choose
from app.views.inside_norms import draw_norms
from app.views.inside_rank import draw_rank


def draw_inside_block(frame: Frame) -> None:
    """The section: controls, and the picture that is chosen."""
    st.header(
        "Inside a block",
        help="A block adds twice to the stream: x = x + attention(norm(x)), then x = x + mlp(norm(x)). Here is what "
        "each of these words does.",
    )
    inside = choose(frame)
    if inside is not None:
        DRAWN[inside.view](frame, inside)


def draw_changed_token(frame: Frame, inside: Inside) -> None:
    """One row of the input changed: who notices?"""
    ids = inside.tokens.ids
    other = next((i for i in ids if i != ids[inside.position]), (ids[inside.position] + 1) % frame.model.config.d_vocab)
    outcome = run(
        "position_wise",
        ids,
        slot="inside.position",
        model=frame.model.config.fingerprint,
        layer=inside.layer,
        position=inside.position,
        replacement=other,
    )
    if outcome is None or outcome.stale:
        return
    result: PositionWise = outcome.result
    put = literal(visible(frame.model.vocabulary.piece(other)))
    st.markdown(f"Token {inside.position}, {inside.token}, becomes {put}. {literal(position_words(result))}")
    labels = [visible(piece) for piece in inside.tokens.pieces]
    show_figure(
        changed_positions_figure(result, labels), key="inside.position.figure", alt="How far each token's output moved"
    )
    st.caption(
        "Orange and blue: the layer got its own input, with one row exchanged. The MLP is the same function at every "
        "token, of that token alone (Vaswani et al. 2017: position-wise). Attention is where tokens meet, and the mask "
        "lets it look back only. Grey: in the whole run the MLPs of later tokens change too, because earlier layers' "
        "attention has carried the change there."
    )


def position_words(result: PositionWise) -> str:
    """What moved and what did not."""
    later = result.attention_change[result.position + 1 :]
    n_later = int((later > 0).sum())
    exact = (
        "by exactly 0 at every other token"
        if result.mlp_elsewhere == 0
        else powers(f"by at most {result.mlp_elsewhere:.1e} at any other token, which is rounding")
    )
    before = "exactly 0" if result.attention_before == 0 else powers(f"at most {result.attention_before:.1e}")
    return (
        f"The MLP of layer {result.layer} moves by {result.mlp_change[result.position]:.2f} of its length there, and "
        f"{exact}. Its attention moves {_others(n_later, len(later), result.position, before)}."
    )


def _others(n_later: int, n: int, position: int, before: str) -> str:
    """Where attention moves besides the changed token."""
    after = f"at {n_later} of the {n} later tokens too" if n else "at no later token, because there is none"
    return f"{after}, and by {before} at earlier ones" if position else after


def draw_no_activation(frame: Frame, inside: Inside) -> None:
    """Two matrices are one matrix; what a gate changes; what the model loses."""
    common = {"model": frame.model.config.fingerprint, "layer": inside.layer, "position": inside.position}
    outcome = run("linear_mlp", inside.tokens.ids, slot="inside.linear", compare=False, **common)
    if outcome is None or outcome.stale:
        return
    result: LinearMlp = outcome.result
    st.markdown(literal(collapse_words(result)))
    show_figure(
        collapse_figure(result), key="inside.linear.figure", alt="Two matrices against their product, by component"
    )
    without = "gate(x) · in(x), no activation" if result.gated else "no activation"
    show_table(
        {
            "what is computed": ["two matrices", without, f"the MLP as it is ({result.activation})"],
            "f(2x) over f(x)": [
                f"{x:.3f}" for x in (result.doubled_two_matrices, result.doubled_identity, result.doubled_own)
            ],
            "f(x + y) − f(x) − f(y), relative": [
                f"{x:.2f}" if x >= 0.01 else powers(f"{x:.1e}")
                for x in (result.sum_error_two_matrices, result.sum_error_identity, result.sum_error_own)
            ],
        }
    )
    st.caption(
        f"Linear means 2 and 0. Biases are left out, x and y are neighbouring tokens. {literal(gate_words(result))}"
    )
    asked = run_when_asked(
        "linear_mlp",
        inside.tokens.ids,
        slot="inside.linear.loss",
        button="Take the activation out of every MLP",
        words="The loss of the text as it is, with ReLU in place of the activation, and with none.",
        **common,
    )
    if asked is not None and not asked.stale:
        show_figure(activation_figure(asked.result), key="inside.linear.losses", alt="Loss by activation")
        st.caption(
            "The model has learned with its own activation: the rise says how much it relies on it, not what another "
            "would reach after training. The softmax of attention and the norms are nonlinear too, so the model does "
            "not become linear."
        )


def collapse_words(result: LinearMlp) -> str:
    """Two matrices and one, in numbers."""
    return powers(
        f"Layer {result.layer}: the {result.d_model:,} numbers of a token go out to {result.d_mlp:,} and back. Without "
        f"anything between, in and out ({result.n_two:,} numbers) are one matrix of {result.n_one:,} numbers and rank "
        f"{result.rank:,}: over all tokens of the text the two ways differ by at most {result.max_error:.1e}, where the "
        f"largest number is {result.largest:.1f}."
    )


def gate_words(result: LinearMlp) -> str:
    """What is linear in this MLP, exactly."""
    if not result.gated:
        return "This MLP has no gate: without its activation it is linear, and its two matrices are one."
    return (
        "This MLP is gated (Shazeer 2020): out(act(gate(x)) · in(x)). Without the activation it is a product of two "
        "linear maps, which is quadratic, not linear: four times as large for twice the input. Linear is only what is "
        "left for a gate that is held."
    )


def draw_norm_order(frame: Frame, inside: Inside) -> None:
    """Pre-norm against post-norm, drawn and measured on toys."""
    st.markdown(
        "The model that is open here may be either; nearly all since GPT-2 are pre-norm. With the norms inside the "
        "branches the stream is a plain sum, from the embedding to the end: nothing on it is ever rescaled. That is "
        "what every page of this app builds on."
    )
    left, right = st.columns(2)
    with left:
        show_figure(
            norm_order_figure(),
            key="inside.order.drawn",
            alt="Left: the norm stands in the branch, before attention and MLP. Right: it stands on the stream, after "
            "each sum.",
        )
    with right:
        show_figure(
            gradient_figure(MEASURED, DEPTHS), key="inside.order.gradients", alt="Gradient in the last block by depth"
        )
        st.caption(literal(gradient_words()))
    st.caption(
        "Xiong et al. 2020, *On Layer Normalization in the Transformer Architecture*: post-norm models have large "
        "gradients near the output when training starts, and need a warm-up of the learning rate. Measured on random "
        "toy models (width 64, 8 seeds; benchmarks/norm\\_order.py), not on the open model; a toy shows the gradients, "
        "not which of the two learns better. Gemma 2 has norms on both sides of each part; OLMo 2 has them after the "
        "part and before the sum, which keeps the sum plain."
    )


def gradient_words() -> str:
    """The two ends of the figure, in numbers."""
    pre, post = (MEASURED[name]["last_block"] for name in ("pre", "post"))
    return (
        f"From {DEPTHS[0]} to {DEPTHS[-1]} layers the gradient in the last block goes from {pre[0]:.2f} to "
        f"{pre[-1]:.2f} with pre-norm, and from {post[0]:.2f} to {post[-1]:.2f} with post-norm."
    )


DRAWN: dict[str, Callable[[Frame, Inside], None]] = {
    VIEWS[0]: draw_norms,
    VIEWS[1]: draw_changed_token,
    VIEWS[2]: draw_no_activation,
    VIEWS[3]: draw_rank,
    VIEWS[4]: draw_norm_order,
}
