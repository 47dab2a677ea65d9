"""The page "Steering" on a tiny model: its numbers are the library's, 0 is the baseline bit for bit, and wrong input is said."""

import re

import numpy as np
import pytest

import analyses
from analyses import (
    load_vector,
    make_steering_vector,
    run_direction_words,
    run_generation,
    run_next_token,
    run_steering,
    run_steering_damage,
    run_tokenization,
    save_vector,
)
from analyses.model import load_model
from analyses.steering_examples import STEERING_EXAMPLES
from analyses.steering_sweep import SteeringSweep
from analyses.steering_vector import SteeringVector
from app.backend import get_backend
from app.ui.token_text import visible
from app.ui.words import literal
from app.views.steering_vectors import read_recipe, write_recipe
from app.views.steering_words import range_words, strongest, working_columns
from app.views.steering_write import as_text
from tests.app.driver import ROOT, bars, component, fine, said, sentence, write
from tests.tiny import TEXT, tiny_hf_model, tiny_tokenizer

RECIPE = {"positive": ["The cat sat", "six! The cat"], "negative": ["The dog sat", "two! The dog"], "layer": 1}
WORDS = {"targets": "a, b", "opposites": "t"}


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """The tiny model with room for the examples' sentences."""
    folder = tmp_path_factory.mktemp("tiny") / "llama"
    model = tiny_hf_model("llama")
    model.config.max_position_embeddings = 256
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


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
        app.switch_page("../pages/steering.py")
        return fine(app.run())

    return opened


@pytest.fixture
def mine(page):
    """The page with a vector of its own, as a link describes it."""
    return lambda **more: page(prompt=TEXT, vector="mine", recipe=write_recipe("mine", RECIPE), **{**WORDS, **more})


def move(app, coefficient):
    app.slider(key="coefficient").set_value(coefficient)
    return fine(app.run())


def predictions(app):
    return [bars(app, f"steer.top.{name}")[0] for name in ("baseline", "steered")]


def ids_of(model, *words):
    """As a word inside a sentence where that is one token, else as it is written."""
    both = [[run_tokenization(model, text).ids for text in (f" {word}", word)] for word in words]
    return [next(ids[0] for ids in pair if len(ids) == 1) for pair in both]


def table(app, place):
    """A table as a person reads it, with Markdown's escapes taken back."""
    return app.table[place].value.map(lambda cell: re.sub(r"\\(.)", r"\1", str(cell)))


def test_the_first_example_is_steered_and_drawn_without_a_click(page, model):
    app = page()
    example = STEERING_EXAMPLES[0]
    layer = round(example.layer / 30 * model.config.n_layers)
    vector = make_steering_vector(model, **example.texts | {"layer": layer})
    ids = run_tokenization(model, example.prompt).ids
    expected = run_steering(model, ids, vector, coefficient=example.coefficient, top_k=8)
    damage = run_steering_damage(model, vector, coefficient=example.coefficient)
    baseline, steered = predictions(app)
    assert baseline == pytest.approx(np.exp(expected.top_log_probability[0]), abs=1e-6)
    assert steered == pytest.approx(np.exp(expected.top_log_probability[1]), abs=1e-6)
    assert sentence(app).startswith(f"At {example.coefficient:g} ")
    assert f"{abs(damage.loss_change_nats[1]):.2g}" in sentence(app)
    assert f"A vector of length {abs(expected.added[0]):.3g}" in said(app)
    assert f"{len(ids) - 1} of the prompt's {len(ids)} tokens" in said(app)


def test_a_link_brings_the_vector_and_the_words_and_the_finding_is_the_librarys(mine, model, monkeypatch, capsys):
    app = mine(coefficient="0.4")
    vector = make_steering_vector(model, **RECIPE)
    targets, against = ids_of(model, "a", "b"), ids_of(model, "t")
    ids = run_tokenization(model, TEXT).ids
    expected = run_steering(model, ids, vector, coefficient=0.4, targets=targets, against=against)
    _, effect, random = expected.log_odds_change
    _, loss, random_loss = run_steering_damage(model, vector, coefficient=0.4).loss_change_nats
    assert f"log-odds of the target words {'rise' if effect >= 0 else 'fall'} by {abs(effect):.2g} nats" in sentence(
        app
    )
    assert f"(a random vector of the same size: {random:+.2g});" in sentence(app)
    assert (
        f"loss on neutral text {'rises' if loss >= 0 else 'falls'} by {abs(loss):.2g} nats ({random_loss:+.2g})."
        in sentence(app)
    )
    monkeypatch.setattr(analyses, "load_model", lambda *names, **options: model)
    names = {}
    exec(compile(app.code[-1].value, "exported.py", "exec"), names)
    assert names["vector"].digest == vector.digest
    assert names["steer"].log_odds_change == pytest.approx(expected.log_odds_change, abs=1e-9)


def test_zero_is_the_baseline_and_from_there_and_back_it_is_the_same_bit_for_bit(mine, model):
    app = mine(coefficient="0")
    first, steered = predictions(app)
    assert np.array_equal(first, steered)
    assert "this is the model itself" in sentence(app)
    assert "Nothing is added." in said(app)
    costs = table(app, 0)
    assert costs.iloc[1, 1:].tolist() == costs.iloc[0, 1:].tolist() == costs.iloc[2, 1:].tolist()
    far = predictions(move(app, 0.6))
    assert np.array_equal(far[0], first)
    assert np.abs(far[1] - first).max() > 1e-3, "the slider changes something"
    back = predictions(move(app, 0.0))
    assert np.array_equal(back[0], first) and np.array_equal(back[1], first)
    plain = run_next_token(model, run_tokenization(model, TEXT).ids, top_k=8)
    assert np.array_equal(first.astype(np.float32), plain.probability)


def test_a_word_that_is_no_single_token_is_named_and_the_others_count(mine, model):
    app = mine(targets="a, zebra crossing, b")
    assert re.search(
        r'needs target words that are one token; found "zebra crossing", which is \d+: ', said(app).lower()
    )
    assert "the target words" in sentence(app)
    total = np.exp(run_next_token(model, run_tokenization(model, TEXT).ids).logits.astype(np.float64))
    share = 100 * total[ids_of(model, "a", "b")].sum() / total.sum()
    assert float(table(app, 0)["all targets together"][0].removesuffix(" %")) == pytest.approx(share, rel=0.006)


def assert_read_directly(app, words):
    shown = next(t.value for t in app.table if "promotes, read directly" in t.value)
    for name, ids in (("promotes", words.promoted_ids), ("suppresses", words.suppressed_ids)):
        labels = [literal(visible(get_backend().status().model.vocabulary.piece(int(i)))) for i in ids]
        assert shown[f"{name}, read directly"].tolist() == labels


def test_a_vector_is_made_in_the_form_and_wrong_input_keeps_the_one_before(page, model):
    app = page(prompt=TEXT)
    app.text_area(key="steer.positive").set_value("\n".join(RECIPE["positive"]))
    app.text_area(key="steer.negative").set_value("\n".join(RECIPE["positive"]))
    make = next(b for b in app.button if b.label == "Make the vector")
    make.click()
    fine(app.run())
    assert "needs two groups that differ" in said(app).lower()
    assert app.session_state["vector"] == STEERING_EXAMPLES[0].name
    app.text_area(key="steer.negative").set_value("\n".join(RECIPE["negative"]))
    app.number_input(key="steer.texts_layer").set_value(RECIPE["layer"])
    next(b for b in app.button if b.label == "Make the vector").click()
    fine(app.run())
    fine(app.run())
    assert app.session_state["vector"] == "my vector"
    vector = make_steering_vector(model, **RECIPE)
    assert f"{vector.norm:.3g}" in [metric.value for metric in app.metric]
    assert read_recipe(app.query_params["recipe"])[1] == {**RECIPE, "read": "mean", "method": "difference"}
    app.selectbox(key="steer.sign").set_value("without")
    app.selectbox(key="steer.other").set_value(STEERING_EXAMPLES[1].name)
    [b for b in app.button if b.label == "Make the vector"][-1].click()
    fine(app.run())
    fine(app.run())
    other = STEERING_EXAMPLES[1]
    second = make_steering_vector(model, **other.texts | {"layer": round(other.layer / 30 * model.config.n_layers)})
    left = vector.project_out(second.at(1))
    assert f"{left.norm:.3g}" in [metric.value for metric in app.metric]
    assert_read_directly(app, run_direction_words(model, left, top_k=10))
    assert "recipe" not in app.query_params
    assert "send its file along" in said(app)


def upload(app, data):
    app.file_uploader(key="steer.file").set_value([("v.safetensors", data, "application/octet-stream")])
    return fine(app.run())


def test_a_file_that_is_no_vector_of_this_model_is_said_and_one_that_is_comes_back_as_it_was(page, model):
    app = page(prompt=TEXT)
    before = predictions(app)
    for data, sentence_of in (
        (b"no safetensors", "needs a steering vector's file (safetensors); found something else"),
        (save_vector(SteeringVector(np.ones(7, np.float32), 1, "x")), "needs a vector of 32 numbers"),
    ):
        upload(app, data)
        assert sentence_of in said(app)[0].lower() + said(app)[1:] or sentence_of in said(app).replace("Needs", "needs")
        assert app.session_state["vector"] == STEERING_EXAMPLES[0].name
    assert all(np.array_equal(a, b) for a, b in zip(predictions(app), before, strict=True))
    vector = make_steering_vector(model, **RECIPE).rename("from a file")
    upload(app, save_vector(vector))
    assert app.session_state["vector"] == "from a file"
    ids = run_tokenization(model, TEXT).ids
    expected = run_steering(model, ids, load_vector(save_vector(vector)), coefficient=0.3, top_k=8)
    assert predictions(app)[1] == pytest.approx(np.exp(expected.top_log_probability[1]), abs=1e-6)


def test_three_texts_are_written_and_the_sweep_is_drawn(mine, model):
    app = mine(coefficient="0.5")
    app.button(key="steer.go").click()
    fine(app.run())
    for _ in range(200):
        if len(app.table) > 2:
            break
        fine(app.run())
    vector = make_steering_vector(model, **RECIPE)
    steered = [vector.intervention(coefficient=0.5)]
    expected = run_generation(model, run_tokenization(model, TEXT).ids, max_new_tokens=40, variants=[[], steered])
    shown = [m.value for m in app.markdown]
    marks = ("a", "b")
    assert as_text(expected.row_text[0], marks) in shown
    assert as_text(expected.row_text[1], marks) in shown
    app.button(key="ask.steer.sweep").click()
    fine(app.run())
    assert re.search(r"Little damage before layer \d: .+ rises by less than 0\.5 nats", said(app))
    app.session_state["steer.cell"] = (2, -0.45)  # as a click leaves it
    fine(app.run())
    assert (app.session_state["steer_layer"], app.session_state["coefficient"]) == (2, -0.45)
    assert sentence(app).startswith("At -0.45 ")


@pytest.mark.parametrize("prompt", ["", "a", "<s>a<b>c</b>$x$", "🙂"], ids=["empty", "one", "markup", "emoji"])
def test_odd_prompts_are_steered_or_said(page, prompt):
    app = page()
    write(app, prompt)
    assert sentence(app), "there is always a sentence"
    assert not [error.value for error in app.error]
    assert ("none of the prompt's tokens" in said(app)) == (prompt == "a")
    assert ("prediction stays as it is, because none of its tokens is steered" in sentence(app)) == (prompt == "a")
    assert (component(app, "finding") is not None) and ("An empty prompt" in sentence(app)) == (prompt == "")


@pytest.mark.parametrize(
    "text", ["no json", "[]", '{"name": 5}', '{"name": "x", "code": "y"}', '{"name": "x", "layer": "1"}', "[" * 9999]
)
def test_a_link_with_another_recipe_is_refused_in_three_parts(text):
    with pytest.raises(ValueError, match=r"needs .+; found .+; .+"):
        read_recipe(text)


def sweep_of(loss, effect):
    at_random = dict.fromkeys(("random_effect", "random_kl_nats", "random_loss_change_nats"), np.zeros(5, np.float32))
    return SteeringSweep(
        layers=np.array([2, 7], np.int32),
        coefficients=np.array([0.0, -0.3, 0.3, 0.6, -0.6], np.float32),  # in any order
        unit="log-odds (nats)",
        effect=np.array(effect, np.float32),
        kl_nats=np.zeros((2, 5), np.float32),
        loss_change_nats=np.array(loss, np.float32),
        random_layer=2,
        **at_random,
        baseline_log_odds=0.0,
        reference_norms=np.ones(2, np.float32),
    )


def test_the_working_range_ends_before_the_first_harm_on_either_side():
    sweep = sweep_of([[0, 0.1, 0.4, 0.7, 0.9], [0, 0.6, 0.49, 0.2, 0.1]], [[0, -1, 3, 9, 2], [0, 1, 2, 4, -1]])
    # sorted columns: -0.6 -0.3 0 0.3 0.6
    assert working_columns(sweep) == [(1, 3), (2, 4)], "what lies behind the harm does not count"
    assert strongest(sweep) == (7, pytest.approx(0.6), 4.0)
    assert "layer 2: from -0.3 to 0.3, where" in range_words(sweep, 3)
    assert "+4 nats, before layer 7 at 0.6" in range_words(sweep, 3)
    behind = sweep_of(sweep.loss_change_nats, [[0, -1, 3, 9, 2], [0, 1, 2, 1, 8]])
    assert strongest(behind) == (2, pytest.approx(0.3), 3.0), "8 nats lie behind a harm, outside the outline"
    assert "Nothing rises within the outlines." in range_words(sweep_of([[0] * 5] * 2, [[0] * 5] * 2), 3)


def test_a_written_text_is_shown_literally_with_whole_words_marked():
    assert as_text("a bride\n    *b*  brides", ("bride",)) == (
        "a :green-background[bride]  \n\u00a0\u00a0\u00a0\u00a0\\*b\\*  brides"
    )
    assert as_text("<b>$x$\n\n", ()) == "\\<b\\>\\$x\\$  \n\u00a0  \n\u00a0"
