import math
import re

import pytest

from app.ui.token_text import percent, plotly_safe, shorten, split_characters, visible


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (b"", "∅"),
        (b" Paris", "·Paris"),
        (b"\n\n \t", "⏎⏎·⇥"),
        (b"\r\n", "[CR]⏎"),
        (b"\x00\x1b\x7f", "[NUL][ESC][DEL]"),
        ("\u202eab\u2066".encode(), "[RLO]ab[LRI]"),
        ("👩\u200d👩".encode(), "👩[ZWJ]👩"),
        ("❤\ufe0f".encode(), "❤[VS16]"),
        ("\u00a0\u3000\u2003".encode(), "[NBSP][IDSP][U+2003]"),
        ("\ue000\U000e0041\U000e0100".encode(), "[U+E000][U+E0041][U+E0100]"),
        ("\u3164\u2800".encode(), "[U+3164][U+2800]"),
        ("\u0301a".encode(), "◌\u0301a"),  # an accent alone needs something to sit on
        ("e\u0301".encode(), "e\u0301"),
        ("한국".encode(), "한국"),
        (b"\xf0\x9f", "<F0 9F>"),
        (b"\x99\x82", "<99 82>"),
        (b" caf\xc3", "·caf<C3>"),
        (b"\x99\x82!\xf0", "<99 82>!<F0>"),
        (b"\xed\xa0\x80", "<ED A0 80>"),  # a surrogate written as UTF-8 is not UTF-8
        (b"<b>&amp;$x$", "<b>&amp;$x$"),  # nothing is interpreted here
        (b"<|im_start|>", "<|im_start|>"),
    ],
)
def test_every_byte_is_shown(piece, shown):
    assert visible(piece) == shown


def test_no_character_of_unicode_can_be_blank_or_move_its_neighbours():
    # The second way: Python's own idea of what is printable, over the whole of Unicode.
    everything = "".join(chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000)
    shown = visible(everything.encode())
    assert shown.isprintable() and " " not in shown
    # Letters and digits stay what they are.
    readable = "".join(c for c in everything if c.isalnum() and c not in "\u115f\u1160\u3164\uffa0")
    assert visible(readable.encode()) == readable


def test_no_byte_is_ever_lost():
    for piece in (bytes([i]) for i in range(256)):
        text = visible(piece)
        if piece[0] >= 0x80:
            assert text == f"<{piece.hex().upper()}>"
        else:
            assert len(text) > 1 or text in "·⏎⇥" or text == piece.decode()


@pytest.mark.parametrize(
    ("pieces", "runs"),
    [
        ([b"\xf0\x9f", b"\x99\x82"], ((0, 1),)),
        ([b"The", b" \xf0\x9f", b"\x99\x82", b" said"], ((1, 2),)),  # offsets differ here, the bytes do not lie
        ([b"\xf0", b"\x9f", b"\x99", b"\x82"], ((0, 3),)),
        ([b"\xc3", b"\xa9\xc3", b"\xa8"], ((0, 2),)),  # the middle token belongs to two characters
        ([b"\xc3", b"\xa9", b"\xc3", b"\xa8"], ((0, 1), (2, 3))),
        ([b"\xf0\x9f", b" x", b"\x99\x82"], ()),  # never a character
        ([b"\xf0\x9f", b"<|endoftext|>", b"\x99\x82"], ()),
        ([b"\xf0\x9f"], ()),
        ([b"\xc3", b"", b"\xa9"], ((0, 2),)),
        ([b"Hello", b" world", "é".encode()], ()),
        ([], ()),
    ],
)
def test_a_split_character_joins_its_tokens(pieces, runs):
    assert split_characters(pieces) == runs


def test_percent_has_three_true_digits():
    numbers = [1, 0.9996, 0.7725, 0.5, 0.0123456, 0.001, 0.000999, 3.2149e-5, 1e-20, 0]
    shown = [
        "100 %",
        "> 99.9 %",
        "77.2 %",
        "50.0 %",
        "1.23 %",
        "0.100 %",
        "9.99×10⁻⁴",
        "3.21×10⁻⁵",
        "1.00×10⁻²⁰",
        "0 %",
    ]
    assert [percent(p) for p in numbers] == shown
    assert percent(1 + 1e-7) == "100 %"


@pytest.mark.parametrize("wrong", [math.nan, -0.1, 1.1, 77.0])
def test_percent_refuses_what_is_no_probability(wrong):
    with pytest.raises(ValueError, match=r"needs a probability from 0 to 1; found .*; normalise"):
        percent(wrong)


def test_plotly_safe_leaves_no_tag_and_no_entity():
    safe = plotly_safe("<a href='x'>&lt;b&gt;</a>$x$")
    assert safe == "&lt;a href='x'&gt;&amp;lt;b&amp;gt;&lt;/a&gt;$x$"
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", safe)


def test_shorten_keeps_the_start():
    assert shorten("a" * 24) == "a" * 24
    assert shorten("a" * 25) == "a" * 23 + "…"
