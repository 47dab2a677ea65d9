"""From logits to the next token, and what is noted about the choice.

A choice is drawn from the whole vocabulary, reshaped by temperature, top-k and top-p as `analyses.sampling` does it.
What is noted (probability, rank, entropy, alternatives) is about the model's own distribution, before any of these.

Each sample has its own generator, so what others draw, or torch's global generator, never changes a text. The random number picks
a place in the cumulated probabilities, in the order of the ids.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses.sampling import logsumexp_and_entropy, reshape_distribution

MAX_SEED = 2**62
AFTER_END = -1  # id and rank where a row has ended already
CONTEXT = 8  # tokens before the new ones that tell how their text begins


class Sampler:
    """Draws next tokens. Sample i of a seed is sample 0 of the seed plus i, however many are drawn beside it.

    Raises:
        ValueError: a seed or a number of samples that does not exist; what `reshape_distribution` refuses.
    """

    def __init__(self, temperature: Any, top_k: Any, top_p: Any, seed: Any, samples: int) -> None:
        import torch

        check_whole("seed", seed, 0, MAX_SEED)
        check_whole("top-k", top_k, 0, MAX_SEED)
        temperature, top_p = _number("temperature", temperature), _number("top-p", top_p)
        reshape_distribution(
            np.zeros(1), temperature=temperature, top_k=top_k, top_p=top_p
        )  # refuses what has no meaning
        self._settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        self.greedy = temperature == 0
        self._generators = [torch.Generator().manual_seed(seed + i) for i in range(samples)]

    def draw(self) -> list[float]:
        """One number from 0 to 1 for each sample; nothing is drawn where nothing is random."""
        import torch

        if self.greedy:
            return [0.0] * len(self._generators)
        return [float(torch.rand((), generator=g, dtype=torch.float64)) for g in self._generators]

    def choose(self, logits: Float32[np.ndarray, " d_vocab"], number: float) -> int:
        """The id that a number from `draw` picks; greedily the most probable one, of equals the lowest id."""
        if self.greedy:
            return int(logits.argmax())
        mass = np.cumsum(reshape_distribution(logits, **self._settings).probability)
        return int(np.searchsorted(mass, number * mass[-1], side="right"))


class Written:
    """The new tokens of every row so far, and how sure each choice was. Rows that have ended are left as they are."""

    def __init__(self, rows: int, max_new: int, k: int, ends: frozenset[int]) -> None:
        self.n = 0
        self.ended = [False] * rows
        self.newest = [AFTER_END] * rows  # the id to be read next; of an ended row its end token again
        self.ids = np.full((rows, max_new), AFTER_END, dtype=np.int32)
        self.rank = np.full((rows, max_new), AFTER_END, dtype=np.int32)
        self.log_probability = np.full((rows, max_new), np.nan, dtype=np.float32)
        self.entropy = np.full((rows, max_new), np.nan, dtype=np.float32)
        self.top_ids = np.full((rows, max_new, k), AFTER_END, dtype=np.int32)
        self.top_log_probability = np.full((rows, max_new, k), np.nan, dtype=np.float32)
        self._ends = ends

    def add(self, logits: Float32[np.ndarray, "row d_vocab"], choices: Sequence[int]) -> None:
        """Note one more step.

        Raises:
            ValueError: logits that are no numbers.
        """
        for row, choice in enumerate(choices):
            if self.ended[row]:
                continue
            self._note(row, logits[row], choice)
            self.newest[row] = choice
            self.ended[row] = choice in self._ends
        self.n += 1

    def _note(self, row: int, logits: Float32[np.ndarray, " d_vocab"], choice: int) -> None:
        check_finite(logits, self.n)
        log_sum, entropy = logsumexp_and_entropy(logits)
        top = largest(logits, self.top_ids.shape[2])
        at = (row, self.n)
        self.ids[at] = choice
        self.rank[at] = (logits > logits[choice]).sum() + (logits[:choice] == logits[choice]).sum()
        self.log_probability[at] = float(logits[choice]) - log_sum
        self.entropy[at] = entropy
        self.top_ids[at] = top
        self.top_log_probability[at] = logits[top].astype(np.float64) - log_sum

    def of_row(self, row: int) -> list[int]:
        """The ids of a row, up to its end."""
        return [int(i) for i in self.ids[row, : self.n] if i != AFTER_END]

    def padded(self) -> list[list[int]]:
        """The ids of every row, all equally long: an ended row goes on with its end token, which nobody looks at."""
        return [ids + [ids[-1]] * (self.n - len(ids)) for ids in map(self.of_row, range(len(self.ended)))]

    def texts(self, tokenizer: Any, before: Sequence[int]) -> tuple[str, ...]:
        """The text of every row."""
        return tuple(new_text(tokenizer, before, self.of_row(row), self._ends) for row in range(len(self.ended)))


def check_whole(name: str, value: Any, low: int, high: int) -> None:
    """Refuse what is no whole number from `low` to `high`.

    Raises:
        ValueError: something else; the sentence calls it `name`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"needs a {name} from {low:,} to {high:,}; found {value!r}; choose a whole number there.")


def check_finite(logits: Float32[np.ndarray, " d_vocab"], step: int) -> None:
    """Refuse logits that are no numbers, which a very strong intervention can make.

    Raises:
        ValueError: the largest logit is NaN or infinite.
    """
    if not math.isfinite(logits.max()):
        raise ValueError(
            f"needs logits that are numbers; found {logits.max()} before new token {step}; change the model less."
        )


def largest(logits: Float32[np.ndarray, " d_vocab"], k: int) -> Int32[np.ndarray, " k"]:
    """Ids of the k largest logits, the largest first, of equals the lowest id."""
    edge = np.partition(logits, -k)[-k]
    candidates = np.flatnonzero(logits >= edge)
    order = np.argsort(-logits[candidates], kind="stable")[:k]
    return candidates[order].astype(np.int32)


def new_text(tokenizer: Any, before: Sequence[int], new: Sequence[int], ends: frozenset[int]) -> str:
    """The text that new tokens add: complete characters only, without an end mark.

    Decoded together with what stands before, where that shows how they begin: SentencePiece drops the space of a first token.
    """
    shown = list(new[:-1] if new and new[-1] in ends else new)
    head = list(before[-CONTEXT:])
    start, whole = tokenizer.decode(head), tokenizer.decode(head + shown)
    return complete_text(whole[len(start) :] if whole.startswith(start) else tokenizer.decode(shown))


def complete_text(text: str) -> str:
    """Without the replacement characters that an unfinished character at the end leaves."""
    return text.rstrip("\ufffd")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"needs a number for {name}; found {value!r}; choose one.")
    return float(value)
