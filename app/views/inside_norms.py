"""A norm on a real activation, as RMSNorm and as LayerNorm, and the loss with the other kind everywhere."""

import numpy as np
import streamlit as st

from analyses.norms import LAST, Norms
from app.figures.inside_block import mean_share_figure
from app.ui.controls import run_when_asked, segments
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.token_text import powers
from app.ui.words import literal, show_figure, show_table
from app.views.inside_choices import Inside

PLACES = {"attention": "at attention", "mlp": "at the MLP", "final": "the last one"}
SHOWN = 8  # components in the small table


def draw_norms(frame: Frame, inside: Inside) -> None:
    """One norm on one activation, both ways."""
    place = segments("Norm", PLACES, key="inside_norm", words=PLACES)
    common = {
        "model": frame.model.config.fingerprint,
        "layer": inside.layer,
        "position": inside.position,
        "place": place,
    }
    outcome = run("norms", inside.tokens.ids, slot="inside.norms", compare=False, **common)
    if outcome is None or outcome.stale:
        return
    result: Norms = outcome.result
    st.markdown(literal(norms_words(result)) + f" The token is {inside.token}.")
    rows = range(min(SHOWN, len(result.before)))
    columns = {
        "component": [str(row) for row in rows],
        "before": result.before,
        "RMSNorm: x / RMS": result.rms_normed,
        "LayerNorm: (x − mean) / deviation": result.layer_normed,
        "gain": result.gain,
        f"after ({result.kind}, times gain{' plus bias' if result.bias.any() else ''})": result.after,
    }
    show_table(
        {
            name: [each if isinstance(each, str) else f"{each:.4f}" for each in values[: len(rows)]]
            for name, values in columns.items()
        }
    )
    st.caption(f"The first {len(rows)} of {len(result.before):,} components. {literal(identity_words(result))}")
    if len(result.mean_share_by_layer) > 1:  # there is one last norm
        show_figure(
            mean_share_figure(result), key="inside.norms.share", alt="Share of the squared length in the mean, by layer"
        )
    st.caption(
        "All that separates the two norms is the mean: LayerNorm takes it off (Ba et al. 2016), RMSNorm leaves it in "
        "(Zhang and "
        "Sennrich 2019). Means over the tokens from 1; token 0 is often a hundred times larger than the others."
    )
    asked = run_when_asked(
        "norms",
        inside.tokens.ids,
        slot="inside.norms.loss",
        button="Put the other kind everywhere",
        words="Every norm of the stream is replaced by the other kind, with its own gain, and the loss is measured.",
        **common,
    )
    if asked is not None and not asked.stale:
        st.markdown(literal(other_norm_words(asked.result)))


def norms_words(result: Norms) -> str:
    """What the norm found and did."""
    which = "The last norm" if result.where == LAST else f"The norm {result.where} of layer {result.layer}"
    return (
        f"{which} is {'an' if result.kind.startswith('R') else 'a'} {result.kind}. At token {result.position} it gets "
        f"numbers with mean {result.mean:.4f} and root mean square {result.rms:.3f}: {result.mean_share:.3%} of the squared "
        "length lies in the mean."
    )


def identity_words(result: Norms) -> str:
    """The identity, as it came out."""
    own = result.layer_normed if result.kind == "LayerNorm" else result.rms_normed
    gap = float(np.abs(result.gain * own + result.bias - result.after).max())
    return powers(
        f"Check: RMS((after − bias) / gain) = {result.unit_rms:.6f}, and gain times the normed vector is after to "
        f"{gap:.1e}."
    )


def other_norm_words(result: Norms) -> str:
    """What the other kind does to the loss."""
    other = "LayerNorm" if result.kind == "RMSNorm" else "RMSNorm"
    change = result.other_loss_nats - result.loss_nats
    return (
        f"With {other} in place of all {result.n_norms} norms the loss goes from {result.loss_nats:.3f} to "
        f"{result.other_loss_nats:.3f} nats per token ({change:+.3f}). The weights have learned with {result.kind}: "
        f"this says "
        "how "
        "much the model uses the mean, not which norm would learn better."
    )
