"""Losses as text: one number in the chosen unit, the finding, what a token's tooltip says, and how two texts compare."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analyses.loss import Loss
from app.backend.protocol import ModelInfo
from app.components.finding import Piece
from app.ui.token_text import percent, visible
from app.views.loss_choices import PROMPT, Text


def three(value: float) -> str:
    """Three digits that are true: 2.69, 14.8, 1,230, 4.6×10⁶."""
    if not math.isfinite(value):
        return "beyond any number"
    if value >= 1e6:
        digits, exponent = f"{value:.1e}".split("e")
        return f"{digits}×10{str(int(exponent)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    if value >= 100:
        return f"{round(value, 2 - math.floor(math.log10(value))):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def in_unit(nats: float, unit: str) -> str:
    """A loss in the chosen unit, with its name."""
    match unit:
        case "bits":
            return f"{three(nats / math.log(2))} bits"
        case "perplexity":
            return f"perplexity {three(math.exp(nats) if nats < 700 else math.inf)}"
        case "probability":
            return f"probability {percent(math.exp(-nats))}"
        case _:
            return f"{three(nats)} nats"


def mean_in_unit(nats: float, unit: str) -> str:
    """A mean loss in the chosen unit."""
    said = in_unit(nats, unit)
    return f"{said} (geometric mean)" if unit == "probability" else said


def amount(nats: float, unit: str, uniform_nats: float) -> float:
    """How strongly a token is coloured, 0 to 1: its surprise up to a uniform guess's, or its probability."""
    share = math.exp(-nats) if unit == "probability" else nats / uniform_nats
    return min(1.0, max(0.0, share))


def scale_words(unit: str, uniform_nats: float) -> str:
    """The range of the colours, for a caption."""
    if unit == "probability":
        return "Colour: from probability 0 (none) to 100 % (full); in the other units the surprising tokens are the full ones."
    first = "perplexity 1" if unit == "perplexity" else f"0 {unit}"
    log = ", on a logarithmic scale" if unit == "perplexity" else ""
    return f"Colour: from {first} (none) to {in_unit(uniform_nats, unit)} (full), a uniform guess{log}."


def notes_of(model: ModelInfo, loss: Loss, unit: str) -> list[str]:
    """What the tooltip says about every token of the text, the first one included."""
    notes = ["the first token: nothing stands before it, so it has no loss"]
    for i, nats in enumerate(loss.loss_nats):
        guess = visible(model.vocabulary.piece(int(loss.top_ids[i, 0])))
        probability = percent(math.exp(float(loss.top_log_probability[i, 0])))
        place = (
            "the model's first choice" if loss.rank[i] == 0 else f"rank {int(loss.rank[i]):,} (0 is the first choice)"
        )
        notes.append(f"{in_unit(float(nats), unit)} · {place}\ntop guess {guess} {probability}")
    return notes


def most_surprising(loss: Loss) -> int:
    """The position of the token with the largest loss."""
    return 1 + int(np.argmax(loss.loss_nats))


def finding_words(text: Text, loss: Loss) -> list[Any]:
    """The computed sentence at the top."""
    worst = most_surprising(loss)
    n = len(loss.loss_nats)
    tokens = "1 token" if n == 1 else f"{n:,} tokens"
    return [
        f"{three(loss.mean_nats)} nats per token = {three(loss.mean_bits)} bits = perplexity {three(loss.perplexity)}, over "
        f"{tokens}. Most surprising: ",
        Piece(text.tokens.pieces[worst]),
        f" (token {worst}), {three(float(loss.loss_nats[worst - 1]))} nats.",
    ]


def compared_words(first: tuple[Text, Loss], second: tuple[Text, Loss]) -> str:
    """How far two texts are apart, and how sure that is."""
    (a, x), (b, y) = first, second
    if a.tokens.ids == b.tokens.ids:
        return (
            f"{called(a)} and {called(b)} are the same tokens, so nothing differs: choose another text to compare with."
        )
    gap = y.mean_nats - x.mean_nats
    words = f"{called(b)} costs {three(y.mean_nats)} nats per token, {three(abs(gap))} {'more' if gap >= 0 else 'less'}"
    bytes_too = ""
    if a.n_bytes and b.n_bytes:
        bytes_too = f" Per byte: {three(y.bits_per_byte(b.n_bytes))} and {three(x.bits_per_byte(a.n_bytes))} bits."
    error = difference_error(x.loss_nats, y.loss_nats)
    if math.isnan(error):
        return f"{words} than {called(a)}.{bytes_too}"
    return f"{words} than {called(a)} (standard error of the difference {three(error)}, if tokens were independent).{bytes_too}"


def difference_error(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Standard error of the difference of two means (Welch 1947); NaN where a text has one loss only."""
    if min(len(x), len(y)) < 2:
        return math.nan
    return math.sqrt(sum(float(np.var(np.asarray(each, dtype=np.float64), ddof=1)) / len(each) for each in (x, y)))


def called(text: Text) -> str:
    """A text's name inside a sentence."""
    return "your prompt" if text.name == PROMPT else f"“{text.name}”"
