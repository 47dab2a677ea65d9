"""A view as a file: the prompt and every choice that changes the picture, for prompts too long for a link."""

import json
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from app.ui.choices import BOS_WORDS, CUT_WORDS

FORMAT = 1
MAX_BYTES = 2_000_000  # as server.maxUploadSize


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and low <= value <= high


def _text(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and len(value) <= limit


# Key of a widget (also its name in the address) -> what it accepts. A page adds its own choices here.
CHOICES: Mapping[str, Callable[[Any], bool]] = {
    "bos": lambda value: value in tuple(BOS_WORDS),
    "chat": lambda value: isinstance(value, bool),
    "plain": lambda value: isinstance(value, bool),
    "keep": lambda value: value in tuple(CUT_WORDS),
    "after": lambda value: value is None or _whole(0, 10**6)(value),
    "list": _whole(5, 30),
    "sampling": lambda value: value in ("The model's own", "Sampling"),
    "temperature": _number(0.0, 2.0),
    "top_k": _whole(0, 200),
    "top_p": _number(0.05, 1.0),
    "section": lambda value: value in ("Languages", "Numbers", "Words", "BOS"),
    "measure": lambda value: value in ("relative_to_english", "tokens_per_character", "tokens_per_byte"),
    "numbers": _text(200),
    "word": _text(200),
    "letter": _text(1),
}


def write_view(prompt: str, state: Mapping[str, Any]) -> str:
    """The view as JSON; `state` is the session's state."""
    choices = {name: state[name] for name in CHOICES if name in state}
    return json.dumps({"streamscope_view": FORMAT, "prompt": prompt, "choices": choices}, ensure_ascii=False, indent=1)


def read_view(text: str, state: MutableMapping[str, Any]) -> None:
    """Put a saved view into the session's state; everything is checked before anything is changed.

    Raises:
        ValueError: not a view that this version wrote.
    """
    try:
        view = json.loads(text)
        json.dumps(view, ensure_ascii=False).encode()  # a lone surrogate cannot be shown
    except (ValueError, RecursionError) as error:
        raise ValueError(
            "needs a view saved by Streamscope (JSON); found another kind of file; choose another."
        ) from error
    if not isinstance(view, dict) or view.get("streamscope_view") != FORMAT or not isinstance(view.get("prompt"), str):
        raise ValueError(f"needs a Streamscope view of format {FORMAT}; found another JSON file; choose another.")
    choices = view.get("choices")
    if not isinstance(choices, dict):
        raise ValueError("needs the choices of a view; found none; save the view again.")
    wrong = [name for name, value in choices.items() if name not in CHOICES or not CHOICES[name](value)]
    if wrong:
        raise ValueError(f"needs choices this version knows; found {wrong[0]!r}; save the view again.")
    state["prompt"] = view["prompt"]
    for name, value in choices.items():
        state[name] = value
