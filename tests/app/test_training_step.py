"""The slider for the training step: only where a model has steps, and then every request, link, file and script holds it."""

import json
from dataclasses import replace

from app.backend.protocol import Status
from app.ui.export import python_code
from app.ui.frame import Frame
from app.ui.saved_view import read_view, write_view
from tests.app.driver import fine, opened
from tests.app.stub import model_info, tokenize

STEPS = (0, 50, 4500)


def with_steps(backend):
    model = model_info(checkpoints=STEPS, checkpoint=4500)
    backend.now = Status(model)
    return model


def slider(app):
    found = [s for s in app.sidebar.select_slider if s.key == "step"]
    return found[0] if found else None


def test_a_model_without_steps_has_no_slider_and_asks_for_none(backend):
    app = opened(step="50")
    assert slider(app) is None
    assert {request.checkpoint for request, _ in backend.requests} == {None}


def test_every_request_is_for_the_step_that_is_chosen(backend):
    model = with_steps(backend)
    app = opened()
    assert slider(app).value == 4500 and {request.checkpoint for request, _ in backend.requests} == {4500}
    assert backend.requests[-1][0].model == model.config.fingerprint
    slider(app).set_value(50)
    fine(app.run())
    request = backend.requests[-1][0]
    assert (request.checkpoint, request.model) == (50, model.config.at(50).fingerprint)
    assert request.model != model.config.fingerprint, "what is kept on the page belongs to this step"


def test_a_link_opens_a_step_and_one_that_is_not_there_the_last(backend):
    with_steps(backend)
    assert slider(opened(step="50")).value == 50
    assert slider(opened(step="51")).value == 4500
    assert slider(opened(step="x")).value == 4500


def test_the_script_and_the_saved_view_hold_the_step():
    model = model_info(checkpoints=STEPS, checkpoint=4500, kind="shipped", name="tiny-induction")
    options = {"bos": "default", "chat": False, "plain": False, "keep": None}
    at = Frame(replace(model, config=model.config.at(50)), "The", tokenize("The"), **options, step=50)
    assert "load_model('tiny-induction', checkpoint=50)" in python_code(at, "run_next_token", "pass")
    state = {}
    read_view(write_view("The", {"step": 50}), state)
    assert state == {"prompt": "The", "step": 50}
    assert json.loads(write_view("The", {"step": 50}))["choices"] == {"step": 50}
