"""What does a chat template put around every message?

A chat model reads a conversation as one row of tokens: each message between marks that say who speaks, and at the end the mark
that opens the answer. They take room in the context like any other token. Found by rendering messages with placeholders, first
one, then two, then three: what each adds around its placeholder are its marks.

Identity: opens + text + closes of every message, one after another, and the header are what the template renders.

Limit: only for templates that write message by message. One that looks ahead, or changes a message, has no marks of its own;
`reason` then says so, and the parts are plain text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyses._steps import Cost, Profile, Progress, Steps, drain

ROLES = ("system", "user", "assistant")
_PLACEHOLDERS = (
    "\ue000one\ue001",
    "\ue000two\ue001",
    "\ue000three\ue001",
)  # private use: no template has or trims them


@dataclass(frozen=True, eq=False)
class ChatMarks:
    """Text before and after a message of each role, in the order of ROLES, and what opens the answer."""

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    header: str
    reason: str  # why there are no marks; "" when there are

    def to_frame(self) -> Any:
        """A pandas table, one row per role: role, before, after."""
        import pandas as pd

        return pd.DataFrame({"role": ROLES, "before": self.opens, "after": self.closes})


def chat_marks_steps(model: Any, tokens: Any = ()) -> Steps[ChatMarks]:
    """The steps of `run_chat_marks`: no forward pass."""
    yield Progress(0.0, 1.0, note="reading the chat template")
    return find_marks(model.tokenizer)


def run_chat_marks(model: Any, tokens: Any = ()) -> ChatMarks:
    """The marks of a model's chat template; empty, with the reason, where it has none.

    Args:
        model: a HookedModel.
        tokens: not used; every analysis takes them.
    """
    return drain(chat_marks_steps(model, tokens))


def cost_chat_marks(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """A few renderings of a template."""
    return Cost(seconds=0.01, peak_bytes=100_000, result_bytes=2_000)


def find_marks(tokenizer: Any) -> ChatMarks:
    """Marks of a tokenizer's template."""
    from jinja2 import TemplateError

    none = ("",) * len(ROLES)
    if not tokenizer.chat_template:
        return ChatMarks(none, none, "", "this model has no chat template")
    try:
        opens, closes, header = _find(tokenizer)
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return ChatMarks(
            none, none, "", "its chat template does not write a system message and a conversation one by one"
        )
    return ChatMarks(opens, closes, header, "")


def _find(tokenizer: Any) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """As `find_marks`. Raises ValueError when a longer conversation does not begin with the shorter one."""
    before, opens, closes = "", [], []
    for n in range(1, len(ROLES) + 1):
        whole = _render(tokenizer, ROLES[:n])
        start, found, end = whole.removeprefix(before).partition(_PLACEHOLDERS[n - 1])
        if not whole.startswith(before) or not found or "\ue000" in start + end:
            raise ValueError("needs a template that writes message by message; found another; use plain text.")
        opens.append(start)
        closes.append(end)
        before = whole
    asked = _render(tokenizer, ROLES[:2])
    answered = _render(tokenizer, ROLES[:2], header=True)
    if not answered.startswith(asked):
        raise ValueError("needs a template that opens the answer at the end; found another; use plain text.")
    return tuple(opens), tuple(closes), answered.removeprefix(asked)


def _render(tokenizer: Any, roles: Sequence[str], *, header: bool = False) -> str:
    messages = [{"role": role, "content": text} for role, text in zip(roles, _PLACEHOLDERS, strict=False)]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=header)
