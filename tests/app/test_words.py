"""A person's text inside a sentence: what Streamlit's Markdown would interpret is taken apart, and nothing is lost.

What the browser makes of it was looked at once in Chromium: Streamlit also turns arrows, `--`, `>=`, icons and addresses into
something else, in text whose backslashes Markdown has already taken away. Only a character in between stops that.
"""

import re
import string

import pytest
from streamlit.testing.v1 import AppTest

from app.ui.words import literal

JOINER = "\u2060"  # word joiner: no width, no line break
# Streamlit's frontend replaces these in plain text, after Markdown is done.
LATER = re.compile(r"->|<-|>=|<=|~=|--|:[\w+-]+[:/\[]|https?://|www\.|[\w.+-]+@\w", re.IGNORECASE)
TEXTS = [
    "needs a name; found 'x'; do y.",
    "a -> b <- c <-> d >= e <= f -- g ~= h",
    ":smile: :material/home: :red[x] :streamlit: :blue-badge[b]",
    "http://host.example/a HTTPS://host.example www.host.example me@host.example",
    "[a](http://host.example) ![i](http://host.example/i.png) <http://host.example>",
    "$x^2$ $$y$$ **b** __i__ ~~s~~ `c` # h",
    "<b>c</b> <img src=x> &lt; &amp; \\",
    "1. one\n- two\n> three\n| a | b |\n|---|---|",
]


def read(markdown):
    """What Markdown makes of escaped text: a backslash in front of ASCII punctuation goes, nothing else happens."""
    return re.sub(rf"\\([{re.escape(string.punctuation)}])", r"\1", markdown)


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_is_lost(text):
    assert read(literal(text)).replace(JOINER, "") == text


@pytest.mark.parametrize("text", TEXTS)
def test_no_mark_of_markdown_stays_active(text):
    """Every mark that opens something in CommonMark, GFM or Streamlit's additions has a backslash in front."""
    active = re.sub(r"\\.", "", literal(text))
    assert not set(active) & set("\\`*_{}[]()<>#+-.!|~$:&^=@")


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_is_left_for_what_streamlit_replaces_afterwards(text):
    assert LATER.findall(read(literal(text))) == []


def test_the_list_of_what_comes_later_sees_the_texts():
    assert sum(len(LATER.findall(text)) > 0 for text in TEXTS) == 5


def test_plain_sentences_in_any_script_stay_as_they_are():
    for text in ("", "needs a", "人人生而自由，在尊严", "caf\u00e9 🙂 \u202e", 'say "yes", then 50 %; or/and?'):
        assert literal(text) == text


def test_no_backslash_in_front_of_what_markdown_would_show_it_before():
    for character in map(chr, range(32, 127)):
        assert literal(character).lstrip("\\") in (character, "")
        if character not in string.punctuation:
            assert literal(character) == character


def test_errors_notes_and_tables_are_literal():
    def script():
        from app.ui.words import say_error, say_note, show_table

        say_error("needs **a**")
        say_note("see **a**")
        show_table({"one": ["**a**", "$x$"]})

    app = AppTest.from_function(script, default_timeout=30).run()
    assert not app.exception
    assert app.error[0].value == "Needs \\*\\*a\\*\\*"
    assert app.caption[0].value == "see \\*\\*a\\*\\*"
    assert list(app.table[0].value["one"]) == ["\\*\\*a\\*\\*", "\\$x\\$"]
