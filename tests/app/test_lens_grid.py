"""The lens grid: what Python packs, what a click may say, what is refused, and the document of its own."""

import json
import re
import struct
import zlib

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.components.lens_grid import LensPicture, lens_grid, standalone_html
from app.components.lens_grid.digits import pack_integers, pack_numbers, pack_probabilities
from app.components.lens_grid.lens_grid import SCRIPT, STYLE, message, read_cell
from app.components.lens_grid.payload import pack
from app.ui.token_text import percent, visible
from tests.app import browser_half
from tests.app.lens_example import NASTY, lens, nasty

APP = """
import streamlit as st
from app.components.lens_grid import LensPicture, lens_grid
from tests.app.lens_example import lens
made = lens(n_rows=4, n_columns=st.session_state.get("n", 6))
if st.session_state.get("blank"):
    made["shade"] = made["shade"] * 0
found = lens_grid(LensPicture(**made), selected=st.session_state.get("mine"), key="grid")
st.session_state["mine"] = found
st.text(f"pinned={found}")
"""


def evaluate(expression):
    """The value of a JavaScript expression that sees the grid's exported functions as `grid`."""
    return browser_half.evaluate(SCRIPT, expression, "grid")


def split(data):
    """Header of the message and the bytes of the grid."""
    (n,) = struct.unpack_from("<I", data)
    return json.loads(data[4 : 4 + n]), zlib.decompress(data[4 + n :])


def message_of(app):
    return app.get("bidi_component")[0].proto.bytes


@pytest.fixture
def app():
    return AppTest.from_string(APP, default_timeout=20).run()


def click(app, row, column, time):
    app.session_state["grid"] = {"selected": {"row": row, "column": column, "time": time}}
    return app.run()


def sent(made):
    """The message that these arguments become, with nothing pinned."""
    return message(pack(LensPicture(**made)), 1, 1, None)


def test_the_browser_reads_what_python_packs():
    made = lens(n_rows=3, n_columns=4, k=2)
    made["hidden_after"] = {-1: 2, 1: 1}
    made["shade"][0, 1], made["shade"][2, 3] = np.nan, 1.0
    made["values"]["rank"][1, 2] = -1
    packed = sent(made)
    found = evaluate(
        f"(async () => {{ const m = grid.open(new Uint8Array({list(packed)}));"
        " const g = grid.readGrid(await grid.inflate(m.body)); const all = [...Array(g.cells).keys()];"
        " return [g, all.map((c) => grid.describe(g, c)), [...g.shade], grid.lines(g), m.selected]; })()"
    )
    header, cells, shade, lines, selected = found
    assert selected is None and header["rows"] == made["rows"] and header["positions"] == [0, 1, 2, 3]
    assert lines == [{"hidden": 2}, {"row": 0}, {"row": 1}, {"hidden": 1}, {"row": 2}]
    assert shade[1] == 255 and shade[11] == 254 and shade[0] == round(254 * float(made["shade"][0, 0]))
    values = made["values"]
    for i, cell in enumerate(cells):
        row, column = divmod(i, 4)
        chances = np.exp(made["top_log_probability"][row, column].astype(float))
        assert cell["where"] == made["rows"][row] and cell["position"] == f"token {column}"
        texts = [visible(made["pieces"](int(j))) for j in made["top_ids"][row, column]]
        assert cell["top"] == [[text, percent(p)] for text, p in zip(texts, chances, strict=True)]
        said = dict(cell["values"])
        assert said["probability of ·the"] == percent(float(values["probability of ·the"][row, column]))
        assert said["rank"] == ("none" if i == 6 else f"{values['rank'][row, column]:,}")
        number, unit = said["entropy"].split(" ")
        assert unit == "bits" and float(number) == float(f"{values['entropy'][row, column]:.3g}")
        assert (cell["target"] == "·the") == bool(made["target"][row, column])


def codes(packed):
    """Codes and description, back from the planes."""
    spec, planes = packed
    bytes_of = np.frombuffer(planes, np.uint8).reshape(spec["bytes"], -1).astype(int)
    return [int(c) for c in (bytes_of * 256 ** np.arange(spec["bytes"])[:, None]).sum(0)], spec


def formatted(packed, unit=""):
    found, spec = codes(packed)
    return evaluate(f"{found}.map((code) => grid.format(code, {json.dumps(spec)}, '{unit}'))")


def test_a_cell_that_is_not_read_yet_says_so_and_is_no_token():
    made = lens(n_rows=2, n_columns=2, k=2)
    made["top_ids"][:, 1], made["top_log_probability"][:, 1], made["shade"][:, 1] = -1, np.nan, np.nan
    packed = list(sent(made))
    said = evaluate(
        f"(async () => {{ const m = grid.open(new Uint8Array({packed}));"
        "const g = grid.readGrid(await grid.inflate(m.body));"
        "return [0, 1].map((cell) => [grid.describe(g, cell), grid.ariaLabel(g, cell), grid.tokenAt(g, cell)]) })()"
    )
    (known, _, _), (blank, aria, token) = said
    assert len(known["top"]) == 2 and len(known["values"]) == 4 and "not read" not in str(known)
    assert blank["top"] == [["not read yet", ""]] and blank["values"] == []
    assert aria.endswith(": not read yet") and token == ""


def test_probabilities_are_printed_as_everywhere_else():
    random = np.random.default_rng(1)
    spread = np.exp(-40 * random.random(3000))
    edges = [0.0, 1.0, 0.9994, 0.99951, 0.9996, 0.99999999, 0.001, 0.00101, 0.1, 0.09996, 1e-3, 9.994e-4, 1e-30, 1e-310]
    values = np.array([*edges, *spread])
    values = values[(values < 9.995e-4) | (values >= 1e-3)]  # between: `0.100 %` and `1.00×10⁻³`, both true
    expected = [percent(float(p)) if p >= 1e-300 else "0 %" for p in values]
    assert formatted(pack_probabilities(values)) == expected
    assert {"0 %", "100 %", "99.9 %", "> 99.9 %", "10.0 %", "0.100 %"} <= set(expected)


def test_numbers_keep_three_true_digits_and_their_sign():
    random = np.random.default_rng(2)
    values = np.array(
        [
            0,
            np.nan,
            999.6,
            -999.4,
            1e-3,
            12345.6,
            2.4e-7,
            -0.5,
            *random.normal(size=500) * 10.0 ** random.integers(-8, 9, 500),
        ]
    )
    shown = formatted(pack_numbers(values), "nats")
    assert shown[:8] == [
        *("0 nats", "none", "1,000 nats", "−999 nats", "0.00100 nats"),
        *("12,300 nats", "2.40×10⁻⁷ nats", "−0.500 nats"),
    ]
    superscripts = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-", ",")
    back = [float(text.removesuffix(" nats").translate(superscripts).replace("×10", "e")) for text in shown[8:]]
    assert back == [float(f"{value:.2e}") for value in values[8:]]


def test_ranks_are_exact_and_none_is_said():
    assert formatted(pack_integers(np.array([0, 7, 49_151, 200_000, -1]))) == ["0", "7", "49,151", "200,000", "none"]


def test_infinite_numbers_are_refused():
    with pytest.raises(ValueError, match="needs finite numbers; found an infinite one; pass NaN"):
        pack_numbers(np.array([1.0, np.inf]))


def test_a_whole_grid_is_a_small_message():
    made = lens(n_rows=31, n_columns=128, k=5)
    # This made-up lens compresses worse than SmolLM2's (69 KB), which with script and style must stay below 100 KB.
    assert len(sent(made)) < 87_000 and len(SCRIPT) + len(STYLE) < 30_000


def test_a_click_pins_and_leaves_the_message_alone(app):
    before = message_of(app)
    assert split(before)[0]["selected"] is None
    click(app, 2, 3, time=1)
    assert app.text[0].value == "pinned=(2, 3)" and message_of(app) == before
    app.run()  # a run for another reason: the caller passes the cell back
    assert app.text[0].value == "pinned=(2, 3)" and message_of(app) == before


def test_a_pin_from_outside_is_sent(app):
    click(app, 2, 3, time=1)
    app.session_state["mine"] = (1, 0)
    app.run()
    assert app.text[0].value == "pinned=(1, 0)" and split(message_of(app))[0]["selected"] == 1 * 6 + 0


def test_the_pin_stays_when_the_colours_change(app):
    click(app, 2, 3, time=1)
    app.session_state["blank"] = True
    app.run()
    assert app.text[0].value == "pinned=(2, 3)" and split(message_of(app))[0]["selected"] == 2 * 6 + 3


def test_a_click_on_the_picture_before_pins_nothing(app):
    app.session_state["n"] = 3
    click(app, 1, 4, time=1)  # column 4 was there when it was clicked; as a number, 1 * 6 + 4 would be another cell
    assert app.text[0].value == "pinned=None"


@pytest.mark.parametrize(
    "state",
    [
        None,
        "x",
        {},
        {"selected": None},
        {"selected": 3},
        {"selected": [1]},
        {"selected": [1, "2"]},
        {"selected": [True, 1]},
        {"selected": {"row": 1, "column": 2}},
        {"selected": {"row": 1, "column": 2.0, "time": 1}},
        {"selected": {"row": 1, "column": [2], "time": 1}},
        {"selected": {"row": 1, "column": 2, "time": None}},
    ],
)
def test_what_is_not_a_cell_is_no_click(state):
    assert read_cell(state, 4, 6) is None


@pytest.mark.parametrize("cell", [(-1, 0), (4, 0), (0, 6), (0, -1), (10**30, 0)])
def test_a_cell_outside_pins_nothing(app, cell):
    assert read_cell({"selected": {"row": cell[0], "column": cell[1], "time": 1}}, 4, 6) == (-1, 1)
    app.session_state["mine"] = cell
    assert app.run().text[0].value == "pinned=None"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shade": np.zeros((3, 4))}, r"needs arrays for 3 rows and 5 columns; found shade \(3, 4\); pass"),
        ({"columns": []}, "needs at least one row and one column; found 3 and 0; pass a token"),
        ({"positions": [1, 2]}, r"found positions \(2,\); pass"),
        ({"top_ids": np.zeros((3, 5), int)}, r"found top_ids \(3, 5\); pass"),
        ({"top_ids": np.zeros((3, 5, 0), int)}, r"found top_ids \(3, 5, 0\); pass"),
        ({"top_ids": np.zeros((3, 5, 3), int)}, r"found top_log_probability \(3, 5, 2\); pass"),
        ({"values": {"KL": np.zeros(5)}}, r"found KL \(5,\); pass"),
        ({"target": np.zeros((5, 3), bool)}, r"found target \(5, 3\); pass"),
        (
            {"target": np.zeros((3, 5), int)},
            r"needs a true or false target mark per cell; found int64; pass `rank == 0`",
        ),
        ({"shade": np.full((3, 5), 2.0)}, r"needs a shade from 0 to 1; found 2 to 2; divide"),
        ({"top_log_probability": np.zeros((3, 5, 2)) + [-2, -1]}, "needs the best token first; found a larger"),
        ({"top_log_probability": np.full((3, 5, 2), np.nan)}, "needs the best token first; found a larger or no"),
        ({"hidden_after": {2: 1}}, r"counted after a row from -1 to 1 .*; found 2: 1; leave it out"),
        ({"hidden_after": {0: 0}}, r"found 0: 0; leave"),
    ],
)
def test_what_does_not_belong_together_is_refused(change, says):
    made = lens(n_rows=3, n_columns=5, k=2) | change
    with pytest.raises(ValueError, match=says):
        lens_grid(LensPicture(**made), selected=None, key="x")


def test_the_document_holds_no_token_as_markup():
    page = standalone_html(
        LensPicture(**nasty() | {"label": "<b>Lens</b>"}), notes=["prompt <script>alert(1)</script>"]
    )
    assert "<title>&lt;b&gt;Lens&lt;/b&gt;</title>" in page and "<p>prompt &lt;script&gt;" in page
    assert page.count("<script") == 1 and page.count("</script") == 1
    assert not [piece for piece in NASTY if piece.startswith(b"<") and piece.decode() in page]
    # No address of anything outside, and no module syntax that a plain document could not run.
    assert not re.search(r"https?:|//www|@import|\bimport\b|\bexport\b", page)
