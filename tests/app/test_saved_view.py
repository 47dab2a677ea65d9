"""A view saved as a file opens as it was; anything else changes nothing and is said in one sentence."""

import json

import pytest

from app.ui.saved_view import read_view, write_view


def test_a_view_comes_back_as_it_was():
    state = {"bos": "own", "chat": False, "after": 3, "temperature": 0.7, "word": "übung", "private": object()}
    text = write_view("a 🙂\n\n<s>$x$", state)
    fresh: dict = {"bos": "default"}
    read_view(text, fresh)
    assert fresh == {"prompt": "a 🙂\n\n<s>$x$", **{name: state[name] for name in state if name != "private"}}


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        json.dumps({"prompt": "x"}),
        json.dumps({"streamscope_view": 2, "prompt": "x"}),
        json.dumps({"streamscope_view": 1, "prompt": 5}),
        json.dumps({"streamscope_view": 1, "prompt": "x", "choices": {"after": -1}}),
        json.dumps({"streamscope_view": 1, "prompt": "x", "choices": {"after": True}}),
        json.dumps({"streamscope_view": 1, "prompt": "x", "choices": {"bos": "rm -rf"}}),
        json.dumps({"streamscope_view": 1, "prompt": "x", "choices": {"frame": {}}}),
        json.dumps({"streamscope_view": 1, "prompt": "x", "choices": {"top_p": float("nan")}}),
    ],
)
def test_anything_else_is_refused_and_changes_nothing(text):
    state = {"prompt": "before"}
    with pytest.raises(ValueError, match="needs .*; found .*; .*"):
        read_view(text, state)
    assert state == {"prompt": "before"}
