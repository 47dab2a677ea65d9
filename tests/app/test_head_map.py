import json
import struct
import zlib

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.components._script import SHARED, source
from app.components.head_map import head_map
from app.components.head_map.head_map import _HERE, decode, encode, read_pin
from tests.app.browser_half import evaluate
from tests.app.heads_example import weights

SCRIPT = """
import streamlit as st
from app.components.head_map import head_map
from tests.app.heads_example import tokens, weights
state = st.session_state
n = state.get("n", 6)
state["mine"] = head_map(weights(1, n)[0], tokens(n), name="L18H6", selected=state.get("mine"), key="map",
                         label="Head L18H6", hide_first=state.get("hide", False))
st.text(f"pin={state['mine']}")
"""
JS = source(SHARED, _HERE / "plane.js")
SMALL = [
    [1.0, 0, 0, 0],
    [0.25, 0.75, 0, 0],
    [0.5, 0.125, 0.375, 0],
    [0.96, 0.01, 0.02, 0.01],
]  # exact in float32 or not


@pytest.fixture
def app():
    return AppTest.from_string(SCRIPT, default_timeout=20).run()


def parts(app):
    """The header with the pin, and the compressed body, of what travels."""
    message = app.get("bidi_component")[0].proto.bytes
    n = struct.unpack("<I", message[:4])[0]
    return json.loads(message[4 : 4 + n]), message[4 + n :]


def click(app, position, axis, time):
    app.session_state["map"] = {"selected": {"position": position, "axis": axis, "time": time}}
    return app.run()


def js_map(maps, **more):
    """A map as JavaScript has it after reading it."""
    head = {"tokens": [f"·{i}" for i in range(len(maps))], "hide_first": False, "upper": 1, "measure": "weight"} | more
    lower = [float(maps[q][k]) for q in range(len(maps)) for k in range(q + 1)]
    shown = head | {"n": len(maps), "most": more.get("most", head["upper"])}
    return f"Object.assign({json.dumps(shown)}, {{ weights: Float32Array.from({lower}) }})"


def test_the_browser_reads_the_very_float32_numbers(app):
    head, body = parts(app)
    assert head["selected"] is None
    found = evaluate(
        JS,
        f"(() => {{ const map = js.readMap(new Uint8Array({list(zlib.decompress(body))}));"
        " return [map.tokens, Array.from(map.weights), map.most, js.weight(map, 4, 2)]; })()",
    )
    exact = weights(1, 6)[0]
    assert found[0] == ["<s>a<b>c</b>$x$", "<F0 9F>", "<99 82>", "⏎", "·The", "<img·src=x·onerror=alert(1)>"]
    assert np.array_equal(np.array(found[1], np.float32), exact[np.tril_indices(6)])
    assert found[2] == 1 and np.float32(found[3]) == exact[4, 2]


def test_hiding_the_first_token_rescales_colours_and_leaves_the_numbers(app):
    app.session_state["hide"] = True
    app.run()
    _, body = parts(app)
    most = evaluate(JS, f"js.readMap(new Uint8Array({list(zlib.decompress(body))})).most")
    assert np.float32(most) == weights(1, 6)[0][:, 1:].max()
    map_ = js_map(SMALL, hide_first=True, most=0.75)
    assert evaluate(JS, f"[[1, 0], [1, 1], [2, 2], [0, 1]].map(([q, k]) => js.shade({map_}, q, k))") == [
        -1,
        255,
        128,
        -1,
    ]
    assert evaluate(JS, f"js.sentence({map_}, 3, 0)") == "token 3 ·3 looks at token 0 ·0: 0.960"


def test_a_cell_is_a_sentence():
    map_ = js_map(SMALL)
    assert evaluate(JS, f"[[2, 1], [1, 2]].map(([q, k]) => js.sentence({map_}, q, k))") == [
        "token 2 ·2 looks at token 1 ·1: 0.125",
        "token 1 ·1 cannot see token 2 ·2: it comes later",
    ]


def test_a_pinned_token_lists_where_it_looks_and_who_looks_at_it():
    map_ = js_map(SMALL)
    looks, seen = evaluate(JS, f"[js.around({map_}, [2, 'query']), js.around({map_}, [1, 'key'])]")
    assert [i for i, _ in looks["listed"]] == [0, 2, 1] and looks["sum"] == "sum 1.00"
    assert [i for i, _ in seen["listed"]] == [1, 2, 3] and seen["sum"] == "sum 0.885"  # .75 + .125 + .01
    assert looks["heading"] == ["token 2 ·2", "looks at, strongest first"]
    assert seen["heading"] == ["token 1 ·1", "is looked at by, strongest first"]


def test_a_long_list_is_summed_up_at_its_end():
    even = np.tril(np.ones((64, 64), np.float32)) / np.arange(1, 65)[:, None]
    found = evaluate(JS, f"js.around({js_map(even)}, [63, 'query'])")
    assert len(found["listed"]) == 48 and found["others"] == "and 16 more, together 0.250"
    sharp = np.tril(np.full((9, 9), 1e-4, np.float32)) + np.eye(9, dtype=np.float32)
    found = evaluate(JS, f"js.around({js_map(sharp)}, [8, 'query'])")  # five at least, however small
    assert [i for i, _ in found["listed"]] == [8, 0, 1, 2, 3] and found["others"] == "and 4 more, together 4.00×10⁻⁴"


def test_512_tokens_fit_the_wire():
    app = AppTest.from_string(SCRIPT, default_timeout=60)
    app.session_state["n"] = 512
    app.run()
    assert len(parts(app)[1]) < 500_000


def test_a_click_pins_and_leaves_the_payload_alone(app):
    before = parts(app)
    click(app, 2, "key", time=1)
    assert app.text[0].value == "pin=(2, 'key')" and parts(app) == before
    click(app, 4, "query", time=2)
    assert app.text[0].value == "pin=(4, 'query')" and parts(app) == before
    click(app, None, None, time=3)  # a second click on the same token
    assert app.text[0].value == "pin=None" and parts(app) == before
    app.session_state["mine"] = (1, "key")
    app.run()
    assert app.text[0].value == "pin=(1, 'key')" and parts(app)[0]["selected"] == [1, "key"]


def test_an_old_click_does_not_come_back_with_another_prompt(app):
    click(app, 5, "query", time=1)
    app.session_state["mine"] = None
    for n in (4, 6, 9):
        app.session_state["n"] = n
        app.run()
        assert app.text[0].value == "pin=None"


def test_a_pin_is_one_number_whatever_the_prompt():
    for pin in [None, (0, "query"), (0, "key"), (511, "key")]:
        assert decode(encode(pin, 512)) == pin
    assert encode((5, "query"), 5) == encode((-1, "key"), 5) == encode((1, "row"), 5) == 0
    assert encode((3, "key"), 4) == encode((3, "key"), 512)


@pytest.mark.parametrize(
    "found",
    [None, 3, "x", [], {"position": 1, "axis": "query"}, {"position": 1, "axis": "row", "time": 1}]
    + [{"position": True, "axis": "key", "time": 1}, {"position": 1.0, "axis": "key", "time": 1}]
    + [{"position": None, "axis": "key", "time": 1}, {"position": 1, "axis": ["key"], "time": 1}],
)
def test_what_is_not_a_pin_is_no_click(found):
    assert read_pin({"selected": found}) is None


def test_a_position_and_a_side_alone_are_a_click_too(app):
    app.session_state["map"] = {"selected": [3, "key"]}
    assert app.run().text[0].value == "pin=(3, 'key')"


@pytest.mark.parametrize(
    ("maps", "n", "more", "words"),
    [
        (np.ones((3, 4), np.float32), 3, {}, r"needs one row and one column per token; found \(3, 4\) for 3 tokens"),
        (np.ones((0, 0), np.float32), 0, {}, "needs one row and one column per token"),
        (np.zeros((513, 513), np.float32), 513, {}, "needs at most 512 tokens; found 513"),
        (-np.ones((2, 2), np.float32), 2, {}, "needs finite numbers from 0 up; found -1"),
        (np.full((2, 2), np.nan, np.float32), 2, {}, "needs finite numbers from 0 up"),
        (np.ones((2, 2), np.float32), 2, {"upper": 0}, "needs a range that ends above 0"),
    ],
)
def test_what_no_map_can_show_is_refused(maps, n, more, words):
    with pytest.raises(ValueError, match=words):
        head_map(maps, [b"a"] * n, name="L0H0", selected=None, key="x", label="x", **more)


def test_labels_are_thinned_and_the_pinned_one_stays():
    few, all_, tiny = evaluate(
        JS, "[js.labelled(0, 40, 4, [7]), js.labelled(0, 4, 20, [2]), js.labelled(0, 20, 2, [])]"
    )
    assert few == [0, 7, *range(12, 40, 3)]  # 12 pixels each; 6 and 9 would lie under 7, 3 under 0
    assert all_ == [0, 1, 2, 3]
    assert tiny == [0, 12, 18]  # the first one is moved into the picture, where 6 would stand


def test_keys_stay_where_the_query_can_see():
    walk = [("ArrowRight", (2, 1), [2, 2]), ("ArrowRight", (2, 2), [2, 2]), ("ArrowUp", (2, 2), [1, 1])]
    walk += [("ArrowDown", (3, 1), [3, 1]), ("ArrowLeft", (2, 0), [2, 0]), ("End", (2, 0), [2, 2])]
    walk += [("Home", (2, 2), [2, 0]), ("PageUp", (3, 3), [0, 0]), ("a", (1, 1), None)]
    calls = ", ".join(f"js.move('{key}', {list(start)}, 4)" for key, start, _ in walk)
    assert evaluate(JS, f"[{calls}, js.move('End', [0, 0], 4, true)]") == [*(end for _, _, end in walk), [3, 3]]
