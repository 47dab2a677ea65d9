"""The page "Running it" on a tiny model: the first look, measuring, batches, and the budget of the context."""

import itertools
import re

import pytest

import analyses
from analyses.model import load_model
from app.backend.protocol import Request, Who
from app.views.running_page import quick_params, some_ids
from tests.app.driver import ROOT, component, fine, said, sentence, write
from tests.tiny import TEXT

PER_TOKEN = 2 * 3 * 2 * 8 * 4  # bytes of keys and values of one token of the tiny Llama


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(str(tiny_folder))


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Every pass takes a millisecond by this clock, so that the budget ends nothing however busy the machine is."""
    monkeypatch.setattr("analyses._stopwatch.wall_clock", itertools.count(0.0, 0.001).__next__)


@pytest.fixture
def page(real, monkeypatch):
    from streamlit.testing.v1 import AppTest

    def opened(**address):
        app = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=90)
        for key, value in address.items():
            app.query_params[key] = value
        app.run()
        app.switch_page("../pages/running.py")
        return fine(app.run())

    return opened


def test_the_first_look_measures_little_and_the_button_measures_all(page, real):
    app = page(prompt=TEXT, longest="61")
    weight = f"{16 * PER_TOKEN / 1000:.2f} kB"
    words = f"16 tokens in 1.0 ms, then 1,000 tokens/s; the cache holds {weight} (float32), as the formula says."
    assert sentence(app) == words
    assert "never more than 20 s of computing" in said(app)
    (first,) = [frame.value for frame in app.dataframe if "prefill_seconds" in frame.value]
    assert first["tokens"].tolist() == [16] and first["repeats"].tolist() == [1]
    app.button(key="ask.running").click()
    fine(app.run())
    assert sentence(app).startswith("61 tokens in 1.0 ms, then 1,000 tokens/s")
    (whole,) = [frame.value for frame in app.dataframe if "prefill_seconds" in frame.value]
    assert whole["tokens"].tolist() == [1, 16, 61] and whole["repeats"].tolist() == [3, 3, 3]
    assert "stored result" not in said(app)
    assert (
        f"Weighed at {3 + 3 * 3} sizes while it grew; {3 + 3 * 3} of {3 + 3 * 3} exactly what the formula gives"
        in said(app)
    )
    finished, kept = real.stats().finished, sentence(app)
    app.run()
    assert (sentence(app), real.stats().finished) == (kept, finished), "drawn again, not measured again"
    app.button(key="ask.running").click()
    fine(app.run())
    assert real.stats().finished == finished + 1, "asked again, measured again: no answer from the store"
    assert "stored result" not in said(app)


def test_batches_a_budget_and_the_python_of_the_page(page, real, model, monkeypatch, capsys):
    config = real.models()[0].config
    quick = Request("timing", some_ids(config.d_vocab), quick_params(config.n_ctx), config.fingerprint)
    real.submit(quick, Who("somebody else", "their page")).result(90)
    address = {"instruction": "Say yes.", "other_instruction": "Say no!", "turns": "0", "reserve": "4"}
    app = page(prompt="cat", **address)
    assert "This is a stored result: somebody asked for the same before." in said(app)
    inside = sentence(app, "finding.context")
    assert "Everything fits." in inside and re.search(
        r"logits change by up to \d+\.\d+ \(KL .* nats\): it is read", inside
    )
    assert not [frame for frame in app.dataframe if "rows" in frame.value]
    app.slider(key="turns").set_value(2)
    app.button(key="ask.running.batch").click()
    fine(app.run())
    outside = sentence(app, "finding.context")
    assert "Fell out: instruction" in outside and "bit for bit: largest difference 0." in outside
    assert "No chat marks: this model has no chat template" in said(app)
    (table,) = [frame.value for frame in app.dataframe if "rows" in frame.value]
    assert table["rows"].tolist() == [1, 2, 4, 8]
    assert table["measured_bytes"].tolist() == [rows * 64 * PER_TOKEN for rows in (1, 2, 4, 8)]
    assert "rows share the weights, never the cache" in said(app)
    monkeypatch.setattr(analyses, "load_model", lambda *names, **options: model)
    names = {}
    exec(compile(app.code[-1].value, "exported.py", "exec"), names)
    assert names["timing"].lengths.tolist() == [16]
    assert names["batch"].cache_bytes.tolist() == table["measured_bytes"].tolist()


def test_odd_prompts_are_shown_or_said(page):
    app = page(turns="0")
    for prompt in ("", "a", "<s>a<b>c</b>$x$", "🙂", "word " * 100):
        write(app, prompt)
        assert sentence(app)
        assert not [error.value for error in app.error]
        assert bool(component(app, "finding.context")) == bool(prompt)
    assert "The question itself lost its first" in sentence(app, "finding.context")


def test_ids_to_measure_with_are_in_every_vocabulary():
    assert max(some_ids(5)) < 5 and len(set(some_ids(49_152))) == 61
