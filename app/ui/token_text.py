"""Tokens as text that a person can read: every blank, control and broken character shown, nothing interpreted.

A token is a run of bytes, not a word: it may be a lone newline, half an emoji or a character that reverses the line it
stands in. `visible` gives each of them marks that cannot disappear. The marks are for the eye and not reversible (a
literal `·` looks like a space): whoever needs certainty reads the bytes, which the token strip's tooltip shows.
"""

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

# C0 controls by their ASCII abbreviations; tab and newline have marks of their own and never get here.
_C0 = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
)
# The abbreviations of the Unicode Standard for what prints nothing, or changes how its neighbours print.
_OTHERS = (
    "7F DEL,85 NEL,A0 NBSP,AD SHY,34F CGJ,61C ALM,200B ZWSP,200C ZWNJ,200D ZWJ,200E LRM,200F RLM,2028 LS,2029 PS,"
    "202A LRE,202B RLE,202C PDF,202D LRO,202E RLO,202F NNBSP,2060 WJ,2066 LRI,2067 RLI,2068 FSI,2069 PDI,"
    "180B FVS1,180C FVS2,180D FVS3,3000 IDSP,FEFF BOM"
)
_MARKS = {" ": "·", "\n": "⏎", "\t": "⇥"}
_NAMES = {chr(i): name for i, name in enumerate(_C0.split())}
_NAMES |= {chr(int(code, 16)): name for code, name in (entry.split() for entry in _OTHERS.split(","))}
_NAMES |= {chr(0xFE00 + i): f"VS{i + 1}" for i in range(16)}
# Not blank by category, but blank on the screen: Hangul fillers, Khmer inherent vowels, the empty braille cell.
_BLANK = frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_UNREADABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_STRAY_BYTES = re.compile("[\udc80-\udcff]+")  # where "surrogateescape" puts bytes that are not UTF-8
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def visible(piece: bytes) -> str:
    r"""What a token's bytes look like: `b" caf\xc3"` is `·caf<C3>`.

    Space, newline and tab are `·`, `⏎` and `⇥`; other characters that print nothing, or that change how their
    neighbours print, stand in brackets by name (`[NUL]`, `[ZWJ]`, `[RLO]`) or number (`[U+E000]`); bytes that are not
    complete UTF-8 are hexadecimal (`<F0 9F>`); a leading accent sits on a dotted circle; no bytes at all are `∅`.
    """
    if not piece:
        return "∅"
    text = piece.decode("utf-8", "surrogateescape")
    # A combining mark would climb onto whatever is drawn before the token.
    carrier = "◌" if unicodedata.category(text[0]).startswith("M") and _mark(text[0]) == text[0] else ""
    parts = _STRAY_BYTES.split(text)
    strays = [" ".join(f"{ord(c) - 0xDC00:02X}" for c in run) for run in _STRAY_BYTES.findall(text)]
    shown = ["".join(map(_mark, part)) for part in parts]
    return carrier + shown[0] + "".join(f"<{stray}>{part}" for stray, part in zip(strays, shown[1:], strict=True))


def _mark(character: str) -> str:
    """One character, or the mark that stands for it."""
    if character in _MARKS:
        return _MARKS[character]
    if character in _NAMES:
        return f"[{_NAMES[character]}]"
    selector = 0xE0100 <= ord(character) <= 0xE01EF  # variation selectors 17 to 256: marks by category, never seen
    if selector or character in _BLANK or unicodedata.category(character) in _UNREADABLE:
        return f"[U+{ord(character):04X}]"
    return character


def split_characters(pieces: Sequence[bytes]) -> tuple[tuple[int, int], ...]:
    r"""Runs of tokens (first, last) that share a character: the bytes of 🙂 are often two tokens.

    The bytes decide, not the offsets: a tokenizer may cut ` 🙂` into ` \xf0\x9f` and `\x99\x82`, whose offsets differ.
    Bytes that never become a character join nothing.
    """
    ends = list(accumulate(len(piece) for piece in pieces))
    runs: list[tuple[int, int]] = []
    byte = 0
    for character in b"".join(pieces).decode("utf-8", "surrogateescape"):
        size = len(character.encode("utf-8", "surrogateescape"))
        first, last = bisect_right(ends, byte), bisect_right(ends, byte + size - 1)
        byte += size
        if first == last:
            continue
        if runs and runs[-1][1] == first:
            first = runs.pop()[0]
        runs.append((first, last))
    return tuple(runs)


def shorten(text: str, limit: int = 24) -> str:
    """At most `limit` characters, the last of them `…` when something was left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plotly_safe(text: str) -> str:
    """Text that Plotly draws as it is: its labels understand a little HTML, in which `<a href=...>` becomes a link.

    For tick labels, `text` and `customdata`; never put a token into a `hovertemplate` or `texttemplate`.
    Plotly drops blanks at the edges: pass a token through `visible` first.
    """
    return html.escape(text, quote=False)


def percent(probability: float) -> str:
    """A probability with the three digits that are true: `77.3 %`, and below 0.1 % `3.21×10⁻⁵`.

    Raises:
        ValueError: not a number between 0 and 1 (rounding errors up to one in a million are let through).
    """
    if not -1e-6 <= probability <= 1 + 1e-6:
        raise ValueError(f"needs a probability from 0 to 1; found {probability}; normalise the distribution first.")
    if probability <= 0:
        return "0 %"
    if probability < 1e-3:
        digits, exponent = f"{probability:.2e}".split("e")
        return f"{digits}×10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    shown = f"{100 * probability:#.3g}".rstrip(".")
    return "> 99.9 %" if shown == "100" and probability < 1 else f"{shown} %"


def powers(text: str) -> str:
    """Exponents as people write them: `2.4e-07` becomes `2.4×10⁻⁷`."""
    return re.sub(r"(?<=\d)e([+-]\d+)\b", lambda found: f"×10{str(int(found[1])).translate(_SUPERSCRIPT)}", text)
