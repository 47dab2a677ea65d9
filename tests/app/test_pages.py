"""The frame and the pages on a stub backend: what a person sees first, one move each, and every way it can go wrong."""

import base64
import json
import re
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from streamlit import config
from streamlit.testing.v1 import AppTest

from analyses._steps import Progress
from app.backend import use_backend
from app.backend.protocol import Refused, Status
from app.ui.choices import BOS_WORDS, CUT_WORDS
from app.ui.examples import EXAMPLES
from app.ui.token_text import visible
from tests.app.stub import IDS, N_CTX, PIECES, StubBackend, model_info, next_token, tokenize

ROOT = Path(__file__).resolve().parents[2]
FIRST = (258, 259, 260, 261, 262)  # "The capital of France is" in the stub's vocabulary
BUSY = Refused("too_large", "needs at most 8 tokens here; found more; shorten *the* prompt.")
HOSTILE = "<s>a<b>c</b>$x$ :red[x] **b** :smile: http://evil.example"
MARKUP = ("<b>", "$x$", ":red[", "**b**", ":smile:", "http://evil")


@pytest.fixture
def backend():
    stub = StubBackend()
    use_backend(stub)
    saved = config.get_option("browser.gatherUsageStats")
    config.set_option("browser.gatherUsageStats", False)  # AppTest reads no configuration file
    yield stub
    config.set_option("browser.gatherUsageStats", saved)
    use_backend(None)


def opened(**address):
    """The app as somebody sees it who opens this address."""
    app = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=60)
    for name, value in address.items():
        app.query_params[name] = value
    return fine(app.run())


def fine(app):
    assert not app.exception, app.exception[0].message
    return app


def model_page(backend):
    app = opened()
    app.switch_page(str(ROOT / "pages" / "model.py"))
    return fine(app.run())


def component(app, key):
    return next((c.proto for c in app.get("bidi_component") if c.proto.id.endswith(f"-{key}")), None)


def strip(app, key="tokens.strip"):
    return json.loads(zlib.decompress(component(app, key).bytes))


def sentence(app, key="finding"):
    parts = json.loads(component(app, key).json)["parts"]
    return "".join(part["text"] if "text" in part else f"`{part['token']}`" for part in parts)


def best(ids, position=-1):
    """The stub's most probable next token, as the page writes it."""
    return visible(PIECES[int(next_token(ids, position).ids[0])])


def bars(app, key="tokens.next"):
    """Lengths of the bars of a figure, one array per trace."""
    chart = next(chart.proto for chart in app.get("plotly_chart") if chart.proto.id.endswith(f"-{key}"))
    traces = json.loads(chart.spec)["data"]
    return [np.frombuffer(base64.b64decode(t["x"]["bdata"]), dtype=t["x"]["dtype"]) for t in traces if "x" in t]


def write(app, prompt):
    app.text_area(key="prompt").set_value(prompt)
    return submit(app, "Prompt")


def submit(app, form):
    """Press the button of the form in which the input with this label stands."""
    inputs = [*app.text_area, *app.selectbox]
    form_id = next(each.form_id for each in inputs if each.label == form)
    next(button for button in app.button if button.form_id == form_id).click()
    return fine(app.run())


def click(app, position, key="tokens.strip"):
    app.session_state[key] = {"selected": position}
    return fine(app.run())


def said(app):
    """Every error, warning, remark and caption, with Markdown's escapes taken back."""
    elements = [*app.error, *app.warning, *app.info, *app.caption]
    return re.sub(r"\\(.)", r"\1", "\n".join(element.value for element in elements)).replace("\u2060", "")


def test_the_first_thing_seen_is_the_first_example_finished(backend):
    app = opened()
    assert app.text_area(key="prompt").value == EXAMPLES[0].prompt
    assert sentence(app).startswith("Your 24 characters became 5 tokens (0.21 per character).")
    assert "After `·is` (token 4) the model assigns `·Paris` 39.3 %" in sentence(app)
    assert "2.46 bits" in sentence(app)
    assert strip(app)["tokens"]["id"] == list(FIRST)
    assert strip(app)["tokens"]["shown"] == ["The", "·capital", "·of", "·France", "·is"]
    assert strip(app)["selected"] == 4
    assert bars(app)[0] == pytest.approx([(1 - np.exp(-0.5)) * np.exp(-0.5 * k) for k in range(10)], rel=1e-5)
    assert EXAMPLES[0].look_for.split(",")[0] in said(app)
    assert "on cpu" in said(app) and "float32" in said(app)
    assert not app.error and not app.warning
    assert [(r.tokens, dict(r.params)) for r, _ in backend.requests] == [(FIRST, {"position": 4, "top_k": 10})]


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


def test_a_click_on_a_token_predicts_after_it(backend):
    app = click(opened(), 1)
    assert app.number_input(key="after").value == 1
    assert backend.requests[-1][0].params["position"] == 1
    assert f"After `·capital` (token 1) the model assigns `{best(FIRST, 1)}`" in sentence(app)
    app.number_input(key="after").set_value(0)
    fine(app.run())
    assert "After `The` (token 0)" in sentence(app), "an old click does not come back"
    assert strip(app)["selected"] == 0


def test_a_shorter_prompt_forgets_a_position_that_it_does_not_have(backend):
    app = write(click(opened(), 3), "The")
    assert app.number_input(key="after").value is None
    assert "After `The` (token 0)" in sentence(app)


def test_sampling_is_computed_over_the_whole_vocabulary_and_asks_the_model_nothing(backend):
    app = opened()
    app.segmented_control(key="sampling").set_value("Sampling")
    fine(app.run())
    asked = len(backend.requests)
    app.slider(key="temperature").set_value(0.5)
    app.slider(key="top_k").set_value(2)
    fine(app.run())
    before, after = bars(app, "tokens.sampling")[:2]
    # At temperature 1/2 the logits fall by 1 a step: of two tokens the first keeps 1 / (1 + 1/e).
    assert after[:2] == pytest.approx([1 / (1 + np.exp(-1)), np.exp(-1) / (1 + np.exp(-1))])
    assert not np.nansum(after[2:]), "no bar for what can no longer be drawn"
    assert before[0] == pytest.approx(1 - np.exp(-0.5))
    assert f"{100 * (1 - np.exp(-2)):.1f} %" in said(app), "what the two held at this temperature: 1 - exp(-2)"
    assert {request.params["top_k"] for request, _ in backend.requests[asked:]} <= {10}


def test_more_tokens_can_be_listed(backend):
    app = opened()
    app.slider(key="list").set_value(25)
    assert len(bars(fine(app.run()))[0]) == 25


@pytest.mark.parametrize("section", ["Languages", "Numbers", "Words and letters", "Token in front (BOS)"])
def test_every_section_opens_from_the_address_and_has_a_picture_or_a_table(backend, section):
    app = opened(section=section)
    assert app.segmented_control(key="section").value == section
    match section:
        case "Languages":
            costs = app.dataframe[0].value.set_index("name")
            assert costs.loc["English", "relative_to_english"] == 1
            assert len(costs) == 17 and costs["n_tokens"].iloc[-1] == 5, "sixteen languages and the person's own prompt"
        case "Numbers":
            assert "every digit is a token of its own" in said(app)
            assert strip(app, "tokens.numbers")["tokens"]["shown"][:4] == ["7", "·", "4", "2"]
        case "Words and letters":
            table = app.dataframe[0].value.set_index("spelling")
            assert list(table["tokens"]) == [1, 2, 6, 7, 10]
            assert table.loc["strawberry", "ids"] == str(IDS[b"strawberry"])
            assert table.loc["strawberry", "how often r"] == "3"
            assert table.loc["·strawberry", "how often r"] == "1 + 2"
        case _:
            table = app.dataframe[0].value
            assert list(table["tokens"]) == [5, 5, 6, 6]
            assert list(table.iloc[:, 3])[:2] == ["39.3 %", "39.3 %"]
            assert table["most probable"][0] == "·Paris"
            assert table["most probable"][2] == best((IDS[b"<s>"], *FIRST)), "another beginning, another answer"


def test_the_model_page_tells_facts_checks_and_what_is_missing(backend):
    app = model_page(backend)
    told = sentence(app, "model.finding")
    assert "stub-model, 123,456 parameters in 3 layers, runs on cpu in float32" in told
    assert "1 of 2 self-checks passed" in told and "1 of 2 capabilities are missing" in told
    cells = re.sub(r"\\(.)", r"\1", " ".join(table.value.to_string() for table in [*app.table, *app.dataframe]))
    for fact in ("3 query heads share one key-value head", "123,456", "64 tokens", "267 tokens", "tied", "RMSNorm"):
        assert fact in cells, fact
    assert "Attention rows do not sum to one." in cells
    assert "Blocks of this family cannot be run alone." in cells


def test_a_refused_request_is_said_and_the_previous_result_stays(backend):
    app = opened()
    before = bars(app)[0]
    backend.refuse_job = BUSY
    app = write(app, "The capital")
    assert BUSY.message in said(app)
    assert "previous result, for a prompt of 5 tokens" in said(app)
    assert bars(app)[0] == pytest.approx(before)
    assert "became 2 tokens" in sentence(app) and "assigns" not in sentence(app), "no number of another prompt"
    assert not app.code, "no code and no table that do not belong to what is shown"
    backend.refuse_job = None
    assert "After `·capital` (token 1)" in sentence(fine(app.run()))
    assert not app.error


def test_a_refused_first_request_leaves_no_picture(backend):
    backend.refuse_submit = Refused("busy", "The model is still being loaded; try again in a moment.")
    app = opened(section="Numbers")
    assert "try again in a moment" in said(app)
    assert not app.get("plotly_chart")
    assert "assigns" not in sentence(app)


@pytest.mark.parametrize(
    "error", [ValueError("needs *a*; found $b$; do c."), Refused("busy", "needs *a*; found $b$; do c.")]
)
def test_a_prompt_that_cannot_be_tokenised_is_one_sentence(backend, error):
    backend.refuse_tokens = error
    app = opened()
    assert "needs *a*; found $b$; do c." in said(app)
    assert component(app, "tokens.strip") is None and backend.requests == []
    assert app.text_area(key="prompt").value == EXAMPLES[0].prompt, "the prompt can still be changed"


def test_a_prompt_over_the_context_is_refused_in_words(backend):
    app = write(opened(), "x" * (N_CTX + 3))
    assert f"needs at most {N_CTX} tokens; found {N_CTX + 3}" in said(app)
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


def test_an_empty_prompt_is_no_error(backend):
    app = write(opened(), "")
    assert "empty prompt" in sentence(app).lower()
    assert component(app, "tokens.strip") is None
    assert not app.error
    app.selectbox(key="bos").select("own")
    app = fine(app.run())
    assert strip(app)["tokens"]["shown"] == ["<s>"]
    assert "After `<s>` (token 0)" in sentence(app)


def test_what_the_vocabulary_loses_is_said(backend):
    app = write(opened(), "a\x01b ")
    assert "[SOH]" in said(app)
    assert "ends with a space" in said(app)
    app.button(key="tokens.remove_space").click()
    assert fine(app.run()).text_area(key="prompt").value == "a\x01b"


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
    assert dict(request.params) == {"position": 3, "top_k": 7}
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
    assert dict(backend.requests[0][0].params) == {"position": 4, "top_k": 10}
    assert app.segmented_control(key="section").value == "Languages"


def test_a_saved_view_is_opened_and_a_wrong_file_changes_nothing(backend):
    app = opened()
    choices = {"bos": "own", "plain": True, "after": 2, "section": "Numbers", "list": 7}
    view = json.dumps({"streamscope_view": 1, "prompt": "The capital", "choices": choices})
    app.file_uploader(key="frame.view").set_value(("view.json", view.encode(), "application/json"))
    fine(app.run())
    assert strip(app)["tokens"]["shown"] == ["<s>", "The", "·capital"]
    assert (backend.requests[-1][0].params["position"], backend.requests[-1][0].params["top_k"]) == (2, 7)
    assert app.segmented_control(key="section").value == "Numbers"
    app.file_uploader(key="frame.view").set_value(("cat.json", b"\x89PNG \xff", "application/json"))
    fine(app.run())
    assert "needs a view" in said(app)
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
    assert "needs *a model*; found none" in said(app)
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
    assert "needs access to owner/gated" in said(app)
    assert "`·Paris`" in sentence(app)


def texts_of(message):
    """Every text inside a message to the browser, with the field it stands in."""
    for descriptor, value in message.ListFields():
        for each in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
            if hasattr(each, "ListFields"):
                yield from texts_of(each)
            elif isinstance(each, str):
                yield descriptor.name, each


LITERAL = {"text_area", "bidi_component", "code", "plotly_chart", "arrow_data_frame"}  # show text as it is


@pytest.mark.parametrize("section", ["Languages", "Numbers", "Words and letters", "Token in front (BOS)"])
def test_a_prompt_of_markup_reaches_no_markdown_label_or_metric(backend, section):
    seen = []
    for refusal in (None, Refused("internal", f"needs a; found {HOSTILE!r}; do b.")):
        backend.refuse_job = refusal
        app = opened(prompt=HOSTILE, section=section, word=HOSTILE, numbers=HOSTILE, letter="*")
        assert strip(app)["tokens"]["shown"][:4] == ["<s>", "a", "<", "b"]
        for node in [*app.main, *app.sidebar]:
            seen += walk(node)
    assert len(seen) > 100
    assert [(kind, name, text) for kind, name, text in seen if any(mark in text for mark in MARKUP)] == []


def walk(node):
    children = getattr(node, "children", None)
    if children:
        for child in children.values():
            yield from walk(child)
    proto = getattr(node, "proto", None)
    if proto is None:
        return
    kind = getattr(node, "type", "")
    if kind in LITERAL or not hasattr(proto, "ListFields"):
        return
    for name, text in texts_of(proto):
        if name != "value":  # of an input: what the person typed
            yield kind, name, text


def test_main_and_pages_import_no_torch():
    script = (
        "import sys\n"
        "from streamlit import config\n"
        "config.set_option('browser.gatherUsageStats', False)\n"
        "from streamlit.testing.v1 import AppTest\n"
        "from app.backend import use_backend\n"
        "from tests.app.stub import StubBackend\n"
        "use_backend(StubBackend())\n"
        "app = AppTest.from_file('app/main.py', default_timeout=120).run()\n"
        "for page in sys.argv[1:]:\n"
        "    app.switch_page(page).run()\n"
        "    assert not app.exception, app.exception[0].message\n"
        "print(sorted({'torch', 'transformers', 'transformer_lens', 'tokenizers'} & sys.modules.keys()))\n"
        "print(len(app.title))\n"
    )
    pages = sorted(map(str, (ROOT / "pages").glob("*.py")))
    assert len(pages) >= 2
    done = subprocess.run(
        [sys.executable, "-c", script, *pages], cwd=ROOT, text=True, capture_output=True, timeout=300, check=True
    )
    assert done.stdout.splitlines() == ["[]", "1"]
