import json
import struct
import zlib

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.components._script import SHARED, source
from app.components.head_grid import head_grid
from app.components.head_grid.head_grid import _HERE, encode, read_head
from tests.app.browser_half import evaluate
from tests.app.heads_example import pack, sheet, weights

SCRIPT = """
import numpy as np
import streamlit as st
from app.components.head_grid import head_grid
from tests.app.heads_example import sheet
made = sheet(n_layers=3, n_heads=2, n_tokens=5)
state = st.session_state
order = list(state.get("order", range(6)))
made |= {"packed": made["packed"][order], "heads": [made["heads"][i] for i in order]}
made |= {name: made[name][order] for name in ("tint", "ranks")}
made |= {"scores": {name: values[order] for name, values in made["scores"].items()}}
state["mine"] = head_grid(**made, selected=state.get("mine"), ticked=state.get("ticked", ()), key="sheet",
                          hide_first=state.get("hide", False))
st.text(f"opened={state['mine']}")
"""
JS = source(SHARED, _HERE / "sheet.js")


@pytest.fixture
def app():
    return AppTest.from_string(SCRIPT, default_timeout=20).run()


def parts(app):
    """The pictures' message and the sheet's, as they travel."""
    return [element.proto.bytes for element in app.get("bidi_component")]


def content(app):
    return json.loads(zlib.decompress(parts(app)[1]))


def opened(message):
    n = struct.unpack("<I", message[:4])[0]
    return json.loads(message[4 : 4 + n]), np.frombuffer(zlib.decompress(message[4 + n :]), np.uint8)


def click(app, layer, head, time):
    app.session_state["sheet"] = {"selected": {"layer": layer, "head": head, "time": time}}
    return app.run()


def test_a_picture_is_the_lower_triangle_row_by_row():
    maps = np.array([[[1, 0, 0], [0.2, 0.8, 0], [0.5, 0.1, 0.4]]], np.float32)
    packed = pack(maps)
    assert packed.tolist() == [[255, 51, 204, 128, 26, 102]]  # round(255 * weight), by hand
    # In the browser: 3 x 3 pixels are the map; 2 x 2 are the largest of what each covers; 6 x 6 repeat every cell.
    same, small, big = evaluate(
        JS, f"[3, 2, 6].map((size) => Array.from(js.reduce({packed[0].tolist()}, 0, 3, size, false)))"
    )
    assert same == [255, -1, -1, 51, 204, -1, 128, 26, 102]
    assert small == [255, -1, 128, 204]
    assert np.array_equal(np.array(big).reshape(6, 6), np.kron(np.array(same).reshape(3, 3), np.ones((2, 2))))


def test_hiding_the_first_column_changes_colours_and_no_number():
    packed = [255, 51, 204, 128, 26, 102]
    found = evaluate(
        JS,
        f"(() => {{ const b = {packed}; const image = js.reduce(b, 0, 3, 3, true);"
        " const inks = Uint32Array.from({ length: 256 }, (_, i) => i);"
        " const s = { size: 3, n_tokens: 3, block: 1, hide_first: true };"
        " return [Array.from(image), js.largest(b, 0, 3, true), js.largest(b, 0, 3, false),"
        "  Array.from(js.colour(image, 204, inks, 1000, 2000)), js.pairText(s, b, 0, [0.1, 0.5], 3)]; })()",
    )
    image, largest, all_of_them, colours, said = found
    assert image == [-2, -1, -1, -2, 204, -1, -2, 26, 102]
    assert (largest, all_of_them) == (204, 255)
    assert colours == [2000, 1000, 1000, 2000, 255, 1000, 2000, 33, 128]  # 255 / 204 times 26 and 102
    assert said == "token 1 looks at token 0: 0.20"


def test_the_browser_shrinks_pictures_as_numpy_does():
    packed = pack(weights(1, 23))[0]
    square = np.full((23, 23), -1)
    square[np.tril_indices(23)] = packed
    found = evaluate(JS, f"Array.from(js.reduce({packed.tolist()}, 0, 23, 7, false))")
    spans = [slice(i * 23 // 7, (i + 1) * 23 // 7) for i in range(7)]
    wanted = [[square[rows, columns].max() for columns in spans] for rows in spans]
    assert np.array_equal(np.array(found).reshape(7, 7), wanted)


def test_270_heads_of_128_tokens_fit_the_wire():
    made = sheet()
    assert made["packed"].shape == (270, 8256)
    app = AppTest.from_string(
        "from app.components.head_grid import head_grid\nfrom tests.app.heads_example import sheet\n"
        "head_grid(**sheet(), selected=None, key='sheet')",
        default_timeout=60,
    ).run()
    pictures, small = parts(app)
    assert len(pictures) + len(small) < 1_100_000 - 60_000  # beside them travel both scripts
    assert len(small) < 20_000
    assert np.array_equal(opened(pictures)[1].reshape(270, 8256), made["packed"])


def test_sorting_marking_tinting_and_opening_do_not_resend_the_pictures(app):
    pictures, small = parts(app)
    assert content(app)["by_layer"]
    for change in ({"order": [5, 3, 1, 0, 2, 4]}, {"ticked": [(1, 1)]}, {"hide": True}):
        for name, value in change.items():
            app.session_state[name] = value
        app.run()
        assert parts(app)[0] == pictures and parts(app)[1] != small
        small = parts(app)[1]
    found = content(app)
    assert not found["by_layer"] and found["heads"][0] == [2, 1] and found["index"] == [5, 3, 1, 0, 2, 4]
    assert found["heads"][found["ticked"][0]] == [1, 1]
    made = sheet(n_layers=3, n_heads=2, n_tokens=5)
    stored = opened(pictures)[1].reshape(6, 15)
    for (layer, head), index in zip(found["heads"], found["index"], strict=True):
        assert np.array_equal(stored[index], made["packed"][made["heads"].index((layer, head))])
    click(app, 1, 0, time=1)
    assert app.text[0].value == "opened=(1, 0)" and parts(app)[1] == small
    app.session_state["mine"] = (0, 1)
    app.run()
    assert app.text[0].value == "opened=(0, 1)" and content(app)["selected"] == [0, 1]


def test_an_old_click_does_not_come_back_with_another_order(app):
    click(app, 2, 1, time=5)
    app.session_state["mine"] = (0, 0)
    app.run()
    for order in ([5, 4, 3, 2, 1, 0], [0, 1], [5, 4, 3, 2, 1, 0]):
        app.session_state["order"] = order
        app.run()
        assert app.text[0].value == "opened=(0, 0)"
    click(app, 2, 1, time=6)
    assert app.text[0].value == "opened=(2, 1)"


def test_an_opened_head_that_the_sheet_does_not_show_stays_open(app):
    click(app, 2, 1, time=5)
    app.session_state["order"] = [0, 1]
    app.run()
    assert app.text[0].value == "opened=(2, 1)"


@pytest.mark.parametrize(
    "state",
    [None, "x", {}, {"selected": None}, {"selected": 3}, {"selected": [1, "0"]}, {"selected": {"layer": 1, "head": 0}}]
    + [{"selected": {"layer": 1.0, "head": 0, "time": 1}}, {"selected": {"layer": True, "head": 0, "time": 1}}],
)
def test_what_is_not_a_head_is_no_click(state):
    assert read_head(state, [(1, 0)]) is None


def test_a_head_of_another_sheet_opens_nothing():
    state = {"selected": {"layer": 7, "head": 0, "time": 4}}
    assert read_head(state, [(1, 0)]) == (-1, 4)
    assert read_head(state, [(1, 0)], seen=(encode(7, 0), 4)) == (encode(7, 0), 4)
    assert encode(10**30, 0) == encode(0, -1) == -1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 6}, "needs pictures of 6 heads with 21 bytes each; found uint8"),
        ({"heads": [(0, 0)] * 6}, "needs each head once"),
        ({"heads": [], "packed": np.zeros((0, 15), np.uint8)}, "needs at least one head"),
        ({"tint": [2.0] * 6}, "needs a tint from 0 to 1; found 2 to 2"),
        ({"tint": [0.5]}, r"needs one number for each of 6 heads; found \{'tint': 1\}"),
        ({"scores": {"a": [np.inf] * 6}}, "needs finite numbers"),
        ({"ranks": [-1] * 6}, "needs ranks from 0"),
        ({"block": 4, "n_tokens": 21}, "needs 5 blocks that hold all tokens; found 21 tokens in blocks of 4"),
    ],
)
def test_what_does_not_belong_together_is_refused(change, words):
    made = sheet(n_layers=3, n_heads=2, n_tokens=5) | change
    with pytest.raises(ValueError, match=words):
        head_grid(**made, selected=None, key="x")


def test_a_score_that_is_not_defined_is_said_so():
    made = {"heads": [[18, 6], [0, 0]], "scores": [{"name": "induction", "values": [0.89249, None]}], "ticked": [1]}
    made |= {"ranks": [0, 3], "tint_label": "induction"}
    assert evaluate(JS, f"[0, 1].map((i) => js.ariaLabel({json.dumps(made)}, i))") == [
        "L18H6, induction 0.892, rank by induction 0 (the highest)",
        "L0H0, induction not defined, rank by induction 3 (3 heads score higher), marked for ablation",
    ]


def test_numbers_have_three_digits():
    shown = {0: "0", 1: "1.00", 0.9996: "1.00", 0.09996: "0.100", 0.0231: "0.0231", 12.345: "12.3", 1234: "1,230"}
    shown |= {2.314e-5: "2.31×10⁻⁵", -0.5: "−0.500", 999.6: "1,000"}
    assert evaluate(JS, f"{list(shown)}.map(js.digits)") == list(shown.values())


def test_the_sheet_says_what_block_maxima_are():
    made = {"size": 4, "block": 3, "n_tokens": 11, "hide_first": True}
    packed = list(range(10))
    low, high, what = evaluate(JS, f"js.range({json.dumps(made)})")
    assert (low, high) == ("0", "each head's own largest")
    assert what == "largest weight in 3 × 3 tokens, tokens 0 to 2 hidden"
    say = f"[[0.3, 0.9], [0.9, 0.9], [0.9, 0.1]].map((at) => js.pairText({json.dumps(made)}, {packed}, 0, at, 4))"
    assert evaluate(JS, say) == [
        "tokens 9 to 10 look at tokens 3 to 5: at most 0.03",
        "tokens 9 to 10 look at tokens 9 to 10: at most 0.04",
        "comes later: not visible to this token",
    ]


def test_the_whole_sheet_fits_a_screen_where_it_can():
    # 270 heads on 1240 x 626 pixels; on a phone one panel, as wide as the phone.
    cell, panels, width, height = evaluate(
        JS,
        "(() => { const cell = js.fitting(270, 9, true, 1240, 626); const p = js.arrange(270, 9, true, cell, 1240, 626);"
        " return [cell, p.panels, p.width, p.height]; })()",
    )
    assert cell >= 32 and panels >= 2 and width <= 1240 and height <= 626
    narrow = evaluate(JS, "(() => { const p = js.arrange(270, 9, true, 28, 340, 500); return [p.panels, p.width]; })()")
    assert narrow == [1, 40 + 9 * 32]
    # Seven heads in lines of three: every one has a place of its own.
    places = evaluate(JS, "(() => { const p = js.arrange(7, 3, false, 28, 340, 500);"
                      " return [0, 1, 2, 3, 4, 5, 6].map((i) => [p.x(i), p.y(i)]); })()")  # fmt: skip
    assert len({tuple(place) for place in places}) == 7 and places[3][0] == 0 and places[3][1] > places[0][1]


def test_keys_walk_the_sheet():
    walk = [("ArrowRight", 0, 1), ("ArrowRight", 2, 2), ("ArrowDown", 1, 4), ("ArrowDown", 5, 6), ("ArrowUp", 6, 3)]
    walk += [("Home", 5, 3), ("End", 3, 5), ("End", 6, 6), ("PageDown", 0, 6), ("PageUp", 6, 0), ("a", 2, None)]
    calls = ", ".join(f"js.move('{key}', {start}, 7, 3)" for key, start, _ in walk)
    assert evaluate(JS, f"[{calls}, js.move('End', 0, 7, 3, true)]") == [*(end for _, _, end in walk), 6]
