"""What do temperature, top-k and top-p do to a distribution?

Only numpy, so a server can answer while a slider moves: about 3 ms for 49,152 logits.

The order and the definitions are those of `generate` in transformers (`TemperatureLogitsWarper`, `TopKLogitsWarper`,
`TopPLogitsWarper`): logits are divided by the temperature; then only the k largest stay; then, of what is left and
renormalised, the smallest set of most probable tokens whose mass reaches p (Holtzman, Buys, Du, Forbes and Choi 2020,
"The Curious Case of Neural Text Degeneration"). Everything is computed over the whole vocabulary and never over the few
tokens on screen: after "Once upon a time there was a", SmolLM2's top-p = 0.9 set has 546 tokens, which no list of 50
can show.

Identity: the result sums to one, and inside the kept set it is proportional to softmax(logits / temperature).

Limit: this is the distribution of one next token. It does not say which texts come out, and a higher temperature makes
unlikely tokens likelier, not the text more creative.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64

LOWEST = -1e4  # e to this is zero in float64


@dataclass(frozen=True, eq=False)
class Sampling:
    """A next-token distribution after temperature, top-k and top-p."""

    probability: Float64[np.ndarray, " d_vocab"]  # exactly zero where a token was excluded
    n_kept: int  # tokens that can still be drawn
    kept_mass: float  # what the kept set had before anything was excluded, under the same temperature
    entropy_nats: float  # of `probability`


def reshape_distribution(
    logits: Float[np.ndarray, " d_vocab"], *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Sampling:
    """Reshape the distribution of the next token.

    Args:
        logits: of one position, the whole vocabulary.
        temperature: 0 is greedy: the largest logit takes everything (of equal ones, the lowest id).
        top_k: how many tokens stay; 0 keeps all. Tokens that tie with the last one stay too.
        top_p: mass that has to be reached; 1 keeps all. Of equal tokens at the edge, the lowest ids stay.

    Raises:
        ValueError: a parameter out of range, or logits that are no distribution.
    """
    _check(logits, temperature, top_k, top_p)
    if temperature == 0:
        greedy = np.zeros(len(logits))
        greedy[np.argmax(logits)] = 1.0
        return Sampling(probability=greedy, n_kept=1, kept_mass=1.0, entropy_nats=0.0)
    with np.errstate(
        over="ignore"
    ):  # a very low temperature may take a difference to -inf: probability zero, as it should be
        tempered = (logits.astype(np.float64) - float(logits.max())) / temperature
    before = np.exp(log_softmax(tempered))
    kept = np.isfinite(tempered)  # a logit of -inf is no token at all
    if 0 < top_k < len(tempered):
        kept &= tempered >= np.partition(tempered, -top_k)[-top_k]
    if top_p < 1:
        kept = _top_p(np.where(kept, before, 0.0), top_p) & kept
    kept_mass = float(before[kept].sum())
    probability = np.where(kept, before / kept_mass, 0.0)
    return Sampling(probability, int(kept.sum()), min(kept_mass, 1.0), entropy_nats(probability))


def log_softmax(logits: Float[np.ndarray, " d_vocab"]) -> Float64[np.ndarray, " d_vocab"]:
    """Natural logarithm of the probabilities, in float64: a sum of 49,152 float32 terms loses its last digits."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return shifted - np.log(np.exp(shifted).sum())


def logsumexp_and_entropy(logits: Float[np.ndarray, " d_vocab"]) -> tuple[float, float]:
    """What a logit exceeds its log-probability by, log sum(e^x), and the entropy; both in nats, in float64.

    The entropy is log sum(e^x) - sum(x e^x) / sum(e^x): one exponential of the vocabulary and no logarithm, a third of the time
    of going through the probabilities. The largest logit must be finite; one of -inf is a token that cannot be.
    """
    peak = float(logits.max())
    shifted = logits.astype(np.float64) - peak
    mass = np.exp(shifted)
    total = float(mass.sum())
    np.maximum(shifted, LOWEST, out=shifted)  # a logit of -inf has no mass
    mean = float((mass * shifted).sum()) / total  # no BLAS: its threads would go on turning while the model runs
    return peak + math.log(total), max(0.0, math.log(total) - mean)


def entropy_nats(probability: Float[np.ndarray, " d_vocab"]) -> float:
    """Entropy in nats; a token of probability zero adds nothing. In bits: divided by ln 2."""
    positive = probability[probability > 0].astype(np.float64)
    return max(0.0, float(-(positive * np.log(positive)).sum()))


def _top_p(probability: Float64[np.ndarray, " d_vocab"], top_p: float) -> Bool[np.ndarray, " d_vocab"]:
    """The smallest set of most probable tokens whose share reaches `top_p`; always at least one token."""
    values = np.sort(probability)[::-1]  # values only: five times as fast as sorting ids by them
    mass = np.cumsum(values)
    n = min(int(np.searchsorted(mass, top_p * mass[-1])) + 1, len(values))
    edge = values[n - 1]
    chosen = probability > edge
    chosen[np.flatnonzero(probability == edge)[: n - int(chosen.sum())]] = True
    return chosen


def _check(logits: Float[np.ndarray, " d_vocab"], temperature: float, top_k: int, top_p: float) -> None:
    """Refuse what has no meaning, before anything is computed."""
    if not len(logits) or not np.isfinite(logits.max()):
        raise ValueError("needs logits with a finite largest value; found none; compute the next token's logits first.")
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(f"needs a temperature of at least 0; found {temperature}; choose 0 (greedy) or more.")
    if top_k < 0:
        raise ValueError(f"needs a top-k of at least 0; found {top_k}; choose 0 to keep every token.")
    if not 0 < top_p <= 1:
        raise ValueError(f"needs a top-p above 0 and at most 1; found {top_p}; choose 1 to keep every token.")
