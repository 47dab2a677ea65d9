"""A prompt inside a model's chat template: rendering it, and keeping special tokens out of the user's text."""

from typing import Any

from analyses._encode import Row, encode
from analyses.vocabulary import special_ids

_PLACEHOLDER = "\ue000user text\ue001"  # private-use characters: no template contains or trims them


def render_template(tokenizer: Any, text: str) -> str:
    """One user message and the header of the answer, as the template writes them.

    Raises:
        ValueError: no template, or one that fails.
    """
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        raise ValueError(
            "needs a chat template; found none; switch chat off or load a model that was trained for chats."
        )
    message = [{"role": "user", "content": text}]
    try:
        return tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"needs a chat template that works; found one that fails ({reason}); switch chat off or load another model."
        ) from error


def encode_plain_inside_template(tokenizer: Any, rendered: str, text: str) -> list[Row]:
    """Encode a rendered chat so that only the template's special tokens are special, not those that the user typed.

    A tokenizer cuts the text at special tokens before anything else. So the text is cut at the template's own ones, the
    parts between them are encoded as plain text, and everything is put together again. That this way of cutting is
    faithful is checked each time: without the plain setting it must give the tokenizer's own ids.

    Raises:
        ValueError: a template that changes the message, or a tokenizer that cannot be cut this way.
    """
    whole = encode(tokenizer, rendered)
    start, end = _user_span(tokenizer, rendered, text)
    control = special_ids(tokenizer)
    special = [row for row in whole if row[0] in control]
    own = [row for row in special if row[2] <= start or row[1] >= end]
    if len(own) == len(special):
        return whole
    if [row[0] for row in _encode_between(tokenizer, rendered, own, plain=False)] != [row[0] for row in whole]:
        raise ValueError(
            "needs a tokenizer that encodes a chat part by part; found one that gives other ids; "
            "switch chat or the plain-text option off."
        )
    return _encode_between(tokenizer, rendered, own, plain=True)


def _user_span(tokenizer: Any, rendered: str, text: str) -> tuple[int, int]:
    """Where the user's text lies in the rendered chat (a template may have trimmed it)."""
    head, found, tail = render_template(tokenizer, _PLACEHOLDER).partition(_PLACEHOLDER)
    start, end = len(head), len(rendered) - len(tail)
    same = (
        found and rendered.startswith(head) and rendered.endswith(tail) and rendered[start:end].strip() == text.strip()
    )
    if not same:
        raise ValueError(
            "needs a chat template that copies the message; found one that changes it; "
            "switch chat or the plain-text option off."
        )
    return start, end


def _encode_between(tokenizer: Any, rendered: str, marks: list[Row], *, plain: bool) -> list[Row]:
    """The marks as they are, and what lies between them encoded part by part."""
    rows, at = [], 0
    for mark in [*marks, None]:
        part_end = len(rendered) if mark is None else mark[1]
        part = encode(tokenizer, rendered[at:part_end], plain=plain) if part_end > at else []
        rows += [(token_id, start + at, end + at) for token_id, start, end in part]
        if mark is not None:
            rows.append(mark)
            at = mark[2]
    return rows
