"""What the page "Generate" says and draws, by hand-made results."""

from types import SimpleNamespace

import numpy as np
import pytest

from app.figures.generation import uncertainty_figure
from app.views.generate_chat import difference_words
from app.views.generate_choices import Settings
from app.views.generate_rows import finding_words, note, rows_of, strip_columns, surprise_bits
from tests.app.stub import IDS, model_info

PARIS, FRANCE = IDS[b" Paris"], IDS[b" France"]


def stream_of(row_ids, probability, entropy_bits, *, kept=(), stopped=False, ended=(True, False)):
    ids = np.array(row_ids, np.int32)
    fields = {
        "row_ids": ids,
        "row_log_probability": np.log(np.array(probability, np.float32)),
        "row_rank": np.where(ids < 0, -1, 0).astype(np.int32),
        "row_entropy_nats": (np.array(entropy_bits) * np.log(2)).astype(np.float32),
        "row_text": ("one", "two")[: len(ids)],
        "row_ended": ended[: len(ids)],
    }
    note = SimpleNamespace(kept=kept)
    return SimpleNamespace(fields=fields, note=note, running=False, stopped=stopped, failure=None)


def test_the_sentence_names_the_least_certain_token():
    one = stream_of([[5, 6, 7]], [[0.5, 0.25, 0.9]], [[1.0, 4.1, 0.2]])
    said = "3 tokens; the least certain choice was token 1 (4.1 bits). The last one is an end mark."
    assert finding_words(one, rows_of(one)) == said
    two = stream_of([[5, -1], [6, 7]], [[0.5, 1.0], [0.9, 0.1]], [[1.0, 0.0], [0.5, 2.5]])
    assert finding_words(two, rows_of(two)) == (
        "2 samples, 3 tokens; the least certain choice was token 1 of sample 1 (2.5 bits)."
    )
    kept = stream_of([[5]], [[0.5]], [[1.0]], kept=(8, 9), stopped=True, ended=(False,))
    assert finding_words(kept, rows_of(kept)) == (
        "Stopped after 1 token, after 2 that were kept; the least certain choice was token 2 (1.0 bits)."
    )


def test_the_strip_is_dark_where_the_token_was_probable_and_kept_ones_have_no_colour():
    vocabulary = model_info().vocabulary
    (row,) = rows_of(stream_of([[PARIS]], [[0.773]], [[2.0]], kept=(FRANCE,)))
    columns = strip_columns(vocabulary, row)
    assert columns["pieces"] == [b" France", b" Paris"]
    assert columns["amounts"] == [None, pytest.approx(0.773)]
    assert (columns["starts"], columns["ends"]) == ([0, 7], [7, 13])
    assert columns["added"] == [True, False]
    assert note(vocabulary, row, 0) == "probability 77.3 % · the first choice\nentropy before it 2.00 bits"


def test_a_surprise_is_minus_log2_and_the_axis_reaches_it():
    (row,) = rows_of(stream_of([[5, 6]], [[0.5, 1 / 1024]], [[1.0, 3.0]]))
    assert surprise_bits(row) == pytest.approx([1.0, 10.0], abs=1e-5)
    figure = uncertainty_figure(["a", "a"], np.array([1.0, 3.0]), np.array([1.0, 10.0]), upper=8.0, first=2)
    assert list(figure.data[0].x) == [2, 3]
    assert list(figure.data[1].y) == [1.0, 10.0]
    assert figure.layout.yaxis.range[1] >= 10
    assert list(figure.layout.xaxis.ticktext) == ["2 a", "3 a"]


def test_greedy_settings_leave_out_what_has_no_effect():
    greedy = Settings("Greedy", 20, 1.3, 5, 0.9, 7, 4)
    assert greedy.params == {"max_new_tokens": 20, "alternatives": 8}
    sampled = Settings("Sampled", 20, 1.3, 5, 0.9, 7, 4)
    assert sampled.params["seed"] == 7
    assert sampled.words == "sampled at temperature 1.3, top-k 5, top-p 0.9, seed 7, 4 samples, up to 20 tokens"
    assert Settings("Sampled", 20, 0.0, 5, 0.9, 7, 4).params == greedy.params


def test_raw_and_chat_are_told_apart_by_their_tokens_and_their_ends():
    raw = SimpleNamespace(ids=(1, 2), special=(False, False))
    chat = SimpleNamespace(ids=(9, 1, 2, 9, 3), special=(True, False, False, True, False))
    said = difference_words(raw, chat, (False, True))
    assert said.startswith("The template adds 3 tokens, 2 of them special;")
    assert said.endswith("in the template the model ends its turn by itself.")
    assert difference_words(raw, chat, (False, False)).endswith("Both were cut off at the number of tokens.")
