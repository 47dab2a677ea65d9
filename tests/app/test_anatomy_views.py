"""The page "Anatomy": nothing is given away before the answer, and every number on it is the library's."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from analyses import count_parameters, kv_cache_bytes
from analyses._architecture_known import known_architectures
from analyses._architecture_shapes import stream_shapes
from app.figures.anatomy import grouped, parts_figure, stream_figure
from app.ui.saved_view import CHOICES
from app.views.anatomy_choices import OTHERS, SOURCES, open_model
from app.views.anatomy_reveal import Guess, _times
from app.views.anatomy_words import operations, write_bytes
from tests.analyses.architectures import CASES
from tests.app.driver import ROOT, fine, said, sentence
from tests.app.stub import model_info

KNOWN = known_architectures()
SMOL = dict(n_layers=30, n_heads=9, n_kv_heads=3, d_model=576, d_head=64, d_mlp=1536, d_vocab=49152, n_ctx=8192)
APP = str(ROOT / "tests" / "browser" / "apps" / "anatomy.py")  # the page with hand-made facts around it


def page(**address):
    app = AppTest.from_file(APP, default_timeout=60)
    for name, value in address.items():
        app.query_params[name] = value
    return fine(app.run())


def tables(app):
    return "\n".join(table.value.to_string() for table in app.table).replace("\\", "")


def everything(app):
    """All text on the page, figures and code included."""
    figures = [chart.proto.spec for chart in app.get("plotly_chart")]
    return "\n".join([sentence(app), said(app), tables(app), *figures, *(code.value for code in app.code)])


@pytest.mark.parametrize("detail", ["Shapes", "Fields", "Memory", "Comparison"])
def test_nothing_is_given_away_before_the_answer_is_revealed(detail):
    shown = everything(page(detail=detail, beside="GPT-2"))
    for secret in ("134,515,008", "134515008", "59.2", "22.5", "23,040", "79,626,240", "124,439,808"):
        assert secret not in shown
    assert "Guess first" in shown


def test_the_answer_says_how_far_off_the_guess_was():
    app = page(revealed="true", guess_mlp="50", guess_total="135", guess_cache="45")
    assert sentence(app) == (
        "134,515,008 parameters; the MLPs hold 59.2 % (you said 50 %). One token adds 22.5 KiB = 23.0 kB to the cache."
    )
    shown = tables(app)
    assert "9.2 points too low" in shown and "2 times too much" in shown
    assert "L × 3 × d × f = 30 × 3 × 576 × 1,536" in shown and "79,626,240" in shown
    assert "2 × 30 × 3 × 64 × 2" in shown and "23,040 bytes" in shown


def test_how_far_off():
    assert [_times(guess, 100.0) for guess in (None, 0.0, 100.2, 200.0, 25.0)] == [
        "–",
        "all of it",
        "nothing",
        "2 times too much",
        "4 times too little",
    ]
    assert Guess(None, None, None) == Guess(None, None, None)


def test_bytes_are_written_in_both_systems_and_never_mixed():
    assert write_bytes(kv_cache_bytes(KNOWN["Llama 3 70B"].config, 131_072)) == "40.0 GiB = 42.9 GB"
    assert write_bytes(327_680) == "320 KiB = 328 kB"
    assert [write_bytes(n) for n in (0, 1, 1023, 1024)] == ["0 bytes", "1 byte", "1,023 bytes", "1.00 KiB = 1.02 kB"]
    assert write_bytes(1023 * 1024) == "1,023 KiB = 1.05 MB"
    assert write_bytes(16_060_522_496) == "15.0 GiB = 16.1 GB"
    assert [operations(n) for n in (5, 835e6, 6.84e12)] == ["5 FLOP", "835 MFLOP", "6.84 TFLOP"]


def test_the_parts_that_are_drawn_sum_to_the_whole():
    for config in [*CASES.values(), *(known.config for known in KNOWN.values())]:
        count = count_parameters(config)
        assert sum(grouped(count).values()) == count.total
    counts = {name: count_parameters(KNOWN[name].config) for name in ("GPT-2", "Mixtral 8x7B v0.1")}
    figure = parts_figure(counts)
    for row in (0, 1):
        assert sum(trace.x[row] for trace in figure.data) == pytest.approx(100)
    assert figure.layout.xaxis.range == (0, 100)
    mlp = next(trace for trace in figure.data if trace.name == "MLP")
    assert mlp.x[0] == pytest.approx(100 * counts["GPT-2"].dense_mlp / 124_439_808)
    nasty = parts_figure({"<b>x</b>": counts["GPT-2"]})
    assert "<b>" not in json.dumps(nasty.to_dict()["layout"], default=str)


def test_the_stream_is_drawn_with_its_shapes():
    shapes = stream_shapes(KNOWN["SmolLM2-135M"].config, 5)
    figure = stream_figure(shapes, 30)
    texts = [note.text for note in figure.layout.annotations if note.text]
    assert "<b>K, V</b>  (1, 3, 5, 64)" in texts and "a block, 30 times, one after the other" in texts
    assert [text for text in texts if "logits" in text] == ["<b>logits</b>  (1, 5, 49,152)"]
    ys = [note.y for note in figure.layout.annotations if note.text]
    assert min(b - a for a, b in zip(sorted(ys), sorted(ys)[1:], strict=False)) > 0.4  # no text on another


def test_the_prompt_is_in_the_shapes():
    assert "(1, 5, 576)" in tables(page())
    nasty = page(prompt="🙂 <s>a<b>c</b>$x$")
    assert "(B, T) = (1, " in tables(nasty)
    empty = page(prompt="")
    assert "Your prompt is empty" in said(empty) and "(1, 1, 576)" in tables(empty)


def test_the_open_model_by_its_facts():
    embedded = model_info("smollm2-135m-instruct", n_parameters=134_515_008, **SMOL)
    assert open_model(embedded.config).count.total == 134_515_008
    gpt2 = dict(
        family="gpt2", n_layers=12, n_heads=12, n_kv_heads=12, d_model=768, d_head=64, d_mlp=3072, d_vocab=50257
    )
    facts = model_info("gpt2", n_ctx=1024, n_parameters=124_439_808, gated_mlp=False, **gpt2).config
    assert open_model(facts).count.position == 1024 * 768


def test_an_open_model_whose_facts_do_not_give_its_parameters_is_not_counted():
    with pytest.raises(ValueError, match="found facts that give 134,515,008 of its 140,000,000 parameters"):
        open_model(model_info("odd", n_parameters=140_000_000, **SMOL).config)
    with pytest.raises(ValueError, match="found model_type 'mamba'"):
        open_model(model_info("odd", family="mamba").config)


def test_an_open_local_model_is_read_from_its_folder(tmp_path):
    config = CASES["mixtral odd"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    total = count_parameters(config).total
    opened = open_model(model_info(str(tmp_path), kind="local", family="mixtral", n_parameters=total).config)
    assert opened.count.experts > opened.count.active_experts > 0


def test_a_pasted_config_is_counted_and_a_hostile_one_is_explained():
    app = page(revealed="true")
    app.text_area(key="anatomy.pasted").set_value(json.dumps(dict(KNOWN["Llama 3 8B"].config)))
    fine(app.run())
    assert app.selectbox(key="config").value == "my own config"
    assert not app.toggle(key="revealed").value and "8,030,261,248" not in everything(app)
    app.toggle(key="revealed").set_value(True)
    assert "8,030,261,248 parameters" in sentence(fine(app.run()))
    app.text_area(key="anatomy.pasted").set_value('{"model_type": "llama", "hidden_size": -1e400, "<b>$x$": 1}')
    fine(app.run())
    assert "Needs hidden_size to be a whole number from 1 to 1,000,000,000; found -inf; correct that field." in said(
        app
    )
    assert "Nothing is counted yet" in sentence(app) and "8,030,261,248" not in everything(app)
    app.text_area(key="anatomy.pasted").set_value(json.dumps(dict(model_type="llama") | {"<s>$x$": 1}))
    fine(app.run())
    assert "Not known here, and not in the count: '<s>$x$'." in said(app)


def test_a_memory_calculator_with_the_numbers_of_the_library():
    app = page(config="Llama 3 70B", revealed="true", detail="Memory", cache_tokens="131072", cache_users="3")
    shown = tables(app)
    assert "40.0 GiB = 42.9 GB" in shown and "120 GiB = 129 GB" in shown and "960 GiB = 1.03 TB" in shown
    assert "131 GiB = 141 GB" in shown and "none" in shown
    assert "3,145,728" not in shown
    assert "context of 8,192 tokens; 131,072 is more than it was made for" in said(app)


def test_two_configurations_side_by_side():
    app = page(config="Llama 3 70B", beside="Llama 2 7B", revealed="true", detail="Comparison")
    shown = tables(app)
    assert "70,553,706,496" in shown and "6,738,415,616" in shown
    assert "320 KiB = 328 kB" in shown and "512 KiB = 524 kB" in shown


def test_the_python_of_the_page_gives_its_numbers(capsys):
    code = page(config="GPT-2", revealed="true").code[-1].value
    assert "count_parameters" in code and "n_embd" in code
    body = code.partition("config = ")
    exec(
        compile("from analyses import count_parameters, kv_cache_bytes\nconfig = " + body[2], "exported.py", "exec"), {}
    )
    assert capsys.readouterr().out.rstrip().endswith(f"124439808 124439808 {56669184 / 124439808} 36864")


def test_a_saved_view_knows_every_choice_of_the_page():
    assert all(CHOICES["config"](source) for source in SOURCES)
    assert all(CHOICES["beside"](source) for source in OTHERS)
    assert not CHOICES["config"]("another model") and not CHOICES["revealed"]("yes")


def test_the_operations_of_one_more_token_are_those_of_the_printed_formula():
    """By hand for the embedded model: block matrices 106,168,320, V x d = 49,152 x 576, H x h = 576, thirty layers."""
    shown = tables(page(revealed="true", detail="Memory"))
    by_hand = 2 * (106_168_320 + 49_152 * 576) + 4 * 576 * 30 * 8_192
    assert operations(by_hand) in shown and "+ 4 × H × h × tokens seen, summed over layers, at 8,192 tokens" in shown
    assert operations(2 * (106_168_320 + 49_152 * 576) + 4 * 576 * 8_192) not in shown, "one layer alone"
    assert "does not fit" not in shown
    assert "does not fit" in tables(page(revealed="true", detail="Memory", cache_users="900000"))
