"""A config.json that a person pasted: text to a mapping, or one sentence on why it is none.

The text may be hostile. Its length is looked at first, so nothing below costs more than a pass over 200,000 characters;
numbers of many digits are never turned into integers.
"""

import json
from collections.abc import Mapping
from typing import Any

MAX_CHARACTERS = 200_000  # the largest config.json among well-known decoders is below 60,000
_MAX_DIGITS = 19  # more is beyond every limit, and turning digits into an integer takes quadratic time
_SHOWN = 40  # characters of a wrong value that a sentence repeats


class _OurSentence(ValueError):
    """Raised inside the JSON parser with a sentence that is already meant for the reader."""


def parse_config(source: Any) -> dict[str, Any]:
    """The mapping in a config.json, given as text, as the bytes of a file, or as a mapping already.

    Raises:
        ValueError: too long, not UTF-8, not JSON, a field twice, nested too deeply, or not a mapping.
    """
    if isinstance(source, Mapping):
        return dict(source)
    if not isinstance(source, (str, bytes)):
        raise ValueError(
            f"needs a config.json as text or as a mapping; found a {type(source).__name__}; pass the file's text."
        )
    if len(source) > MAX_CHARACTERS:
        raise ValueError(
            f"needs a config.json of at most {MAX_CHARACTERS:,} characters; found {len(source):,}; "
            "give the config.json of one model, without weights or a tokenizer."
        )
    return _mapping(_parse(_text(source)))


def _text(source: str | bytes) -> str:
    if isinstance(source, bytes):
        try:
            source = source.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError("needs a text file in UTF-8; found other bytes; save the file as UTF-8.") from error
    text = source.removeprefix("\ufeff").strip()  # Windows editors put a byte order mark in front
    if not text:
        raise ValueError("needs the text of a config.json; found nothing; paste the whole file, from { to }.")
    return text


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_int=_integer)
    except _OurSentence as sentence:
        raise ValueError(str(sentence)) from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"needs JSON; found text that is not, at line {error.lineno:,}, column {error.colno:,} ({error.msg}); "
            "paste the whole config.json, from { to }."
        ) from error
    except RecursionError as error:
        raise ValueError(
            "needs a config.json of a few levels; found one nested too deeply to read; paste the file of one model."
        ) from error


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits.lstrip("-")) <= _MAX_DIGITS else float(digits)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise _OurSentence(f"needs each field once; found {shown(twice)} twice; delete the line that is wrong.")
    return found


def _mapping(config: Any) -> dict[str, Any]:
    if not isinstance(config, dict):
        raise ValueError(
            f"needs a mapping of fields; found {shown(config)}; paste the whole config.json, from {{ to }}."
        )
    return config


def shown(value: Any) -> str:
    """A value in a sentence: short, on one line, and safe to print whatever it is."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (dict, list, tuple)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value):,}"
    if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
        return "a number of more than 19 digits"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
