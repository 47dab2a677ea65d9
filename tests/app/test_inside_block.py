"""The section "Inside a block" on a tiny model, on a page of its own: what it says are the library's numbers."""

import re

import numpy as np
import pytest

from analyses.linear_mlp import run_linear_mlp
from analyses.model import load_model
from analyses.norms import run_norms
from analyses.passages import PASSAGES
from analyses.position_wise import run_position_wise
from analyses.weight_truncation import run_weight_truncation
from app.figures.inside_block import changed_positions_figure, norm_order_figure, spectrum_figure, truncation_figure
from app.views.inside_block import gate_words, position_words
from app.views.inside_choices import VIEWS
from app.views.inside_norms import identity_words, norms_words, other_norm_words
from app.views.inside_rank import ladder, offered_parts, rank_words, side_of
from tests.app.driver import fine, said

SCRIPT = """
import streamlit as st
from app.ui.frame import current_frame, draw_frame
from app.views.inside_block import draw_inside_block
draw_frame()
draw_inside_block(current_frame())
"""


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(str(tiny_folder))


@pytest.fixture
def page(real):
    from streamlit.testing.v1 import AppTest

    def opened(**address):
        app = AppTest.from_string(SCRIPT, default_timeout=90)
        for key, value in {"inside_text": "my prompt", "prompt": "The cat sat on the log.", **address}.items():
            app.query_params[key] = value
        return fine(app.run())

    return opened


def told(app):
    """Sentences and captions, with Markdown's escapes taken back."""
    words = " ".join(element.value for element in app.markdown)
    return re.sub(r"\\(.)", r"\1", words).replace("\u2060", "") + said(app)


def pressed(app, slot):
    app.button(key=f"ask.{slot}").click()
    return fine(app.run())


def test_every_view_opens_from_the_address(page, real, model):
    ids = real.tokenize("The cat sat on the log.").ids
    middle = {"layer": 1, "position": len(ids) // 2}
    app = page()
    assert norms_words(run_norms(model, ids, compare=False, **middle)) in told(app)
    app = page(inside=VIEWS[1])
    other = next(i for i in ids if i != ids[middle["position"]])
    assert position_words(run_position_wise(model, ids, replacement=other, **middle)) in told(app)
    assert "exactly 0 at every other token" in told(app)
    app = page(inside=VIEWS[2])
    assert "32 numbers of a token go out to 48 and back" in told(app)
    assert gate_words(run_linear_mlp(model, ids, compare=False, **middle)) in told(app)
    app = page(inside=VIEWS[4])
    assert "with pre-norm, and from" in told(app) and "Xiong et al. 2020" in told(app)
    assert not app.error


def test_the_other_norm_and_no_activation_are_measured_when_asked_for(page, real, model):
    ids = real.tokenize("The cat sat on the log.").ids
    app = page(inside_norm="at the MLP")
    assert "This takes about" in told(app)
    assert other_norm_words(run_norms(model, ids, layer=1, place="mlp")) in told(pressed(app, "inside.norms.loss"))
    app = pressed(page(inside=VIEWS[2]), "inside.linear.loss")
    assert any(chart.proto.id.endswith("inside.linear.losses") for chart in app.get("plotly_chart"))


def test_the_slider_moves_along_the_measured_ranks(page, real, model):
    app = pressed(page(inside=VIEWS[3], inside_part="attn.v", inside_layer="2"), "inside.rank")
    ids = real.tokenize("The cat sat on the log.").ids
    result = run_weight_truncation(model, ids, part="attn.v", layer=2, ranks=ladder(16, short=False))
    slider = app.select_slider(key="inside_rank")
    assert rank_words(result, int(slider.value)) in told(app)
    slider.set_value(2)
    assert rank_words(result, 2) in told(fine(app.run()))
    assert "does not show that every change has a low rank" in told(app)


def test_a_short_prompt_is_said_and_a_passage_is_there(page):
    app = page(prompt="a")
    assert "Needs at least two tokens; found one token." in told(app)
    assert "found nothing" in told(page(prompt=""))
    app = page(inside_text="a list", prompt="", inside_layer="0", inside_token="900")
    assert "layer 0 is an RMSNorm. At token 32 it" in told(app), (
        "cut to the context; a token that is not there is forgotten"
    )
    assert set(PASSAGES) < set(app.selectbox(key="inside_text").options)


def test_words_by_hand(model):
    found = run_norms(model, (7, 3, 250, 11), layer=0, position=2, compare=False)
    assert re.search(
        r"RMS\(\(after − bias\) / gain\) = (1\.0000|0\.9999)\d\d, and gain times .* is after to \d\.\d×10",
        identity_words(found),
    )
    last = norms_words(run_norms(model, (7, 3, 250, 11), place="final", compare=False))
    assert last.startswith("The last norm is an RMSNorm. At token 3 it gets")
    changed = run_position_wise(model, (7, 3, 250, 11), layer=0, position=3)
    assert (
        "attention moves at no later token, because there is none, and by exactly 0 at earlier ones"
        in position_words(changed)
    )


def test_ladders_end_at_the_full_rank(model):
    assert ladder(576, short=False) == [1, 4, 16, 72, 144, 216, 288, 360, 432, 504, 576]
    assert ladder(576, short=True) == [288, 432, 504, 576]
    assert ladder(3, short=False) == [1, 2, 3] and ladder(1, short=True) == [1]
    config = model.config
    assert [side_of(config, part) for part in offered_parts(config)] == [32, 32, 32, 32, 16, 16, 32, 32]


def test_the_figures_hold_every_number(model):
    changed = run_position_wise(model, (7, 3, 250, 11), layer=0, position=1)
    figure = changed_positions_figure(changed, ["<b>", "b", "c", "d"])
    assert [list(trace.y) for trace in figure.data][0] == pytest.approx(changed.mlp_change.tolist())
    assert "&lt;b&gt;" in figure.layout.xaxis.ticktext and "<b>" not in str(figure.data[0].customdata)
    cut = run_weight_truncation(model, (7, 3, 250, 11), part="mlp.in", layer=1, ranks=(1, 8, 32))
    line = truncation_figure(cut, 8).data[0]
    assert list(line.y) == pytest.approx(cut.loss_nats.tolist()) and line.marker.size == (7, 14, 7)
    bars = spectrum_figure(cut.singular_values, 8).data[0]
    assert len(set(bars.marker.color[:8])) == 1 != len(set(bars.marker.color[7:9]))
    assert (np.diff(bars.y) <= 1e-6).all(), "largest first"
    words = [note.text for note in norm_order_figure().layout.annotations]
    assert words.count("norm") == 4 and words.count("attention") == words.count("MLP") == 2
