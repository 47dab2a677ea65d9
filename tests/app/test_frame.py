"""The frame on a stub backend: model, prompt, examples, the address, saved views, and every way they can go wrong."""

import json
from dataclasses import replace

import pytest
from streamlit import config

from analyses._steps import Progress
from app.backend.protocol import Refused, Status
from app.ui.choices import BOS_WORDS, CUT_WORDS
from app.ui.examples import EXAMPLES
from tests.app.driver import bars, component, fine, opened, said, sentence, strip, submit, write
from tests.app.stub import N_CTX, model_info, tokenize


def test_without_our_configuration_the_app_says_how_to_start_it(backend):
    config.set_option("browser.gatherUsageStats", True)
    app = opened()
    assert "make run" in app.error[0].value
    assert backend.requests == []


def test_an_example_fills_the_prompt_and_says_what_to_look_for(backend):
    app = opened()
    app.selectbox(key="frame.example").select(EXAMPLES[6].name)
    fine(app.run())
    assert app.text_area(key="prompt").value == "strawberry, strawberry"
    assert strip(app)["tokens"]["shown"] == ["strawberry", ",", "·straw", "berry"]
    assert EXAMPLES[6].look_for.split(",")[0] in said(app)


def test_a_browser_that_draws_the_box_late_finds_the_prompt_in_it(backend):
    """The text is the box's default in every run, not only sent once: an early second run has lost what was sent in the first."""
    app = opened()
    box = app.text_area(key="prompt").proto
    assert (box.default, box.set_value) == (EXAMPLES[0].prompt, False)
    fine(app.run())
    assert app.text_area(key="prompt").proto.default == EXAMPLES[0].prompt
    app = write(app, "The cat")
    fine(app.run())
    assert app.text_area(key="prompt").proto.default == "The cat"
    app.selectbox(key="frame.example").select(EXAMPLES[6].name)
    fine(app.run())
    assert (app.text_area(key="prompt").proto.value, app.text_area(key="prompt").value) == (EXAMPLES[6].prompt,) * 2
    fine(app.run())
    assert app.text_area(key="prompt").proto.default == EXAMPLES[6].prompt


@pytest.mark.parametrize(
    "error", [ValueError("needs *a*; found $b$; do c."), Refused("busy", "needs *a*; found $b$; do c.")]
)
def test_a_prompt_that_cannot_be_tokenised_is_one_sentence(backend, error):
    backend.refuse_tokens = error
    app = opened()
    assert "Needs *a*; found $b$; do c." in said(app)
    assert app.error[0].value.startswith("Needs \\*a\\*"), "shown literally"
    assert component(app, "tokens.strip") is None and backend.requests == []
    assert app.text_area(key="prompt").value == EXAMPLES[0].prompt, "the prompt can still be changed"


def test_a_prompt_over_the_context_is_refused_in_words(backend):
    app = write(opened(), "x" * (N_CTX + 3))
    assert f"Needs at most {N_CTX} tokens; found {N_CTX + 3}" in said(app)
    assert "3 tokens too many" in said(app)
    assert f"{N_CTX + 3} of {N_CTX}" in app.sidebar.get("progress")[0].proto.text


@pytest.mark.parametrize(("keep", "cut", "left"), [("start", "end", "a"), ("end", "start", "x")])
def test_a_prompt_over_the_context_is_cut_and_says_which_end(backend, keep, cut, left):
    app = opened()
    app.selectbox(key="keep").select(keep)
    app = write(app, "aaa" + "x" * N_CTX)
    (warning,) = app.warning
    assert cut in warning.value and "3" in warning.value
    tokens = strip(app)["tokens"]["shown"]
    assert len(tokens) == N_CTX and tokens[0] == left
    assert not app.error


# The address holds what a select box shows.
CHOICES = {"bos": BOS_WORDS["own"], "keep": CUT_WORDS["end"]}


def test_the_address_restores_the_view(backend):
    app = opened(prompt="<s>The capital", plain="true", after="3", section="Numbers", list="7", **CHOICES)
    assert backend.texts[0] == (
        "<s>The capital",
        {"bos": "own", "chat": False, "plain": True, "keep": "end"},
    )
    assert [app.text_area(key="prompt").value, app.selectbox(key="bos").value] == ["<s>The capital", "own"]
    request = backend.requests[0][0]
    assert request.tokens == tokenize("<s>The capital", bos="own", plain=True).ids
    assert request.params["position"] == 3 and len(bars(app)[0]) == 7
    assert app.segmented_control(key="section").value == "Numbers"


def test_a_chat_from_the_address_brings_its_own_marks(backend):
    app = opened(prompt="The", chat="true", **CHOICES)
    assert backend.texts[0] == ("The", {"bos": "default", "chat": True, "plain": False, "keep": "end"})
    assert app.selectbox(key="bos").disabled
    assert strip(app)["tokens"]["shown"][:2] == ["<s>", "u"]
    assert "chat template" in sentence(app)


def test_nonsense_in_the_address_gives_the_defaults(backend):
    app = opened(bos="nothing", after="-3", section="Nowhere", list="9999", chat="perhaps")
    assert backend.texts[0][1] == {"bos": "default", "chat": False, "plain": False, "keep": None}
    assert backend.requests[0][0].params["position"] == 4 and len(bars(app)[0]) == 10
    assert app.segmented_control(key="section").value == "Languages"


def test_a_saved_view_is_opened_and_a_wrong_file_changes_nothing(backend):
    app = opened()
    choices = {"bos": "own", "plain": True, "after": 2, "section": "Numbers", "list": 7}
    view = json.dumps({"streamscope_view": 1, "prompt": "The capital", "choices": choices})
    app.file_uploader(key="frame.view").set_value(("view.json", view.encode(), "application/json"))
    fine(app.run())
    assert strip(app)["tokens"]["shown"] == ["<s>", "The", "·capital"]
    assert backend.requests[-1][0].params["position"] == 2 and len(bars(app)[0]) == 7
    assert app.segmented_control(key="section").value == "Numbers"
    app.file_uploader(key="frame.view").set_value(("cat.json", b"\x89PNG \xff", "application/json"))
    fine(app.run())
    assert "Needs a view" in said(app)
    assert app.text_area(key="prompt").value == "The capital"
    assert "needs a view" not in said(fine(app.run())), "said once"


def test_a_saved_view_of_another_model_gives_what_this_one_can_do(backend):
    backend.now = Status(replace(model_info(), bos_choices=("default", "none"), has_chat_template=False))
    app = opened()
    choices = {"bos": "own", "chat": True, "after": 40}
    view = json.dumps({"streamscope_view": 1, "prompt": "The capital", "choices": choices})
    app.file_uploader(key="frame.view").set_value(("view.json", view.encode(), "application/json"))
    fine(app.run())
    assert backend.texts[-1][1]["bos"] in ("default", "none") and not backend.texts[-1][1]["chat"]
    assert backend.requests[-1][0].params["position"] == 1


def test_while_the_first_model_loads_its_progress_stands_in_the_page(backend):
    backend.now = Status(None, "stub-model", Progress(1, 4, "converting *it*"))
    backend.coming = [backend.now, backend.now, Status(model_info())]
    app = opened()
    assert "`·Paris`" in sentence(app)
    assert backend.coming == []


def test_a_model_that_could_not_be_opened_is_one_sentence_and_can_be_tried_again(backend, monkeypatch):
    monkeypatch.setenv("STREAMSCOPE_MODELS", "owner/first@v1,owner/second")
    backend.now = Status(None, error="needs *a model*; found none; choose another.")
    app = opened()
    assert "Needs *a model*; found none" in said(app)
    assert component(app, "finding") is None
    backend.coming = [backend.now, Status(model_info())]
    app.button[0].click()
    fine(app.run())
    assert backend.opened == [("owner/first", {"revision": "v1"})], "the first of this server's list, as at start"
    assert "`·Paris`" in sentence(app)


def test_only_listed_models_can_be_opened(backend, monkeypatch):
    monkeypatch.setenv("STREAMSCOPE_MODELS", "smollm2-135m-instruct,owner/second@v2")
    app = opened()
    with pytest.raises(KeyError):
        app.text_input(key="frame.hub_id")
    app.selectbox(key="frame.label").select("owner/second@v2")
    submit(app, "Model")
    assert backend.opened == [("owner/second", {"revision": "v2"})]


def test_one_model_on_the_list_offers_no_choice(backend, monkeypatch):
    monkeypatch.delenv("STREAMSCOPE_MODELS", raising=False)
    with pytest.raises(KeyError):
        opened().selectbox(key="frame.label")


def test_any_hub_id_where_the_server_says_so_and_a_path_never(backend, monkeypatch, tmp_path):
    monkeypatch.setenv("STREAMSCOPE_MODELS", "smollm2-135m-instruct,any")
    app = opened()
    for typed in (str(tmp_path), "../etc", "~/models", "*bold*"):
        app.text_input(key="frame.hub_id").set_value(typed)
        assert repr(typed) in said(submit(app, "Model"))
    assert backend.opened == []
    app.text_input(key="frame.hub_id").set_value(" owner/name@v3 ")
    submit(app, "Model")
    assert backend.opened == [("owner/name", {"revision": "v3"})]


def test_a_model_that_opens_beside_the_loaded_one_can_be_stopped(backend):
    backend.now = Status(model_info(), "owner/other", Progress(3, 4, "downloading"))
    app = opened()
    assert "`·Paris`" in sentence(app), "the open model answers meanwhile"
    assert any("75%" in bar.proto.text for bar in app.get("progress"))
    app.button(key="frame.stop_opening").click()
    fine(app.run())
    assert backend.stopped_opening == 1


def test_a_failed_opening_is_said_beside_the_model_that_stays(backend):
    backend.now = Status(model_info(), error="needs access to owner/gated; found none; ask for it on the hub.")
    app = opened()
    assert "Needs access to owner/gated" in said(app)
    assert "`·Paris`" in sentence(app)
