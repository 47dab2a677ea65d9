"""A view as a file: the prompt and every choice that changes the picture, for prompts too long for a link."""

import json
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from analyses._architecture_costs import CARDS
from analyses._architecture_known import known_architectures
from app.ui.choices import BOS_WORDS, CUT_WORDS

FORMAT = 1
MAX_BYTES = 2_000_000  # as server.maxUploadSize


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and low <= value <= high


def _text(limit: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and len(value) <= limit


def _one_of(*options: str) -> Callable[[Any], bool]:
    return lambda value: value in options


def _maybe(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or accepts(value)


_TEXTS = ("my prompt", "plain English", "a list", "code", "repeated tokens", "another language (German)")

# Key of a widget (also its name in the address) -> what it accepts. A page adds its own choices here.
CHOICES: Mapping[str, Callable[[Any], bool]] = {
    "bos": lambda value: value in tuple(BOS_WORDS),
    "chat": lambda value: isinstance(value, bool),
    "plain": lambda value: isinstance(value, bool),
    "keep": lambda value: value in tuple(CUT_WORDS),
    "after": _maybe(_whole(0, 10**6)),
    "step": _whole(0, 10**9),
    "list": _whole(5, 30),
    "sampling": _one_of("The model's own", "Sampling"),
    "temperature": _number(0.0, 2.0),
    "top_k": _whole(0, 200),
    "top_p": _number(0.05, 1.0),
    "write": _one_of("Greedy", "Sampled"),
    "new_tokens": _whole(1, 1000),
    "samples": _whole(1, 4),
    "seed": _whole(0, 2**31 - 1),
    "section": _one_of("Languages", "Numbers", "Words", "BOS"),
    "measure": _one_of("relative_to_english", "tokens_per_character", "tokens_per_byte"),
    "numbers": _text(200),
    "word": _text(200),
    "letter": _text(1),
    "target": _text(200),
    "distractor": _text(200),
    "colour": _one_of("Probability", "Entropy", "Rank", "KL"),
    "lens": _one_of("Plain", "Linear"),
    "span": _one_of("Last 32", "All"),
    "depth": _maybe(_whole(0, 10**4)),
    "stride": _maybe(_whole(1, 16)),
    "exact": lambda value: isinstance(value, bool),
    "fit_on": _one_of("the built-in text", "my prompt"),
    "axis": _one_of("Probability", "Rank", "Entropy", "KL", "Loss"),
    "worth": _one_of("Loss", "KL"),
    "writer": _maybe(_whole(0, 10**4)),
    "score": _one_of("induction", "previous_token", "duplicate_token", "first_token", "current_token", "entropy_share"),
    "scored_on": _one_of("random tokens", "my prompt"),
    "order": _one_of("by layer", "by score"),
    "top": _maybe(_whole(1, 10**4)),
    "hide_first": lambda value: isinstance(value, bool),
    "layer": _maybe(_whole(0, 10**4)),
    "head": _maybe(_whole(0, 10**4)),
    "headview": _one_of("Map", "What it writes", "Four steps", "Any scale"),
    "factor": _number(0.0, 16.0),
    "check": _one_of("Leave heads out", "Every head in turn", "Who feeds whom", "Change a step", "Order and distance"),
    "how": _one_of("zero", "mean"),
    "silenced": _text(2000),
    "text": _one_of(*_TEXTS),
    "without": _text(2000),
    "guess": _maybe(_whole(0, 10**4)),
    "sweep": _one_of("Single layers", "Runs of layers", "Order of removal", "The wrong way"),
    "part": _one_of("block", "attention", "mlp"),
    "config": _one_of("the open model", "my own config", *known_architectures()),
    "beside": _one_of("nothing", "the open model", "my own config", *known_architectures()),
    "guess_total": _maybe(_number(0, 1e9)),
    "guess_mlp": _maybe(_number(0, 100)),
    "guess_cache": _maybe(_number(0, 1e9)),
    "revealed": lambda value: isinstance(value, bool),
    "detail": _one_of("Shapes", "Fields", "Memory", "Comparison"),
    "cache_tokens": _whole(1, 10**9),
    "cache_users": _whole(1, 10**6),
    "weights": _one_of("float32", "bfloat16", "int8", "4 bits"),
    "card": _one_of(*CARDS),
    "card_gib": _maybe(_whole(1, 10**6)),
    "measured": _one_of(*_TEXTS, "own text"),
    "against": _one_of("nothing", *_TEXTS, "own text"),
    "own_text": _text(200_000),
    "unit": _one_of("nats", "bits", "perplexity", "probability"),
    "loss_window": _one_of("context", "64", "128", "256", "512", "1024", "2048"),
    "loss_stride": _one_of("half", "quarter", "eighth", "sixteenth"),
    "loss_token": _maybe(_whole(1, 10**6)),
    "look_inside": lambda value: isinstance(value, bool),
    "inside": _one_of("Norms", "One changed token", "No activation", "Rank of a weight", "Norm before or after"),
    "inside_text": _one_of(*_TEXTS),
    "inside_layer": _maybe(_whole(0, 10**4)),
    "inside_token": _maybe(_whole(0, 10**6)),
    "inside_norm": _one_of("attention", "mlp", "final"),
    "inside_part": _one_of("mlp.out", "mlp.in", "mlp.gate", "attn.q", "attn.k", "attn.v", "attn.o", "all"),
    "inside_rank": _whole(1, 10**5),
    "longest": _text(6),
    "context_window": _text(6),
    "context_policy": _one_of("oldest first", "keep the instruction"),
    "turns": _whole(0, 8),
    "instruction": _text(500),
    "other_instruction": _text(500),
    "document": _one_of("none", *_TEXTS[1:]),
    "reserve": _whole(1, 60),
    "vector": _text(200),
    "coefficient": _number(-1.5, 1.5),
    "beyond": lambda value: isinstance(value, bool),
    "steer_layer": _whole(0, 10**4),
    "steer_last": _maybe(_whole(0, 10**4)),
    "steer_mode": _one_of("add", "project_out"),
    "steer_where": _one_of("both", "prompt", "new"),
    "steer_share": _number(0.0, 1.0),
    "steer_on": _maybe(_one_of("my prompt", "the example's prompt")),
    "targets": _text(2000),
    "opposites": _text(2000),
    "random_vector": _whole(0, 999),
    "train_step": _whole(0, 10**6),
    "train_out": _text(40),
    "train_text": _text(4000),
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
