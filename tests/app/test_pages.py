"""The pages on a stub backend: what a person sees first, one move each, and what a refusal leaves."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.backend.protocol import Refused
from app.ui.examples import EXAMPLES
from tests.app.driver import bars, best, click, component, fine, opened, said, sentence, strip, write
from tests.app.stub import IDS

ROOT = Path(__file__).resolve().parents[2]
FIRST = (258, 259, 260, 261, 262)  # "The capital of France is" in the stub's vocabulary
BUSY = Refused("too_large", "needs at most 8 tokens here; found more; shorten *the* prompt.")
HOSTILE = "<s>a<b>c</b>$x$ :red[x] **b** :smile: http://evil.example"
MARKUP = ("<b>", "$x$", ":red[", "**b**", ":smile:", "http://evil")


def model_page(backend):
    app = opened()
    app.switch_page(str(ROOT / "pages" / "model.py"))
    return fine(app.run())


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
    assert [(request.tokens, request.params["position"]) for request, _ in backend.requests] == [(FIRST, 4)]


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
    app.slider(key="temperature").set_value(0.5)
    app.slider(key="top_k").set_value(2)
    fine(app.run())
    before, after = bars(app, "tokens.sampling")[:2]
    # At temperature 1/2 the logits fall by 1 a step: of two tokens the first keeps 1 / (1 + 1/e).
    assert after[:2] == pytest.approx([1 / (1 + np.exp(-1)), np.exp(-1) / (1 + np.exp(-1))])
    assert not np.nansum(after[2:]), "no bar for what can no longer be drawn"
    assert before[0] == pytest.approx(1 - np.exp(-0.5))
    assert f"{100 * (1 - np.exp(-2)):.1f} %" in said(app), "what the two held at this temperature: 1 - exp(-2)"
    assert len({repr(request) for request, _ in backend.requests}) == 1, (
        "always the same question: answered by the cache"
    )


def test_listing_more_or_fewer_tokens_asks_the_model_nothing_new(backend):
    app = opened()
    for k in (25, 5):
        app.slider(key="list").set_value(k)
        assert len(bars(fine(app.run()))[0]) == k
    assert len({repr(request) for request, _ in backend.requests}) == 1


@pytest.mark.parametrize("section", ["Languages", "Numbers", "Words", "BOS"])
def test_every_section_opens_from_the_address_and_has_a_picture_or_a_table(backend, section):
    app = opened(section=section)
    assert app.segmented_control(key="section").value == section
    match section:
        case "Languages":
            costs = app.dataframe[-1].value.set_index("name")
            assert costs.loc["English", "relative_to_english"] == 1
            assert len(costs) == 17 and costs["n_tokens"].iloc[-1] == 5, "sixteen languages and the person's own prompt"
        case "Numbers":
            assert "every digit is a token of its own" in said(app)
            assert strip(app, "tokens.numbers")["tokens"]["shown"][:4] == ["7", "·", "4", "2"]
        case "Words":
            table = app.dataframe[-1].value.set_index("spelling")
            assert list(table["tokens"]) == [1, 2, 6, 7, 10]
            assert table.loc["strawberry", "ids"] == str(IDS[b"strawberry"])
            assert table.loc["strawberry", "how often r"] == "3"
            assert table.loc["·strawberry", "how often r"] == "1 + 2"
        case _:
            table = app.table[0].value.map(lambda cell: re.sub(r"\\(.)", r"\1", cell).replace("\u2060", ""))
            assert list(table["in front"])[:2] == ["nothing", "nothing"]
            assert list(table.iloc[:, 1])[:2] == ["39.3 %", "39.3 %"]
            assert table["most probable"].iloc[0] == "·Paris"
            assert table["most probable"].iloc[2] == best((IDS[b"<s>"], *FIRST)), "another beginning, another answer"


def test_the_model_page_tells_facts_checks_and_what_is_missing(backend):
    app = model_page(backend)
    told = sentence(app, "model.finding")
    assert "stub-model, 123,456 parameters in 3 layers, runs on cpu in float32" in told
    assert "1 of 2 self-checks passed" in told and "1 of 3 capabilities are missing" in told
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
    assert BUSY.message.removeprefix("n") in said(app)
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
    assert "[SOH]" in said(app) and "\\[SOH\\]" in app.warning[0].value
    assert "ends with a space" in said(app)
    app.button(key="tokens.remove_space").click()
    assert fine(app.run()).text_area(key="prompt").value == "a\x01b"


def texts_of(message):
    """Every text inside a message to the browser, with the field it stands in."""
    for descriptor, value in message.ListFields():
        for each in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
            if hasattr(each, "ListFields"):
                yield from texts_of(each)
            elif isinstance(each, str):
                yield descriptor.name, each


LITERAL = {"text_area", "bidi_component", "code", "plotly_chart", "arrow_data_frame"}  # show text as it is


@pytest.mark.parametrize("section", ["Languages", "Numbers", "Words", "BOS"])
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
