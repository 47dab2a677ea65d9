"""What a person takes away: the Python gives the numbers of the page, the saved view holds every choice."""

import ast
import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import analyses
from analyses import run_next_token, run_tokenization
from app.ui.export import python_code
from app.ui.frame import Frame
from app.ui.saved_view import CHOICES, read_view
from tests.app.stub import model_info, tokenize

BODY = "after = run_next_token(model, text.ids, position=-1, top_k=7)"
NASTY = "it's \"q\" \\n\n\ttab 🙂 {x} %s <s> '''"


def frame(prompt="The", *, model=None, **choices):
    choices = {"bos": "default", "chat": False, "plain": False, "keep": None} | choices
    return Frame(model or model_info(), prompt, tokenize(prompt, **choices), **choices)


def code(of, body=BODY):
    return python_code(of, "run_next_token", body)


def executed(script, smol, monkeypatch):
    """The names that a script leaves, run with the model that is loaded already."""
    loaded = []
    monkeypatch.setattr(analyses, "load_model", lambda *names, **options: loaded.append((names, options)) or smol)
    names = {}
    exec(compile(script, "exported.py", "exec"), names)
    return names, loaded


@pytest.mark.embedded
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"bos": "own"},
        {"bos": "endoftext", "plain": True},
        {"bos": "none"},
        {"chat": True},
        {"chat": True, "plain": True},
        {"keep": "start"},
    ],
    ids=str,
)
def test_the_exported_script_gives_the_numbers_of_the_page(smol, monkeypatch, choices):
    prompt = "<|im_start|>The capital of France is"
    names, loaded = executed(code(frame(prompt, **choices)), smol, monkeypatch)
    text = run_tokenization(smol, prompt, **choices)
    expected = run_next_token(smol, text.ids, top_k=7)
    assert names["text"] == text
    assert names["after"].ids.tolist() == expected.ids.tolist()
    assert names["after"].probability == pytest.approx(expected.probability, rel=1e-6)
    assert loaded == [((), {})], "the embedded model needs no name"


@pytest.mark.embedded
@pytest.mark.parametrize("keep", ["start", "end"])
def test_the_exported_script_cuts_the_same_end(smol, monkeypatch, keep):
    prompt = "one two three " * 4000
    names, _ = executed(code(frame(prompt, keep=keep), body="n = len(text.ids)"), smol, monkeypatch)
    assert names["n"] == smol.config.n_ctx
    assert names["text"].cut == {"start": "end", "end": "start"}[keep]


@pytest.mark.embedded
def test_any_prompt_survives(smol, monkeypatch):
    names, _ = executed(code(frame(NASTY)), smol, monkeypatch)
    assert names["text"].text == NASTY


def test_only_what_was_changed_is_written():
    assert code(frame()) == (
        "from analyses import load_model, run_next_token, run_tokenization\n\n"
        "model = load_model()\n"
        "text = run_tokenization(model, 'The')\n"
        f"{BODY}\n"
    )
    assert "'The', bos='own', plain=True, keep='end')" in code(frame(bos="own", plain=True, keep="end"))


@pytest.mark.parametrize(
    ("config", "call"),
    [
        ({"kind": "hub", "name": "owner/name", "revision": None}, "load_model('owner/name')"),
        ({"kind": "hub", "name": "owner/name", "revision": "v1"}, "load_model('owner/name', revision='v1')"),
        ({"kind": "local", "name": "my 'own' model"}, "load_model(\"my 'own' model\")"),
        ({"kind": "embedded", "name": "smollm2-135m-instruct"}, "load_model()"),
    ],
)
def test_the_script_opens_the_model_of_the_page(config, call):
    name = config.pop("name")
    assert f"model = {call}\n" in code(frame(model=model_info(name, **config)))


def page(frame_):
    import streamlit as st

    from app.ui.export import take_with_you

    take_with_you(frame_, tables={"numbers": _Table()}, figures={"picture": lambda: _Figure()}, code="print(1)")
    st.text("end")


class _Table:
    def to_csv(self, index):
        return "a,b\n1,2\n"


class _Figure:
    def to_html(self, include_plotlyjs):
        return "<html></html>"


def shown(of, **state):
    app = AppTest.from_string(
        "import streamlit as st\nfrom tests.app.test_export import page\npage(st.session_state['frame'])\n",
        default_timeout=30,
    )
    for name, value in ({"frame": of} | state).items():
        app.session_state[name] = value
    app.run()
    assert not app.exception, app.exception[0].message
    return app


@pytest.fixture
def files(monkeypatch):
    """What the buttons hand out, by key."""
    kept = {}
    monkeypatch.setattr("app.ui.export.st.download_button", lambda label, data, *_, key, **__: kept.update({key: data}))
    return kept


def test_the_saved_view_holds_the_prompt_and_every_choice_and_opens_again(files):
    choices = {"bos": "own", "chat": False, "plain": True, "keep": "end", "after": 3, "list": 7, "temperature": 0.5}
    shown(frame(NASTY), secret="not a choice", prompt="an older one", **choices)
    view = json.loads(files["export.view"]())
    assert view["prompt"] == NASTY
    assert view["choices"] == choices
    state = {"chat": True, "other": 1}
    read_view(files["export.view"](), state)
    assert state == {"prompt": NASTY, "other": 1, **choices}


def test_what_is_handed_out_is_readable_and_drawn_when_asked_for(files):
    shown(frame("\u4eba 🙂"))
    assert "\u4eba 🙂" in files["export.view"](), "readable in an editor"
    assert files["export.numbers.csv"]() == "a,b\n1,2\n"
    picture = files["export.picture.html"]
    assert callable(picture) and picture() == "<html></html>"


def test_every_choice_in_the_address_is_in_the_saved_view():
    """A choice that a page binds to the address and the file forgets is a view that cannot be sent."""
    root = Path(__file__).resolve().parents[2]
    sources = [file.read_text("utf-8") for folder in ("pages", "app") for file in (root / folder).rglob("*.py")]
    bound = set()
    for call in (node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if named.get("bind") == "'query-params'" or ast.unparse(call.func) == "segments":
            bound.add(named["key"])
    bound = {key.strip("'") for key in bound if key.startswith("'")}  # `segments` itself passes a key on
    assert {"bos", "after", "section", "temperature"} <= bound, "the search sees the pages"
    by_hand = {"own_text", "train_text"}  # a pasted text may be too long for an address
    by_hand |= {"targets", "opposites"}  # two inputs made in one loop
    assert bound - {"prompt"} == set(CHOICES) - by_hand


@pytest.mark.parametrize(
    "text",
    [
        '{"streamscope_view": 1, "choices": {}}',
        '{"streamscope_view": 1, "prompt": "a", "choices": {"bos": ["own"]}}',
        '{"streamscope_view": 1, "prompt": "a", "choices": {"keep": {"a": 1}}}',
        '{"streamscope_view": 1, "prompt": "a", "choices": {"list": 5.5}}',
        '{"streamscope_view": 1, "prompt": "a", "choices": [1]}',
        '{"streamscope_view": 1, "prompt": "a", "choices": "bos"}',
        '{"streamscope_view": 1, "prompt": "\\ud800", "choices": {}}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_file_made_to_break_the_page_is_refused_in_three_parts_and_changes_nothing(text):
    state = {"prompt": "mine"}
    with pytest.raises(ValueError, match=r"needs .+; found .+; \w.+\."):
        read_view(text, state)
    assert state == {"prompt": "mine"}


def test_a_long_prompt_is_sent_as_a_file():
    short, long = shown(frame("a" * 2000)), shown(frame("a" * 2001))
    assert "2,001 characters" in long.caption[0].value
    assert "2,000 characters" not in short.caption[0].value
    assert short.code[0].value == "print(1)"
