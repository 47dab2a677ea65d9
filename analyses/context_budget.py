"""What fits into the context, and what is gone when it does not?

The context window is one budget for everything: the instruction, the conversation, a document, the question, and the answer that
is still to be written. What exceeds it has to be left out before the model runs. Here whole parts go, the oldest first, and
either everything may go or the instruction stays. What is left out is not faint or half forgotten: the model never reads it.

Proof: the same question is asked behind two different instructions. While they fit, the logits differ. When both have fallen out,
the model is given the same ids, and each of the two passes returns the same logits, bit for bit. That distance inside the window
weakens use as well is another matter (Liu et al. 2024, "Lost in the Middle").

Identity: the kept tokens of all parts sum to what the model reads, which is at most window - answer.

Limit: a policy of this page, not of the model. Servers differ in what they drop, cut or summarise; the model only ever sees ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses._arrays import check_ids, to_float32
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses.sampling import log_softmax

OLDEST_FIRST, KEEP_FIRST = "oldest first", "keep the instruction"
POLICIES = (OLDEST_FIRST, KEEP_FIRST)
LISTED = 5


@dataclass(frozen=True, eq=False)
class ContextBudget:
    """Tokens per part, what is left of each, and what the model says with either instruction."""

    names: tuple[str, ...]  # of the parts, oldest first; the first is the instruction, the last the question
    n_tokens: Int32[np.ndarray, " part"]
    n_kept: Int32[np.ndarray, " part"]
    other_n_tokens: int  # of the other instruction
    other_n_kept: Int32[np.ndarray, " part"]  # with the other instruction: a longer one can push others out
    window: int
    answer: int  # tokens kept free
    policy: str
    ids: Int32[np.ndarray, " read"]  # what the model reads
    other_ids: Int32[np.ndarray, " read_other"]  # with the other instruction
    same_ids: bool
    max_logit_difference: float  # over the vocabulary, after the last token; 0 only when every bit is the same
    kl_nats: float  # from the first distribution to the other
    top_ids: Int32[np.ndarray, " k"]
    top_probability: Float32[np.ndarray, " k"]
    other_top_ids: Int32[np.ndarray, " k"]
    other_top_probability: Float32[np.ndarray, " k"]

    def to_frame(self) -> Any:
        """A pandas table, one row per part: part, tokens, kept_tokens."""
        import pandas as pd

        return pd.DataFrame({"part": self.names, "tokens": self.n_tokens, "kept_tokens": self.n_kept})


def plan_window(sizes: Sequence[int], room: int, *, policy: str = OLDEST_FIRST) -> tuple[int, ...]:
    """How many tokens of each part are kept; the newest part is kept first and alone may be cut, at its start.

    Args:
        sizes: tokens of the parts, oldest first; the last is the question.
        room: tokens there are for all of them.
        policy: "oldest first", or "keep the instruction": the first part is kept before the others, where it fits.

    Raises:
        ValueError: no parts, no room, or an unknown policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"needs one of {', '.join(POLICIES)}; found {policy!r}; choose one of these.")
    if not sizes or room < 1:
        raise ValueError(f"needs a part and room for a token; found {len(sizes)} and {room:,}; widen the window.")
    kept = [0] * len(sizes)
    kept[-1] = min(sizes[-1], room)
    room -= kept[-1]
    older = list(range(len(sizes) - 2, -1, -1))
    if policy == KEEP_FIRST and older and sizes[0] <= room:
        kept[0], room = sizes[0], room - sizes[0]
        older.remove(0)
    for part in older:
        if sizes[part] > room:
            break  # and all that are older: a conversation with a hole would read as another one
        kept[part], room = sizes[part], room - sizes[part]
    return tuple(kept)


def context_budget_steps(
    model: Any,
    tokens: Any,
    *,
    before: Sequence[Any],
    other: Sequence[int],
    window: int,
    answer: int,
    policy: str = OLDEST_FIRST,
) -> Steps[ContextBudget]:
    """The steps of `run_context_budget`: one forward pass with each instruction."""
    limits = {"d_vocab": model.config.d_vocab, "n_ctx": model.config.n_ctx}
    anywhere = {
        "d_vocab": model.config.d_vocab,
        "n_ctx": 1_000_000,
    }  # parts may exceed the context: that is the question
    question = check_ids(tokens, **anywhere)
    names, parts = _parts(before, anywhere)
    swapped = check_ids(other, **anywhere)
    if not 1 <= answer < window <= limits["n_ctx"]:
        raise ValueError(
            f"needs an answer of at least 1 token inside a window of at most {limits['n_ctx']:,}; found {answer:,} and "
            f"{window:,}; keep fewer free or widen the window."
        )
    runs, kept = [], []
    for first in (parts[0], swapped):
        texts = [first, *parts[1:], question]
        kept.append(plan_window([len(text) for text in texts], window - answer, policy=policy))
        # The parts are whole or gone, but for the question, of which the end is kept.
        runs.append(tuple(i for text, n in zip(texts, kept[-1], strict=True) for i in text[len(text) - n :]))
    logits = []
    for done, ids in enumerate(runs):  # both are run even when they are equal: that is the proof
        yield Progress(done, 2, note="one instruction, then the other")
        logits.append(to_float32(model.forward(ids, last_only=True)[0, -1]))
    sizes = [len(part) for part in [*parts, question]]
    return ContextBudget(
        names=(*names, "question"),
        n_tokens=np.array(sizes, dtype=np.int32),
        n_kept=np.array(kept[0], dtype=np.int32),
        other_n_tokens=len(swapped),
        other_n_kept=np.array(kept[1], dtype=np.int32),
        window=window,
        answer=answer,
        policy=policy,
        **_compare(runs, logits),
    )


def run_context_budget(
    model: Any,
    tokens: Any,
    *,
    before: Sequence[Any],
    other: Sequence[int],
    window: int,
    answer: int,
    policy: str = OLDEST_FIRST,
) -> ContextBudget:
    """Fit parts into a window, run what is left, and run it again with another instruction.

    Args:
        model: a HookedModel.
        tokens: ids of the newest part, the question, with whatever opens the answer.
        before: pairs of a name and ids, oldest first; the first is the instruction.
        other: ids of another instruction in its place.
        window: tokens in all, at most the context.
        answer: tokens of it that are kept free.
        policy: as in `plan_window`.

    Raises:
        ValueError: an empty question, no instruction, ids outside the vocabulary, or numbers out of range.
    """
    return drain(
        context_budget_steps(model, tokens, before=before, other=other, window=window, answer=answer, policy=policy)
    )


def cost_context_budget(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Two passes over at most a window."""
    most = max(1, min(params.get("window", profile.n_ctx) - params.get("answer", 1), profile.n_ctx))
    read = min(most, n_tokens + sum(len(ids) for _, ids in params.get("before", ())))
    return Cost(
        seconds=2 * (profile.forward_seconds(read) + profile.per_readout),
        peak_bytes=profile.forward_bytes(read) + 40 * profile.d_vocab,
        result_bytes=8 * read + 1000,
    )


def _parts(before: Sequence[Any], limits: Mapping[str, int]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Names and ids of what comes before the question; an empty part is a part of no tokens."""
    if not before:
        raise ValueError("needs an instruction before the question; found none; pass pairs of a name and ids.")
    names = [str(name) for name, _ in before]
    return names, [check_ids(ids, **limits, at_least=0) for _, ids in before]


def _compare(runs: Sequence[tuple[int, ...]], logits: Sequence[Any]) -> dict[str, Any]:
    """What the two runs read, and how far apart their logits are."""
    first, second = (log_softmax(row) for row in logits)
    tops = [np.argsort(-row, kind="stable")[:LISTED].astype(np.int32) for row in logits]
    return {
        "ids": np.array(runs[0], dtype=np.int32),
        "other_ids": np.array(runs[1], dtype=np.int32),
        "same_ids": runs[0] == runs[1],
        "max_logit_difference": float(np.abs(logits[0].astype(np.float64) - logits[1]).max()),
        "kl_nats": max(0.0, float((np.exp(first) * (first - second)).sum())),
        "top_ids": tops[0],
        "top_probability": np.exp(first[tops[0]]).astype(np.float32),
        "other_top_ids": tops[1],
        "other_top_probability": np.exp(second[tops[1]]).astype(np.float32),
    }
