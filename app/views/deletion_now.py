"""What one deletion does at once: the loss, the predictions, the continuation, and the lens of the damaged run."""

from typing import Any

import numpy as np
import streamlit as st

from analyses.layer_deletion import LayerDeletion
from app.components.lens_grid import lens_grid
from app.figures.by_layer import depth_labels
from app.figures.logit_lens import Line, measures, trajectory_figure
from app.figures.next_token import next_token_figure
from app.figures.theme import CHANGE, STREAM
from app.ui.frame import Frame
from app.ui.run import Outcome, run
from app.ui.token_text import percent, visible
from app.ui.words import literal, show_figure
from app.views.deletion_choices import Deletion, in_words
from app.views.lens_picture import grid_picture
from app.views.next_token import labels_of

LISTED = 8
NEW_TOKENS = 20
COLUMNS = 6  # last positions in the two grids side by side


def ask(frame: Frame, deletion: Deletion) -> tuple[Outcome | None, Outcome | None]:
    """The whole model and the damaged one; only the second is computed again when another layer is ticked."""
    ids, fingerprint = deletion.ids, frame.model.config.fingerprint
    same = {"model": fingerprint, "top_k": LISTED, "positions": "all" if len(ids) > 1 else "last", "compare": False}
    whole = run("layer_deletion", ids, slot="cut.whole", deleted=[[]], **same)
    if whole is None or whole.stale or not deletion.off:
        return whole, whole
    return whole, run("layer_deletion", ids, slot="cut.one", deleted=[deletion.variant], **same)


def draw_numbers(whole: LayerDeletion, cut: LayerDeletion) -> None:
    """Loss and perplexity, before and after."""
    before, after = float(whole.loss_nats[0]), float(cut.loss_nats[0])
    if not np.isfinite(before):
        st.caption("One token has no next token, so there is no loss; the predictions below still change.")
        return
    loss, perplexity, uniform = st.columns(3)
    quiet = {"delta_color": "off", "delta_arrow": "off"}
    loss.metric("Loss (nats per token)", f"{after:.3f}", f"{after - before:+.3f}", delta_color="inverse")
    was = f"was {_short(float(whole.perplexity[0]))}"
    perplexity.metric("Perplexity", _short(float(cut.perplexity[0])), was, **quiet)
    uniform.metric("A uniform guess (nats)", f"{cut.uniform_loss_nats:.1f}", "ln of the vocabulary", **quiet)


def draw_distance(frame: Frame, deletion: Deletion) -> None:
    """How far the damaged distributions are from the whole model's, over the positions that have a next token."""
    if not deletion.off:
        return
    outcome = run(
        "layer_deletion",
        deletion.ids,
        slot="cut.distance",
        model=frame.model.config.fingerprint,
        deleted=[deletion.variant],
        positions="all" if len(deletion.ids) > 1 else "last",
    )
    if outcome is not None and not outcome.stale:
        kl, same = float(outcome.result.kl_nats[0]), float(outcome.result.top1_agreement[0])
        n = max(len(deletion.ids) - 1, 1)
        where = (
            "after the only token"
            if len(deletion.ids) == 1
            else f"over the {n} tokens that have a next one in the text"
        )
        st.caption(
            f"KL from the whole model {kl:.2f} nats, and the same first choice {round(same * n)} times of {n} ({where}; what "
            "comes after the last token stands above)."
        )


def draw_predictions(frame: Frame, deletion: Deletion, whole: LayerDeletion, cut: LayerDeletion) -> None:
    """The most probable next tokens of both, side by side on one scale."""
    last = literal(visible(deletion.pieces[-1]))
    for place, name, result in zip(st.columns(2), ("Whole", "Damaged"), (whole, cut), strict=True):
        ids, probability = result.top_ids[0], np.exp(result.top_log_probability[0])
        with place:
            st.markdown(f"**{name}**: after {last}")
            best = int(whole.top_ids[0][0])
            target = next((row for row, i in enumerate(ids) if int(i) == best), None)
            figure = next_token_figure(labels_of(frame.model, ids), probability, ids=ids.tolist(), target=target)
            show_figure(figure, key=f"cut.top.{name}", alt=f"Most probable next tokens, {name.lower()} model")
    st.caption("Green is the whole model's first choice, where the damaged one still lists it.")


def draw_continuation(frame: Frame, deletion: Deletion) -> None:
    """What each writes from here, greedily."""
    fingerprint, room = frame.model.config.fingerprint, frame.model.config.n_ctx - len(deletion.ids)
    if room < 1:
        st.caption("The text fills the context: there is no room for a continuation.")
        return
    new = min(NEW_TOKENS, room)
    for name, interventions in (("Whole", []), ("Damaged", [{"delete": deletion.variant}] if deletion.off else [])):
        outcome = run(
            "generation",
            deletion.ids,
            slot=f"cut.writes.{name}",
            model=fingerprint,
            max_new_tokens=new,
            interventions=interventions,
        )
        if outcome is None or outcome.stale:
            return
        written = b"".join(frame.model.vocabulary.piece(int(i)) for i in outcome.result.ids)
        st.markdown(f"**{name}**")
        st.code(written.decode("utf-8", "ignore") or " ", language=None, wrap_lines=True)
        ended = ", then an end token" if outcome.result.ended else ""
        st.caption(f"{len(outcome.result.ids)} tokens{ended}.")
    st.caption("Always the most probable token. One changed token changes all that follow.")


def draw_lenses(frame: Frame, deletion: Deletion) -> None:
    """The logit lens of both runs."""
    model, ids = frame.model, deletion.ids
    positions = tuple(range(max(0, len(ids) - COLUMNS), len(ids)))
    same = {"model": model.config.fingerprint, "positions": positions, "top_k": 5}
    first = run("logit_lens", ids, slot="cut.lens.first", **{**same, "positions": "last"})
    if first is None or first.stale:
        return
    best = int(first.result.target_ids[-1])
    whole = run("logit_lens", ids, slot="cut.lens.whole", target=best, **same)
    if whole is None or whole.stale:
        return
    cut = run("logit_lens", ids, slot="cut.lens.cut", target=best, deleted=deletion.variant, **same)
    if cut is None or cut.stale:
        return
    measure = measures(model.config.d_vocab)["Rank"]
    lines = [
        Line("damaged", cut.result.target_rank[:, -1] + 1.0, CHANGE),
        Line("whole", whole.result.target_rank[:, -1] + 1.0, STREAM, dash="dot"),
    ]
    figure = trajectory_figure(lines, depth_labels(model.config.n_layers), measure)
    show_figure(figure, key="cut.lens.rank", alt="Rank of the whole model's answer by depth, in both runs")
    st.caption(
        f"Rank of {literal(visible(model.vocabulary.piece(best)))}, the whole model's answer, after the last token."
    )
    for place, name, outcome in zip(st.columns(2), ("Whole", "Damaged"), (whole, cut), strict=True):
        with place:
            st.markdown(f"**{name}**")
            lens_grid(
                grid_picture(model, ids, outcome.result, "Probability", 1, f"Logit lens, {name.lower()} model"),
                selected=None,
                key=f"cut.lens.grid.{name}",
            )
    st.caption("A row without its layer repeats the row above it, except where only one of its two parts is left out.")


def finding_words(deletion: Deletion, n_layers: int, whole: LayerDeletion, cut: LayerDeletion) -> list[Any]:
    """The computed sentence about what is left out now."""
    before, after = float(whole.loss_nats[0]), float(cut.loss_nats[0])
    where = f"{len(deletion.ids):,} tokens"
    start = f"Without {in_words(deletion.off, n_layers)}"
    if not np.isfinite(before):
        if not deletion.off:
            return ["Nothing is left out, and one token has no next token, so there is no loss."]
        best = int(whole.top_ids[0][0])
        left = np.flatnonzero(cut.top_ids[0] == best)
        now = _percent_at(cut, int(left[0])) if len(left) else f"less than {_percent_at(cut, -1)}"
        return [
            f"{start}, the whole model's first choice after the only token goes from {_percent_at(whole, 0)} to {now}."
        ]
    if not deletion.off:
        return [f"Nothing is left out. The loss on this text ({where}) is {before:.3f} nats per token."]
    change = round(after, 3) - round(before, 3)  # of the two numbers as they are printed
    words = f"{'rises' if change >= 0 else 'falls'} by {abs(change):.3f} nats, from {before:.3f} to {after:.3f}"
    beyond = f", worse than a uniform guess ({cut.uniform_loss_nats:.1f})" if after > cut.uniform_loss_nats else ""
    return [f"{start} the loss on this text ({where}) {words}{beyond}."]


def _percent_at(result: LayerDeletion, place: int) -> str:
    return percent(float(np.exp(result.top_log_probability[0][place])))


def _short(value: float) -> str:
    return f"{value:,.1f}" if value < 1e5 else f"{value:.2g}"
