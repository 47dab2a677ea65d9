"""The page "Loss" on a tiny model: its numbers are the library's, for texts of any length, one or two of them."""

import math
import re

import numpy as np
import pytest

import analyses
from analyses.loss import Loss, loss_by_context, run_loss
from analyses.model import load_model
from analyses.passages import PASSAGES
from app.figures.loss import context_figure, histogram_figure
from app.views.loss_choices import Choices, Text, window_words
from app.views.loss_words import amount, compared_words, difference_error, in_unit, scale_words, three
from tests.analyses.test_loss import by_hand
from tests.app.driver import ROOT, component, fine, said, sentence, strip, write
from tests.tiny import TEXT

FIRST = "loss.strip"


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(str(tiny_folder))


@pytest.fixture
def page(real):
    from streamlit.testing.v1 import AppTest

    def opened(**address):
        app = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=90)
        for key, value in address.items():
            app.query_params[key] = value
        app.run()
        app.switch_page("../pages/loss.py")
        return fine(app.run())

    return opened


def test_the_finding_and_the_colours_are_the_librarys(page, real, model):
    app = page(prompt=TEXT)
    tokens = real.tokenize(TEXT)
    loss = run_loss(model, tokens.ids)
    words = sentence(app)
    assert words.startswith(f"{three(loss.mean_nats)} nats per token = {three(loss.mean_bits)} bits = perplexity ")
    worst = 1 + int(loss.loss_nats.argmax())
    assert f"(token {worst}), {three(float(loss.loss_nats.max()))} nats" in words
    drawn = strip(app, FIRST)
    uniform = math.log(300)
    expected = [None, *(round(100 * min(1, float(x) / uniform)) for x in loss.loss_nats)]
    assert drawn["tokens"]["shade"] == expected and drawn["selected"] == worst
    assert drawn["tokens"]["note"][0].startswith("the first token")
    rank = int(loss.rank[worst - 1])
    assert f"{three(float(loss.loss_nats.max()))} nats · rank {rank:,}" in drawn["tokens"]["note"][worst]


def test_a_clicked_token_shows_what_was_expected_there(page, real, model):
    app = page(prompt=TEXT)
    app.session_state[FIRST] = {"selected": 3}
    fine(app.run())
    loss = run_loss(model, real.tokenize(TEXT).ids)
    assert app.session_state["loss_token"] == 3 and strip(app, FIRST)["tokens"]["shade"][0] is None
    told = " ".join(element.value for element in app.markdown)
    assert "**Token 3**" in told and f"{three(float(loss.loss_nats[2]))} nats".replace(".", "\\.") in told
    app.session_state[FIRST] = {"selected": 0}
    assert "it has no loss" in said(fine(app.run()))


def test_the_unit_changes_numbers_and_only_probability_changes_the_colours(page, real, model):
    app = page(prompt=TEXT)
    nats = strip(app, FIRST)["tokens"]
    for unit, mark in (("bits", " bits · "), ("perplexity", "perplexity "), ("probability", "probability ")):
        app.segmented_control(key="unit").set_value(unit)
        fine(app.run())
        drawn = strip(app, FIRST)["tokens"]
        assert mark in drawn["note"][1]
        assert (drawn["shade"] == nats["shade"]) == (unit != "probability")


def test_a_text_longer_than_the_context_is_read_in_windows_with_the_stride_said(page, real, model):
    long = (TEXT + " ") * 6
    tokens = real.tokenize(long)
    assert len(tokens.ids) > 64
    app = page(prompt=long)
    loss = run_loss(model, tokens.ids, window=64, stride=32)
    assert f"{three(loss.mean_nats)} nats per token" in sentence(app)
    assert f"over {len(tokens.ids) - 1:,} tokens" in sentence(app)
    assert f"read in {loss.n_passes} windows of W = 64 tokens, each S = 32 further" in said(app)
    app.selectbox(key="loss_stride").select("eighth")
    fine(app.run())
    finer = run_loss(model, tokens.ids, window=64, stride=8)
    assert f"{three(finer.mean_nats)} nats per token" in sentence(app) and "S = 8 further" in said(app)


def test_two_texts_are_compared_in_the_chosen_unit(page, real, model):
    app = page(prompt=TEXT, against="a list", unit="bits")
    first, second = (
        run_loss(model, real.tokenize(text, plain=plain).ids)
        for text, plain in ((TEXT, False), (PASSAGES["a list"], True))
    )
    assert [metric.value.replace("\\", "") for metric in app.metric] == [
        f"{three(each.mean_bits)} bits" for each in (first, second)
    ]
    told = " ".join(element.value for element in app.markdown).replace("\\", "")
    gap = second.mean_nats - first.mean_nats
    assert (
        f"“a list” costs {three(second.mean_nats)} nats per token, {three(abs(gap))} {'more' if gap > 0 else 'less'}"
        in told
    )
    assert component(app, "loss.other_strip") is not None


def test_an_own_text_is_measured_and_kept_while_another_page_is_open(page, real, model):
    app = page(prompt=TEXT, measured="own text")
    assert sentence(app).startswith("Needs at least two tokens; found nothing.")
    app.text_area(key="own_text").set_value("The dog sat. <|end|>")
    next(button for button in app.button if button.label == "Measure").click()
    fine(app.run())
    loss = run_loss(model, real.tokenize("The dog sat. <|end|>", plain=True).ids)
    assert f"over {len(loss.loss_nats)} tokens" in sentence(app)
    assert f"{three(loss.mean_nats)} nats" in sentence(app)
    app.switch_page("../pages/model.py")
    fine(app.run())
    app.switch_page("../pages/loss.py")
    assert fine(app.run()).text_area(key="own_text").value == "The dog sat. <|end|>"


def test_the_python_gives_the_numbers_of_the_page(page, model, monkeypatch, capsys):
    app = page(prompt=TEXT, against="code", loss_stride="quarter")
    monkeypatch.setattr(analyses, "load_model", lambda *names, **options: model)
    names = {}
    exec(compile(app.code[-1].value, "exported.py", "exec"), names)
    assert f"{three(names['loss'].mean_nats)} nats per token" in sentence(app)
    assert names["loss"].stride == 16
    shown = [metric.value.replace("\\", "") for metric in app.metric]
    assert shown[1] == f"{three(names['other'].mean_nats)} nats"


@pytest.mark.parametrize("prompt", ["", "a", "<s>a<b>c</b>$x$", "🙂"], ids=["empty", "one", "markup", "emoji"])
def test_odd_prompts_are_shown_or_said(page, prompt):
    app = write(page(), prompt)
    assert re.search(r"Needs at least two tokens|nats per token", sentence(app))
    assert not app.error


def test_units_and_digits_by_hand():
    nats = math.log(8)
    assert [in_unit(nats, unit) for unit in ("nats", "bits", "perplexity", "probability")] == [
        "2.08 nats",
        "3.00 bits",
        "perplexity 8.00",
        "probability 12.5 %",
    ]
    assert [three(x) for x in (14.77, 123.4, 49152.0, 4.6e6, math.inf)] == [
        "14.8",
        "123",
        "49,200",
        "4.6×10⁶",
        "beyond any number",
    ]
    assert amount(nats, "nats", 2 * nats) == 0.5 == amount(nats, "perplexity", 2 * nats)
    assert amount(nats, "probability", 99) == pytest.approx(1 / 8) and amount(99, "nats", 9) == 1
    assert "to 49,200" in scale_words("perplexity", math.log(49152)).replace("perplexity 49", "to 49")
    assert difference_error([1, 3], [2, 2]) == pytest.approx(1) and math.isnan(difference_error([1], [1, 2]))


def test_the_figures_draw_every_loss_once():
    first, second = by_hand([9, 4, 6, 1, 2, 3, 2]), by_hand([0.2, 0.3, 12])
    figure = histogram_figure([("a", first.loss_nats), ("<b>", second.loss_nats)], uniform_nats=math.log(300))
    assert [sum(trace.y) for trace in figure.data] == pytest.approx([1, 1])
    assert [int(np.sum(np.asarray(trace.customdata)[:, 2])) for trace in figure.data] == [7, 3]
    assert figure.data[1].name == "&lt;b&gt;"
    bins = loss_by_context(first)
    lines = context_figure([("a", bins)], uniform_nats=math.log(300))
    assert list(lines.data[0].y) == [9, 5, 2] and list(lines.data[0].text) == ["n = 1", "n = 2", "n = 4"]
    assert lines.layout.yaxis.range[0] == 0 and lines.layout.yaxis.range[1] > 9


def test_how_a_text_is_read_is_said():
    choices = Choices(None, None, "nats", 100, 25, None)
    assert window_words(choices, 100) == "100 tokens, read in one pass."
    assert "in 5 windows" in window_words(choices, 200) and "W − S = 75" in window_words(choices, 200)
    assert isinstance(by_hand([1.0]), Loss)


def test_two_texts_are_compared_in_the_order_of_the_sentence(real, model):
    texts = [Text(name, real.tokenize(text)) for name, text in (("my prompt", TEXT), ("code", TEXT[:30]))]
    first, second = ((text, run_loss(model, text.tokens.ids)) for text in texts)
    per_byte = [loss.bits_per_byte(text.n_bytes) for text, loss in (first, second)]
    assert three(per_byte[0]) != three(per_byte[1])
    words = compared_words(first, second)
    assert re.match(rf".*code.* costs {re.escape(three(second[1].mean_nats))} nats per token, ", words)
    assert f"Per byte: {three(per_byte[1])} and {three(per_byte[0])} bits." in words, "the one named first comes first"
    assert "are the same tokens" in compared_words(first, first)
