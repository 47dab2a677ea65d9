"""The vector itself: how long it is, what it reads as, and how well it tells the texts apart that it was made from."""

import numpy as np
import streamlit as st

from analyses.contrast import Contrast
from analyses.direction_words import DirectionWords
from analyses.steering import Steering
from analyses.steering_damage import SteeringDamage
from analyses.steering_vector import SteeringVector, random_vector_like, save_vector
from app.figures.steering import depth_figure, separation_figure
from app.ui.frame import Frame
from app.ui.run import run
from app.ui.token_text import shorten, visible
from app.ui.words import literal, say_note, show_figure, show_table
from app.views.next_token import labels_of
from app.views.steering_vectors import Chosen, fits_link
from app.views.steering_words import file_name

LISTED = 10


def draw_vector(frame: Frame, chosen: Chosen, steering: Steering, damage: SteeringDamage, seed: int) -> None:
    """Numbers, words, texts, and the file."""
    st.header(
        "The vector",
        help="A direction of the stream with a length. Steering uses its direction alone; the coefficient decides how long the "
        "added vector is.",
    )
    vector = chosen.vector
    made = f" Made as: {vector.made}" if vector.made else ""
    made += (
        f", read at the {'last token' if vector.read == 'last' else 'mean over tokens from 1'}" if vector.read else ""
    )
    st.markdown(f"**{literal(chosen.name)}**, layer {vector.layer}.{literal(made)}{'.' if made else ''}")
    _draw_numbers(vector, float(steering.reference_norms[vector.layer]), seed)
    _draw_words(frame, chosen, damage)
    if chosen.contrast is not None and len(chosen.contrast.positive):
        _draw_texts(chosen, chosen.contrast)
    _draw_file(chosen)


def _draw_numbers(vector: SteeringVector, usual: float, seed: int) -> None:
    cosine = vector.cosine(random_vector_like(vector, seed))
    length, stream, control = st.columns(3)
    length.metric("Length (the stream's own units)", f"{vector.norm:.3g}")
    stream.metric(f"The stream's mean length, layer {vector.layer}", f"{usual:.3g}")
    control.metric(
        "Cosine with a random vector",
        f"{cosine:+.3f}",
        help=f"Two random directions of {len(vector.direction):,} numbers have about "
        f"{1 / np.sqrt(len(vector.direction)):.3f}, of either sign: almost a right angle.",
    )


def _draw_words(frame: Frame, chosen: Chosen, damage: SteeringDamage) -> None:
    """What the direction reads as through the unembedding, and what it raises in effect."""
    raised, lowered = (labels_of(frame.model, ids[:LISTED]) for ids in (damage.raised_ids, damage.lowered_ids))
    columns: dict[str, list[str]] = {}
    if chosen.contrast is not None:
        for depth, name in ((chosen.vector.layer, f"layer {chosen.vector.layer}"), (-1, "the last depth")):
            if chosen.contrast.separation.size and not (depth == -1 and not len(chosen.contrast.positive)):
                up, down = chosen.contrast.promoted_ids[depth], chosen.contrast.suppressed_ids[depth]
                columns[f"promotes, read at {name}"] = labels_of(frame.model, up[:LISTED])
                columns[f"suppresses, read at {name}"] = labels_of(frame.model, down[:LISTED])
    elif (outcome := _read(frame, chosen)) is not None:
        columns["promotes, read directly"] = labels_of(frame.model, outcome.promoted_ids)
        columns["suppresses, read directly"] = labels_of(frame.model, outcome.suppressed_ids)
    columns["raises in neutral text"], columns["lowers in neutral text"] = raised, lowered
    rows = max(map(len, columns.values()))
    if rows:
        show_table({name: [*map(shorten, cells), *[""] * (rows - len(cells))] for name, cells in columns.items()})
    said = (
        "Promotes and suppresses: the tokens whose row of the unembedding, after the final norm's gain, is most and least like "
        "the direction. At middle depths this says little, because the layers after it read the direction first"
    )
    said += (
        ". "
        if chosen.contrast is None
        else "; the difference of the same texts at the last depth often names the contrast. "
    )
    say_note(
        f"{said}Raises and lowers: tokens whose mean probability in the eight neutral sentences changes by the largest factor "
        "with the settings above, among those that have at least 1 in 5,000 before or after."
    )


def _read(frame: Frame, chosen: Chosen) -> DirectionWords | None:
    """What a loaded vector or a sum reads as; one made from texts or a token brings it along."""
    outcome = run(
        "direction_words",
        (),
        slot="steer.words",
        model=frame.model.config.fingerprint,
        vector=chosen.vector.wire,
        top_k=LISTED,
    )
    return None if outcome is None or outcome.stale else outcome.result


def _draw_texts(chosen: Chosen, contrast: Contrast) -> None:
    """The examples along the direction."""
    groups = [[str(text) for text in (chosen.recipe or {}).get(key, ())] for key in ("positive", "negative")]
    said = tuple([shorten(visible(text.encode()), 80) for text in group] for group in groups)
    held = (contrast.positive_held_out, contrast.negative_held_out)
    show_figure(
        separation_figure(contrast.positive, contrast.negative, held, (said[0], said[1])),
        key="steer.texts",
        alt="Every text's place along the direction, the two groups in two rows",
    )
    share = contrast.held_out_share
    words = (
        "With one text in a group nothing can be held out."
        if np.isnan(share)
        else f"{share:.0%} of the texts are on their side of a direction made without them (the others are open marks)."
    )
    with_pairs = (
        ""
        if np.isnan(contrast.explained)
        else f" {contrast.explained:.0%} of the pairs' squared difference lies along it."
    )
    say_note(
        f"Each mark is a text. {words}{with_pairs} In {len(contrast.direction):,} dimensions any few texts can be told apart, so "
        "only the texts that were held out count."
    )
    if np.isfinite(contrast.separation).any():
        with st.expander("At which depth are they told apart?"):
            show_figure(
                depth_figure(contrast.separation, layer=contrast.layer),
                key="steer.depths",
                alt="Difference of the two groups in standard deviations, by depth",
            )


def _draw_file(chosen: Chosen) -> None:
    """The vector as a file, and whether the link is enough."""
    left, right = st.columns([1, 3], vertical_alignment="center")
    data = save_vector(chosen.vector.rename(chosen.name))
    with left:
        st.download_button(
            "Save the vector",
            lambda: data,
            file_name(chosen.name),
            "application/octet-stream",
            key="steer.save",
            width="stretch",
            help="A safetensors file: numbers and their origin, no code.",
        )
    with right:
        st.caption(
            "The address of this page brings the vector back: it holds its name or how it was made."
            if fits_link(chosen)
            else "The address of this page is too short for this vector: send its file along, and load it there."
        )
