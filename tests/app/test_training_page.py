"""The page "Training": its numbers are those of the shipped record and of the tiny model, and bad input keeps the picture."""

import numpy as np
import pytest

from analyses import load_training_log, run_training_film
from app.figures.training import curves_figure, transition
from app.ui.token_text import percent
from app.views.training_choices import TEXT
from app.views.training_page import seeds_words
from tests.app.driver import ROOT, component, fine, said, sentence, submit


@pytest.fixture(scope="module")
def log():
    return load_training_log("tiny-induction")


@pytest.fixture
def page(real):
    from streamlit.testing.v1 import AppTest

    def opened(**address):
        app = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=90)
        for key, value in address.items():
            app.query_params[key] = value
        app.run()
        app.switch_page("../pages/training.py")
        return fine(app.run())

    return opened


def test_what_differs_between_the_seeds_is_said(log):
    """The figures are the record's (docs/log.md has them from the day of training)."""
    assert seeds_words(log, load_training_log("tiny-induction-second-seed")) == (
        "Seed 1 ends with 1 induction head: the second copy costs 2.6 nats per token, 10.0 without L1H3. Seed 0 ends with 2 "
        "induction heads: the second copy costs 2.6 nats per token, 6.4 without L1H0, 5.1 without L1H2, 10.1 without all of them."
    )


def test_the_finding_is_the_record_s_and_says_a_phase_change(log):
    start, end = transition(log)
    score = log.induction[:, *log.induction_head]
    before, after = score[log.mark_of(start)], score[log.mark_of(end)]
    assert log.induction_head[0] == 1
    assert before <= 0.05 * score[-1] < score[log.mark_of(start) + 1]
    assert after >= 0.8 * score[-1] > score[log.mark_of(end) - 1]
    assert 1000 <= start < end <= 3600
    assert after > 8 * before


def test_the_chosen_step_is_marked_in_every_panel(log):
    figure = curves_figure(log, log, log, 1900)
    marked = [trace for trace in figure.data if trace.mode == "markers"]
    mark = log.mark_of(1900)
    assert [trace.x[0] for trace in marked] == [1900] * 4
    assert [trace.y[0] for trace in marked] == pytest.approx(
        [
            log.induction[mark, *log.induction_head],
            log.previous_token[mark, *log.previous_head],
            log.second_copy_loss_nats[mark] - log.first_copy_loss_nats[mark],
            log.icl_windows_nats[mark].mean(),
        ],
        abs=1e-6,
    )


def test_a_step_a_head_and_a_text_that_is_too_long(page, log):
    app = page(train_step="1,900")
    start, end = transition(log)
    assert f"Between step {start:,} and {end:,} the induction score of L1H{log.induction_head[1]} rises" in sentence(
        app
    )
    film = run_training_film(text=TEXT, top_k=8)
    at = film.steps.index(1900)
    assert f"At step 1,900 the model gives that {percent(float(film.copied_probability[at]))}" in said(app)
    assert component(app, f"training.map.L1H{log.induction_head[1]}") is not None

    out = "+".join(f"L{layer}H{head}" for layer, head in sorted(log.induction_heads))
    fine(app.selectbox(key="train_out").select(out).run())
    mark = log.mark_of(1900)
    without, with_it = log.together_second_copy_loss_nats[mark], log.second_copy_loss_nats[mark]
    assert f"Without {out} the second copy costs {without:.2f} nats per token instead of {with_it:.2f}" in said(app)
    gone = run_training_film(text=TEXT, top_k=8, ablate=[list(head) for head in log.induction_heads])
    assert f"taken out the model gives that {percent(float(gone.copied_probability[at]))}" in said(app)
    assert not np.array_equal(gone.copied_probability, film.copied_probability)

    app.text_area(key="train_text").set_value("one more word " * 60)
    submit(app, "Text for the small model")
    assert "Needs at most 256 tokens of the tiny tokenizer" in said(app)
    assert "Below is still the previous result" in said(app)
    assert component(app, f"training.map.L1H{log.induction_head[1]}") is not None


def test_play_goes_through_the_steps_once(page, log):
    app = page(train_step="3000")
    app.toggle(key="training.play").set_value(True)
    seen = []
    for _ in range(3):
        fine(app.run())
        seen.append(app.select_slider(key="train_step").value)
    assert seen == [3600, 4500, 4500]
    assert app.toggle(key="training.play").value is False
