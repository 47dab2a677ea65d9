import tomllib
from pathlib import Path

import numpy as np
import pytest

from analyses.languages import LanguageCosts
from app.figures.languages import languages_figure
from app.figures.next_token import next_token_figure
from app.figures.sampling import sampling_figure
from app.figures.theme import CHANGE, OWN, STREAM, TARGET, TEXT, text_colour
from app.ui.token_text import visible

NASTY = [b" the", b" the", b"<b>", b"<a href='javascript:alert(1)'>x</a>", b"$x$", b"&lt;", b"\n", b"%{x}", b""]
LABELS = [visible(piece) for piece in NASTY]
PROBABILITY = np.array([0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.0005, 1e-9, 0.0])


def bars(figure):
    """What is drawn, as plain Python: Plotly packs arrays into base64 only when it writes JSON."""
    return [(trace.name, list(trace.y), list(trace.x), list(trace.text)) for trace in figure.data]


def test_equal_tokens_keep_a_row_each_and_nothing_is_markup():
    figure = next_token_figure(LABELS, PROBABILITY)
    [(_, rows, values, text)] = bars(figure)
    assert rows == list(range(9)) and values == PROBABILITY.tolist()
    assert text[:4] == ["50.0 %", "25.0 %", "10.0 %", "5.00 %"]
    assert text[6:] == ["5.00×10⁻⁴", "1.00×10⁻⁹", "0 %"]
    axis = figure.layout.yaxis
    assert list(axis.tickvals) == rows and axis.range == (8.5, -0.5)  # numeric, the most probable on top
    assert list(axis.ticktext) == [
        "·the",
        "·the",
        "&lt;b&gt;",
        "&lt;a·href='javascript:ale…",
        "$x$",
        "&amp;lt;",
        "⏎",
        "%{x}",
        "∅",
    ]
    assert figure.data[0].customdata[3][0] == "&lt;a·href='javascript:alert(1)'&gt;x&lt;/a&gt;"  # whole, in the hover
    assert "<b>" not in figure.to_json() and "<a" not in figure.to_json()


def test_the_probability_axis_is_fixed_and_says_its_unit():
    for probability in (PROBABILITY, PROBABILITY / 100):
        axis = next_token_figure(LABELS, probability).layout.xaxis
        assert axis.range == (0, 1.2) and axis.tickvals == (0, 0.25, 0.5, 0.75, 1) and axis.tickformat == ".3~%"
        assert axis.title.text == "probability"
    assert next_token_figure(LABELS, PROBABILITY, upper=0.1).layout.xaxis.range == pytest.approx((0, 0.12))


def test_target_and_ids():
    figure = next_token_figure(["a", "b"], np.array([0.6, 0.4]), ids=[7, 8], target=1)
    assert figure.data[0].marker.color == (STREAM, TARGET)
    assert [list(row) for row in figure.data[0].customdata] == [["a", "<br>id 7"], ["b", "<br>id 8"]]


def test_the_page_shows_through():
    layout = next_token_figure(["a"], np.array([1.0])).layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_text_colours_are_those_of_the_theme():
    config = tomllib.loads((Path(__file__).parents[2] / "streamlit_config.toml").read_text())
    assert {mode: config["theme"][mode]["textColor"] for mode in ("light", "dark")} == TEXT


def test_every_text_of_a_figure_takes_the_colour(costs):
    figure = text_colour(languages_figure(costs), dark=True)
    trace, layout = figure.data[0], figure.layout
    fonts = [layout.font, layout.legend.font, layout.xaxis.tickfont, layout.xaxis.title.font, layout.yaxis.tickfont]
    fonts += [trace.textfont, layout.annotations[0].font]
    assert {font.color for font in fonts} == {TEXT["dark"]}
    assert trace.marker.color[0] == STREAM  # the bars mean something and keep theirs


def test_sampling_shows_before_after_and_what_was_excluded():
    base, new = np.array([0.5, 0.3, 0.2]), np.array([0.625, 0.375, 0.0])
    figure = sampling_figure(["·a", "·b", "<i>"], base, new)
    before, after, gone = bars(figure)
    assert before == ("the model's own", [0, 1, 2], base.tolist(), ["50.0 %", "30.0 %", "20.0 %"])
    assert after[2][:2] == [0.625, 0.375] and np.isnan(after[2][2]) and after[3] == ["62.5 %", "37.5 %", ""]
    assert np.isnan(gone[2][:2]).all() and gone[2][2] == 0.2 and gone[3] == ["", "", "excluded"]
    assert [trace.marker.color for trace in figure.data[:2]] == [STREAM, CHANGE]
    assert figure.data[2].marker.pattern.shape == "/" and figure.data[2].marker.line.color == CHANGE
    # The hatched bar stands where the new one would.
    assert [trace.offsetgroup for trace in figure.data] == ["before", "after", "after"]
    assert figure.layout.barmode == "group" and figure.layout.yaxis.ticktext == ("·a", "·b", "&lt;i&gt;")


def test_without_exclusions_the_legend_does_not_speak_of_them():
    p = np.array([0.5, 0.5])
    assert [trace.showlegend for trace in sampling_figure(["a", "b"], p, p).data][2] is False
    assert sampling_figure(["a", "b"], p, np.array([1.0, 0.0])).data[2].showlegend is True


@pytest.fixture
def costs():
    n_tokens, n_characters, n_bytes = np.array([24, 48, 5]), np.array([100, 120, 12]), np.array([100, 360, 12])
    return LanguageCosts(
        name=("English", "Hindi", "your <b>prompt</b>"),
        n_tokens=n_tokens,
        n_characters=n_characters,
        n_bytes=n_bytes,
        tokens_per_character=n_tokens / n_characters,
        tokens_per_byte=n_tokens / n_bytes,
        relative_to_english=np.array([1.0, 2.0, np.nan]),
    )


def test_languages_compare_the_same_content_and_set_the_own_prompt_apart(costs):
    figure = languages_figure(costs, own="your <b>prompt</b>")
    [(_, rows, values, text)] = bars(figure)
    assert rows == [0, 1, 2] and values[:2] == [1.0, 2.0] and np.isnan(values[2]) and text == ["1.00", "2.00", ""]
    assert figure.data[0].marker.color == (STREAM, STREAM, OWN)
    assert [(note.y, note.text) for note in figure.layout.annotations] == [(2, "not the same content")]
    assert figure.layout.xaxis.title.text == "tokens for the same content (English = 1)"
    assert figure.layout.yaxis.ticktext[2] == "your &lt;b&gt;prompt&lt;/b&gt;"
    assert figure.data[0].customdata[1][1] == "48 tokens, 120 characters, 360 bytes"


@pytest.mark.parametrize(
    ("measure", "axis", "upper", "second"),
    [
        ("tokens_per_byte", "tokens per UTF-8 byte", 0.6, "0.133"),
        ("tokens_per_character", "tokens per character", 0.6, "0.400"),
    ],
)
def test_languages_per_byte_and_per_character(costs, measure, axis, upper, second):
    figure = languages_figure(costs, measure=measure)
    assert figure.layout.xaxis.title.text == axis
    assert figure.layout.xaxis.range == pytest.approx((0, 1.2 * upper))
    assert figure.data[0].text[1] == second and not figure.layout.annotations


def test_refusals(costs):
    with pytest.raises(ValueError, match=r"needs one value per label; found 1 for 2; pass"):
        next_token_figure(["a", "b"], np.array([1.0]))
    with pytest.raises(ValueError, match=r"needs one value per label; found 3 for 2; pass"):
        sampling_figure(["a", "b"], np.array([0.5, 0.5]), np.ones(3) / 3)
    with pytest.raises(ValueError, match=r"needs one of relative_to_english, .*; found 'n_tokens'; choose"):
        languages_figure(costs, measure="n_tokens")
