"""The page "Generate" on a tiny model: it writes, keeps what there is, stops, goes on from another token, refuses in words."""

import re

import numpy as np
import pytest

import analyses
from analyses import run_generation, run_next_token
from analyses.model import load_model
from app.ui.stream import Stream
from app.views.generate_choices import LISTED
from tests.app.driver import ROOT, component, fine, said, sentence, strip, write
from tests.tiny import TEXT


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
        app.switch_page("../pages/generate.py")
        return written(app)

    return opened


def written(app):
    """Run until nothing more is written: AppTest does not run fragments by itself."""
    for _ in range(200):
        fine(app.run())
        if not component(app, "finding") or not sentence(app).startswith("Writing"):
            return app
    raise AssertionError("still writing")


def press(app, key):
    app.button(key=key).click()
    fine(app.run())
    return written(app)


def ids_on(app, index=0):
    return strip(app, f"generate.strip.{index}")["tokens"]["id"]


def test_the_first_text_is_there_without_a_click_and_is_that_of_the_library(page, real, model):
    app = page(prompt=TEXT)
    expected = run_generation(model, real.tokenize(TEXT).ids, max_new_tokens=20)
    bits = expected.row_entropy_nats[0] / np.log(2)
    assert ids_on(app) == expected.ids.tolist()
    assert sentence(app).startswith(f"{len(expected.ids)} tokens; the least certain choice was token {bits.argmax()} ")
    assert f"({bits.max():.1f} bits)" in sentence(app)
    notes = strip(app, "generate.strip.0")["tokens"]["note"]
    assert "the first choice" in notes[0]
    assert "instead of" in notes[0]
    shades = strip(app, "generate.strip.0")["tokens"]["shade"]
    assert shades == pytest.approx(100 * np.exp(expected.log_probability), abs=0.51)


def test_settings_wait_for_the_button_and_the_seed_decides(page, real, model):
    app = page(prompt=TEXT, new_tokens="6")
    greedy = ids_on(app)
    app.session_state["write"] = "Sampled"
    fine(app.run())
    app.number_input(key="seed").set_value(5)
    app.slider(key="samples").set_value(2)
    fine(app.run())
    assert ids_on(app) == greedy, "nothing is written until it is asked for"
    assert re.search(r"Below is a text with other settings: greedy, .+ seed 5, 2 samples", said(app))
    press(app, "generate.write")
    expected = run_generation(
        model, real.tokenize(TEXT).ids, max_new_tokens=6, temperature=1.0, seed=5, samples=2, alternatives=LISTED
    )
    assert [ids_on(app, row) for row in (0, 1)] == [[i for i in row if i >= 0] for row in expected.row_ids.tolist()]
    assert sentence(app).startswith("2 samples, ")
    assert "Below is a text with other settings" not in said(app)


def test_a_clicked_token_shows_the_distribution_it_came_from(page, real, model):
    app = page(prompt=TEXT, new_tokens="6")
    ids = ids_on(app)
    app.session_state["generate.strip.0"] = {"selected": {"position": 3, "time": 7}}
    written(app)
    after = run_next_token(model, (*real.tokenize(TEXT).ids, *ids[:3]))
    assert f"carried {after.entropy_nats / np.log(2):.2f} bits" in "\n".join(m.value for m in app.markdown)
    assert any(m.value.startswith("**New token 3**") for m in app.markdown)


def test_writing_goes_on_from_another_token(page, real, model, monkeypatch, capsys):
    app = page(prompt=TEXT, new_tokens="6")
    ids = ids_on(app)
    app.session_state["generate.strip.0"] = {"selected": {"position": 2, "time": 7}}
    written(app)
    prompt = real.tokenize(TEXT).ids
    other = next(int(i) for i in run_next_token(model, (*prompt, *ids[:2])).ids if i != ids[2])
    press(app, "generate.continue")
    kept = [*ids[:2], other]
    expected = run_generation(model, (*prompt, *kept), max_new_tokens=6).ids.tolist()
    assert ids_on(app) == kept + expected
    assert f"{len(expected)} tokens, after 3 that were kept" in sentence(app)
    monkeypatch.setattr(analyses, "load_model", lambda *names, **options: model)
    names = {}
    exec(compile(app.code[-1].value, "exported.py", "exec"), names)
    assert names["out"].ids.tolist() == expected


def test_what_does_not_fit_is_refused_before_the_click(page):
    app = page(prompt=TEXT, new_tokens="60")
    assert re.search(
        r"needs 1 to \d+ new tokens after a prompt of \d+, within the context of 64; found 60",
        said(app).replace("Needs", "needs"),
    )
    assert app.button(key="generate.write").disabled
    assert "do not fit the context" in sentence(app)


@pytest.mark.parametrize("prompt", ["", "a", "<s>a<b>c</b>$x$", "🙂"], ids=["empty", "one", "markup", "emoji"])
def test_odd_prompts_are_continued_or_said(page, prompt):
    app = page()
    write(app, prompt)
    written(app)
    assert sentence(app)
    assert not app.error
    assert (component(app, "generate.strip.0") is None) == (prompt == "")


def test_stopping_keeps_what_is_there_and_ends_the_job(backend):
    from streamlit.testing.v1 import AppTest

    from analyses._steps import Progress
    from app.backend.protocol import Event

    part = {"row_ids": np.array([[4, 5]], np.int32)}
    backend.news = (Event("progress", progress=Progress(2, 9, partial=part)), None)

    def script():
        import streamlit as st

        from app.ui.stream import current_stream, draw_stream, start_stream

        if current_stream("x") is None:
            start_stream("generation", (1, 2), slot="x", model="m", max_new_tokens=9)
        draw_stream("x", lambda stream: st.code(str(stream.fields["row_ids"].tolist())))

    backend._answer = lambda request: None  # never ends by itself
    app = fine(AppTest.from_function(script).run())
    assert app.code[0].value == "[[4, 5]]"
    fine(app.button(key="stop.x").click().run())
    assert backend.jobs[0].cancelled
    assert app.code[0].value == "[[4, 5]]"
    assert not app.button
    assert len(backend.jobs) == 1


def test_a_page_that_nobody_looks_at_gives_its_job_back_and_asks_again_when_somebody_comes(backend, monkeypatch):
    from app.backend.protocol import Event, Refused, Request, Who

    held = []

    class Timer:
        def __init__(self, seconds, run):
            held.append(run)

        def start(self):
            pass

        def cancel(self):
            pass

    monkeypatch.setattr("app.ui.stream.threading.Timer", Timer)
    backend._answer = lambda request: None  # never ends by itself
    stream = Stream(Request("generation", (1,)), Who("somebody", "x"))
    stream.ask()
    stream.look()
    held[-1]()  # the time is over
    assert backend.jobs[0].cancelled
    assert stream.running
    backend.jobs[0].events = [Event("failed", failure=Refused("cancelled", "Stopped."))]
    stream.look()
    assert len(backend.jobs) == 2
    assert stream.running
    stream.stop()
    assert backend.jobs[1].cancelled
    assert not stream.running
