"""The pages that show computed results, on a tiny model: what a person sees first, what they click, and bad input."""

import re

import numpy as np
import pytest

import analyses
from analyses import run_attribution, run_layer_deletion, run_logit_lens, run_residual_stream
from analyses.model import load_model
from app.views.deletion_choices import default_off
from tests.app.driver import ROOT, component, fine, said, sentence, write
from tests.tiny import TEXT


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(str(tiny_folder))


@pytest.fixture
def page(real):
    from streamlit.testing.v1 import AppTest

    def opened(name, **address):
        app = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=90)
        for key, value in address.items():
            app.query_params[key] = value
        app.run()
        app.switch_page(f"../pages/{name}.py")
        return fine(app.run())

    return opened


def ids_of(real, text=TEXT):
    return real.tokenize(text).ids


def test_the_lens_page_shows_the_numbers_of_the_library(page, real, model):
    app = page("logit_lens", prompt=TEXT)
    ids = ids_of(real)
    lens = run_logit_lens(model, ids, positions=(len(ids) - 1,))
    assert f"(token {len(ids) - 1})" in sentence(app)
    assert component(app, "lens.cells") is not None
    who = run_attribution(model, ids, target=int(lens.target_ids[0]))
    assert f"{who.logit:.3f}" in said(app)
    assert "Check: the parts sum to" in said(app)


def exported(app, model, monkeypatch):
    """The names that the page's Python leaves, run with the model that is loaded already."""
    monkeypatch.setattr(analyses, "load_model", lambda *names, **options: model)
    names = {}
    exec(compile(app.code[-1].value, "exported.py", "exec"), names)
    return names


def test_the_python_of_the_lens_page_gives_its_numbers(page, real, model, monkeypatch, capsys):
    app = page("logit_lens", prompt=TEXT)
    app.number_input(key="after").set_value(4)
    fine(app.run())
    names = exported(app, model, monkeypatch)
    ids = ids_of(real)
    table = app.dataframe[0].value  # every depth at the chosen token
    lens, column = names["lens"], names["lens"].positions.tolist().index(4)
    assert names["text"].ids == ids
    whole = table[~table["half_way"]]
    assert whole["target_probability"].to_numpy() == pytest.approx(lens.target_probability[:, column], abs=1e-6)
    assert whole["target_rank"].tolist() == lens.target_rank[:, column].tolist()
    assert f"{names['who'].logit:.3f}" in said(app)
    stream = run_residual_stream(model, ids)
    assert names["stream"].norm == pytest.approx(stream.norm, rel=1e-6)


def test_the_python_of_the_other_pages_gives_their_numbers(page, model, monkeypatch, capsys):
    app = page("attention", prompt=TEXT)
    app.number_input(key="layer").set_value(1)
    app.number_input(key="head").set_value(2)
    app.session_state["headview"] = "Four steps"
    fine(app.run())
    names = exported(app, model, monkeypatch)
    steps = next(frame.value for frame in app.dataframe if "4 softmax" in frame.value)
    assert steps["the model's own"].to_numpy() == pytest.approx(names["maps"].exact[-1], abs=1e-6)
    assert f"induction {names['scores'].induction[1, 2]:.2f}" in said(app)
    app = page("layer_deletion", prompt=TEXT)
    app.text_input(key="without").set_value("0.mlp")
    fine(app.run())
    names = exported(app, model, monkeypatch)
    assert f"to {float(names['cut'].loss_nats[0]):.3f}" in sentence(app)
    assert names["cut"].deleted == (("0.mlp",),)


def test_a_target_that_is_not_one_token_is_said_and_the_picture_stays(page):
    app = page("logit_lens", prompt=TEXT)
    app.text_input(key="target").set_value("two tokens here")
    fine(app.run())
    assert re.search(r"needs a target that is one token; found .+; choose one", said(app), re.IGNORECASE)
    assert component(app, "lens.cells") is not None


def test_a_clicked_cell_chooses_token_and_depth(page, real, model):
    app = page("logit_lens", prompt=TEXT)
    app.session_state["lens.cells"] = {"selected": {"row": 1, "column": 3, "time": 5}}
    fine(app.run())
    position = int(run_logit_lens(model, ids_of(real)).positions[3])  # the last 32 are shown
    assert app.session_state["after"] == position
    assert app.session_state["depth"] == 1
    assert f"(token {position})" in sentence(app)


@pytest.mark.parametrize("name", ["logit_lens", "attention", "layer_deletion"])
@pytest.mark.parametrize("prompt", ["", "a", "<s>a<b>c</b>$x$", "🙂"], ids=["empty", "one", "markup", "emoji"])
def test_odd_prompts_are_shown_or_said(page, name, prompt):
    app = page(name)
    write(app, prompt)
    assert sentence(app), "there is always a sentence"
    assert not [error.value for error in app.error]


def test_the_linear_lens_is_offered_with_its_price_and_a_prompt_too_short_for_it_keeps_the_plain_one(page):
    app = page("logit_lens", prompt=TEXT, lens="Linear", fit_on="my prompt")
    assert re.search(
        r"has not been fitted for this model yet\. Fitting it on your prompt \(\d+ tokens\) takes", said(app)
    )
    app.button(key="lens.fit").click()
    fine(app.run())
    assert re.search(r"needs (at least )?256 .*; found \d+", said(app).replace("Needs", "needs"))
    assert component(app, "lens.cells") is not None, "the plain lens stays"
    assert "Check: the parts sum to" in said(app)


def test_the_linear_lens_is_fitted_once_and_read_from_disk_afterwards(page, real_backend, monkeypatch):
    monkeypatch.setattr("app.views.linear_lens.is_fitted", lambda fingerprint, name: True)  # as another person left it
    app = page("logit_lens", prompt=TEXT, lens="Linear")
    assert re.search(r"Fitted on [\d,]+ tokens, measured on [\d,]+ others", said(app))
    assert not [button for button in app.button if button.key == "lens.fit"]


def test_deleting_the_middle_layer_says_what_the_library_says(page, real, model):
    app = page("layer_deletion", prompt=TEXT)
    n_layers = model.config.n_layers
    cut = run_layer_deletion(model, ids_of(real), deleted=[[int(default_off(n_layers))]])
    before, after = cut.baseline_loss_nats, float(cut.loss_nats[0])
    assert f"from {before:.3f} to {after:.3f}" in sentence(app)
    app.text_input(key="without").set_value("0, 2.mlp")
    fine(app.run())
    assert sentence(app).startswith("Without layer 0 and the MLP of layer 2 the loss")
    app.text_input(key="without").set_value("none")
    fine(app.run())
    assert sentence(app).startswith("Nothing is left out.")
    app.text_input(key="without").set_value("7")
    fine(app.run())
    assert "needs layers from 0 to 2; found 7" in said(app).replace("Needs", "needs")
    assert sentence(app).startswith("Nothing is left out."), "the last that was understood stays"


def test_the_sweep_waits_for_the_guess_and_then_says_who_was_right(page, model):
    app = page("layer_deletion", prompt=TEXT)
    assert "This takes about a second" in said(app)
    app.number_input(key="guess").set_value(1)
    fine(app.run())
    app.button(key="ask.cut.single").click()
    fine(app.run())
    assert re.search(r"You said 1|Your guess was right", said(app))
    assert "Of single layers," in sentence(app, "finding.sweep")


@pytest.mark.parametrize("sweep", ["Runs of layers", "Order of removal", "The wrong way"])
def test_every_sweep_runs_when_it_is_asked_for(page, sweep):
    app = page("layer_deletion", prompt=TEXT, sweep=sweep)
    next(b for b in app.button if str(b.key).startswith("ask.cut.")).click()
    fine(app.run())
    assert any("cut." in chart.proto.id and ".figure" in chart.proto.id for chart in app.get("plotly_chart"))


def test_the_attention_page_counts_heads_and_opens_the_one_that_is_clicked(page, model):
    app = page("attention", prompt=TEXT)
    assert re.match(r"\d+ of 12 heads score above 0\.5 for induction on random tokens", sentence(app))
    app.session_state["attention.sheet"] = {"selected": [2, 1]}
    fine(app.run())
    assert (app.session_state["layer"], app.session_state["head"]) == (2, 1)
    assert "**L2H1**" in said(app)


@pytest.mark.parametrize("view", ["Map", "What it writes", "Four steps", "Any scale"])
def test_every_view_of_a_head(page, view):
    app = page("attention", prompt=TEXT, headview=view, layer="1", head="0")
    assert not app.error
    if view in ("Map", "What it writes"):
        assert component(app, "attention.map" if view == "Map" else "attention.written") is not None
    if view == "Any scale":
        assert re.search(r"Scale 0\.\d+; the model's own is 0\.\d+", said(app))
    if view == "Four steps":
        table = app.dataframe[1].value if len(app.dataframe) > 1 else app.dataframe[0].value
        assert np.isfinite(np.array(table["4 softmax"], dtype=float)).all()


@pytest.mark.parametrize(
    ("check", "button"),
    [("Every head in turn", "sweep"), ("Change a step", "steps"), ("Order and distance", "positions")],
)
def test_every_check_runs_when_it_is_asked_for(page, check, button):
    app = page("attention", prompt=TEXT, check=check)
    assert "This takes" in said(app)
    n_before = len(app.dataframe)
    app.button(key=f"ask.attention.{button}").click()
    fine(app.run())
    assert not app.error
    assert len(app.dataframe) > n_before, "every check leaves a table"


def test_heads_are_left_out_against_random_ones(page):
    app = page("attention", prompt=TEXT, silenced="L1H2, L2H0")
    app.button(key="ask.attention.check").click()
    fine(app.run())
    assert re.search(r"Without these 2 heads the loss .+ Random heads of the same layers: ", said(app))
    app.text_input(key="silenced").set_value("L9H9")
    fine(app.run())
    assert "needs layers 0 to 2 and heads 0 to 3; found L9H9" in said(app).replace("Needs", "needs")
