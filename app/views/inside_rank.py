"""The rank of a weight: a matrix, or all of them, cut to its largest singular values, and the loss after."""

import streamlit as st

from analyses._matrices import PARTS
from analyses.model import ModelConfig
from analyses.weight_truncation import ALL, WeightTruncation
from app.figures.inside_block import spectrum_figure, truncation_figure
from app.ui.controls import run_when_asked
from app.ui.frame import Frame
from app.ui.words import literal, show_figure
from app.views.inside_choices import Inside

WORDS = {**PARTS, ALL: "every matrix of every layer"}


def draw_rank(frame: Frame, inside: Inside) -> None:
    """Choose a weight, measure a ladder of ranks, and move along it."""
    config = frame.model.config
    offered = offered_parts(config)
    if st.session_state.get("inside_part") not in (None, *offered):
        st.session_state["inside_part"] = offered[0]  # a link made with another model
    left, _ = st.columns([1, 2])
    with left:
        part = st.selectbox(
            "Matrix",
            offered,
            key="inside_part",
            bind="query-params",
            help=" · ".join(f"{name}: {WORDS[name]}" for name in offered),
        )
    ranks = ladder(side_of(config, part), short=part == ALL)
    many = f"{len(ranks)} ranks, one forward pass each"
    outcome = run_when_asked(
        "weight_truncation",
        inside.tokens.ids,
        slot="inside.rank",
        model=config.fingerprint,
        button="Cut it",
        words=f"{WORDS[part][:1].upper()}{WORDS[part][1:]}{'' if part == ALL else f', layer {inside.layer}'}: {many}.",
        part=part,
        layer=inside.layer,
        ranks=ranks,
    )
    if outcome is None or outcome.stale:
        return
    _draw(outcome.result)
    st.caption(
        "What it says: how much of this weight the model needs on this text. What it does not say: anything about LoRA, which "
        "writes the **change** made by fine-tuning as a product of two thin matrices (Hu et al. 2021), and leaves the weight "
        "whole. "
        "Measured once on SmolLM2 (docs/log.md): twelve training steps on an invented country changed all block matrices; "
        "cut to rank "
        "16, that change still gave the new answer 92 %, while the weights themselves cut to rank 512 of 576 more than "
        "doubled the "
        "loss. One small change of a small model is consistent with LoRA; it does not show that every change has a low rank."
    )


@st.fragment
def _draw(result: WeightTruncation) -> None:
    """The slider moves along what has been measured."""
    ranks = list(result.ranks)
    if st.session_state.get("inside_rank") not in (None, *ranks):
        st.session_state["inside_rank"] = ranks[len(ranks) // 2]
    rank = st.select_slider("Rank", ranks, ranks[len(ranks) // 2], key="inside_rank", bind="query-params")
    st.markdown(literal(rank_words(result, int(rank))))
    show_figure(
        truncation_figure(result, int(rank)), key="inside.rank.loss", alt="Loss by rank; numbers in the table below"
    )
    if len(result.singular_values):
        show_figure(
            spectrum_figure(result.singular_values, int(rank)),
            key="inside.rank.values",
            alt="Singular values, largest first",
        )
    with st.expander("The numbers: every rank"):
        st.dataframe(result.to_frame(), hide_index=True)


def offered_parts(config: ModelConfig) -> list[str]:
    """The matrices to choose from; one that this family does not keep as such is refused in words when it is asked for."""
    gate = ("mlp.gate",) if config.gated_mlp else ()
    return ["mlp.out", "mlp.in", *gate, "attn.q", "attn.k", "attn.v", "attn.o", ALL]


def side_of(config: ModelConfig, part: str) -> int:
    """The smaller side of a matrix: its largest rank. For all, the width of the stream."""
    heads = {
        "attn.q": config.n_heads,
        "attn.o": config.n_heads,
        "attn.k": config.n_kv_heads,
        "attn.v": config.n_kv_heads,
    }
    if part in heads:
        return min(config.d_model, heads[part] * config.d_head)
    return config.d_model if part == ALL else min(config.d_model, config.d_mlp)


def ladder(side: int, *, short: bool) -> list[int]:
    """Ranks to try: a few small ones, then eighths of the full rank; quarters and one near the end for all matrices."""
    if short:
        return sorted({max(1, side * eighths // 8) for eighths in (4, 6, 7, 8)})
    small = [rank for rank in (1, 4, 16) if rank < side // 8]
    return [*small, *sorted({max(1, side * eighths // 8) for eighths in range(1, 9)})]


def rank_words(result: WeightTruncation, rank: int) -> str:
    """One rank in a sentence."""
    at = result.ranks.index(rank)
    n_cut = int(result.n_cut[at])
    what = (
        f"{n_cut} of {result.n_matrices} matrices" if result.part == ALL else f"{result.part} of layer {result.layer}"
    )
    mean = " on average" if result.part == ALL else ""
    kept = ""
    if result.part == ALL and n_cut < result.n_matrices:
        kept = f" The other {result.n_matrices - n_cut} have no higher rank and stay whole."
    if result.part != ALL:
        whole = result.n_in * result.n_out
        kept = f" As two thin matrices it takes {int(result.kept_numbers[at]):,} numbers instead of {whole:,}."
    return (
        f"Rank {rank:,} of {what}: {result.energy[at]:.1%} of the energy is kept{mean}, and the loss goes from "
        f"{result.baseline_loss_nats:.3f} to {float(result.loss_nats[at]):.3f} nats per token "
        f"({float(result.loss_change_nats[at]):+.3f}). "
        f"90 % of the energy needs rank {result.rank_90:,}{mean}, 99 % rank {result.rank_99:,}.{kept}"
    )
