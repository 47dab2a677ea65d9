import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.components._selection import Memo, read_click, reconcile
from app.components.token_strip.token_strip import token_strip
from tests.app import browser_half

SCRIPT = """
import streamlit as st
from app.components.token_strip import token_strip
pieces = st.session_state.get("pieces", [b"<bos>", b"The", b" cat", b"\\n", b"\\xf0\\x9f", b"\\x99\\x82"])
n = len(pieces)
starts, ends = [-1, 0, 3, 7, 8, 8][:n], [-1, 3, 7, 8, 9, 9][:n]
special = [True] + [False] * (n - 1)
if st.session_state.get("drawn", True):
    found = token_strip(pieces, range(100, 100 + n), starts, ends, special,
                        selected=st.session_state.get("mine"), key="strip")
    st.session_state["mine"] = found
    st.text(f"selected={found}")
"""


@pytest.fixture
def app():
    return AppTest.from_string(SCRIPT, default_timeout=20).run()


def payload(app):
    return app.get("bidi_component")[0].proto.bytes


def click(app, position, time):
    app.session_state["strip"] = {"selected": {"position": position, "time": time}}
    return app.run()


def test_the_payload_is_what_the_tokens_are(app):
    found = json.loads(zlib.decompress(payload(app)))
    assert found["selected"] is None
    tokens = found["tokens"]
    assert tokens["shown"] == ["<bos>", "The", "·cat", "⏎", "<F0 9F>", "<99 82>"]
    assert tokens["id"] == [100, 101, 102, 103, 104, 105]
    assert tokens["hex"][2] == "20 63 61 74" and tokens["n_bytes"][2] == 4
    assert tokens["start"] == [-1, 0, 3, 7, 8, 8] and tokens["end"] == [-1, 3, 7, 8, 9, 9]
    assert tokens["special"] == tokens["added"] == [1, 0, 0, 0, 0, 0]
    assert tokens["newline"] == [0, 0, 0, 1, 0, 0]
    assert tokens["broken"] == [0, 0, 0, 0, 1, 1]
    assert tokens["runs"] == [[4, 5, "🙂"]]


def test_a_click_selects_and_leaves_the_payload_alone(app):
    before = payload(app)
    click(app, 2, time=1)
    assert app.text[0].value == "selected=2" and payload(app) == before
    app.run()  # a run for another reason: the caller passes 2 back
    assert app.text[0].value == "selected=2" and payload(app) == before


def test_a_selection_from_outside_is_sent_even_back_to_an_old_one(app):
    click(app, 2, time=1)
    app.session_state["mine"] = 4
    app.run()
    first = payload(app)
    assert app.text[0].value == "selected=4" and json.loads(zlib.decompress(first))["selected"] == 4
    click(app, 2, time=9)  # the very token that was clicked before
    assert app.text[0].value == "selected=2" and payload(app) == first
    app.session_state["mine"] = 4
    app.run()
    assert payload(app) != first  # the same tokens and selection as in `first`, yet the browser has to be told


def test_new_tokens_carry_the_callers_selection(app):
    click(app, 5, time=1)
    app.session_state["pieces"] = [b"<bos>", b"a"]
    app.run()
    assert app.text[0].value == "selected=None"
    assert json.loads(zlib.decompress(payload(app)))["selected"] is None
    # The old click still lies in the component's state; it must not come back with the old tokens.
    del app.session_state["pieces"]
    app.run()
    assert app.text[0].value == "selected=None"


def test_after_a_visit_elsewhere_the_selection_is_sent_again():
    # Gone from the page, the component forgot; the caller did not.
    memo, found = reconcile(Memo(7, sent=None, shown=3, revision=1, seen=(3, 55)), 7, 6, None, 3)
    assert found == 3 and memo == Memo(7, sent=3, shown=3, revision=2, seen=None)
    assert reconcile(memo, 7, 6, None, 3) == (memo, 3)


def test_a_position_alone_is_a_click_too(app):
    app.session_state["strip"] = {"selected": 1}
    assert app.run().text[0].value == "selected=1"


@pytest.mark.parametrize(
    "state",
    [
        None,
        "x",
        {},
        {"selected": None},
        {"selected": True},
        {"selected": 2.0},
        {"selected": "2"},
        {"selected": [2]},
        {"selected": {"position": 2}},
        {"selected": {"position": 2, "time": 1.5}},
        {"selected": {"position": "2", "time": 1}},
        {"selected": {"position": True, "time": 1}},
        {"selected": {"position": {"a": 1}, "time": []}},
    ],
)
def test_what_is_not_a_position_is_no_click(state):
    assert read_click(state) is None


@pytest.mark.parametrize("position", [-1, 6, 10**30])
def test_a_position_outside_selects_nothing_and_changes_nothing(position):
    memo = Memo(7, sent=1, shown=1, revision=1)
    assert reconcile(memo, 7, 6, (position, 5), 1) == (replace(memo, seen=(position, 5)), 1)
    assert reconcile(memo, 7, 6, None, position)[1] is None


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"needs one entry per token; found columns of \[1, 2\]; pass"):
        token_strip([b"a", b"b"], [1, 2], [0, 1], [1], [False, False], selected=None, key="x")


def test_amounts_and_notes_travel_only_when_they_are_given(app):
    assert not {"shade", "note"} & set(json.loads(zlib.decompress(payload(app)))["tokens"])
    coloured = SCRIPT.replace('key="strip"', 'key="strip", amounts=[None, 0.5, 1][:n], notes=["no loss", "a", "b"][:n]')
    app = AppTest.from_string(coloured, default_timeout=20)
    app.session_state["pieces"] = [b"<bos>", b"The", b" cat"]
    tokens = json.loads(zlib.decompress(payload(app.run())))["tokens"]
    assert tokens["shade"] == [None, 50, 100] and tokens["note"] == ["no loss", "a", "b"]
    with pytest.raises(ValueError, match=r"needs one entry per token; found columns of \[1, 2\]"):
        token_strip([b"a"], [1], [0], [1], [False], selected=None, key="x", amounts=[0.1, 0.2])


# The browser's half: the same file that the page loads, run by node.

SOURCE = (Path(__file__).parents[2] / "app/components/token_strip/token_strip.js").read_text(encoding="utf-8")


def evaluate(expression):
    """The value of a JavaScript expression that sees the exported functions as `strip`."""
    return browser_half.evaluate(SOURCE, expression, "strip")


def test_javascript_reads_what_python_packs(app):
    numbers = list(payload(app))
    found = evaluate(f"strip.inflate(new Uint8Array({numbers}))")
    assert found == json.loads(zlib.decompress(payload(app)))
    assert found["tokens"]["runs"] == [[4, 5, "🙂"]]


def test_the_tooltip_says_position_id_bytes_and_characters(app):
    tokens = json.loads(zlib.decompress(payload(app)))["tokens"]
    tokens["hex"][2] = tokens["hex"][2][:5]  # as if the token had been too long to send all its bytes
    say = evaluate(
        f"(() => {{ const t = {json.dumps(tokens)}; const runs = strip.runOf(t);"
        " return t.id.map((_, i) => strip.describe(t, i, runs.get(i)).split('\\n')); })()"
    )
    assert say[0] == [
        "token 0 · id 100",
        "special token",
        "5 bytes 3C 62 6F 73 3E",
        "not in the text",
        "added to what you wrote",
    ]
    assert say[1] == ["token 1 · id 101", "3 bytes 54 68 65", "characters 0 to 2 of the text"]
    assert say[2] == ["token 2 · id 102", "4 bytes 20 63 …", "characters 3 to 6 of the text"]
    assert say[3] == ["token 3 · id 103", "byte 0A", "character 7 of the text"]
    assert say[4][1:] == ["2 bytes F0 9F", "character 8 of the text", "tokens 4 to 5 together make 🙂"]


def test_keys_walk_along_and_between_lines():
    # Two lines of three and two tokens, at 0, 50, 100 and 0, 90 pixels.
    boxes = "(i) => [[0, 0], [50, 0], [100, 1], [0, 30], [90, 30]][i]"
    walk = [
        ("ArrowRight", 0, 1),
        ("ArrowRight", 4, 4),
        ("ArrowLeft", 0, 0),
        ("ArrowLeft", 3, 2),
        ("Home", 3, 0),
        ("End", 1, 4),
        ("ArrowDown", 0, 3),
        ("ArrowDown", 2, 4),
        ("ArrowUp", 4, 2),
        ("ArrowUp", 3, 0),
        ("ArrowUp", 1, 1),
        ("ArrowDown", 4, 4),
        ("a", 2, None),
    ]
    calls = ", ".join(f"strip.move('{key}', {start}, 5, {boxes})" for key, start, _ in walk)
    assert evaluate(f"[{calls}]") == [end for _, _, end in walk]


def test_a_coloured_token_is_always_readable_and_says_its_note():
    stops = [[247, 251, 255], [91, 163, 207], [8, 48, 107]]
    found = evaluate(f"[-5, 0, 50, 90, 100, 120].map((a) => strip.paint(a, [255, 255, 255], {stops}))")
    assert found[0] == found[1] == ["rgb(255, 255, 255)", "#000"], "nothing is the page's own background"
    assert found[4] == found[5] == ["rgb(8, 48, 107)", "#fff"]
    assert found[2] == ["rgb(169, 207, 231)", "#000"]
    tokens = {"id": [3], "special": [0], "n_bytes": [1], "hex": ["61"], "start": [0], "end": [1], "added": [0]}
    said = evaluate(f"strip.describe({json.dumps(tokens | {'note': ['2.1 nats']})}, 0)").split("\n")
    assert said[:2] == ["token 0 · id 3", "2.1 nats"]
