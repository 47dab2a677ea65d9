"""What comes next? The model's distribution over the whole vocabulary after one position of the prompt.

The logits of a position are the model's only output; softmax makes them probabilities. Entropy is how undecided the
distribution is: 0 nats when one token has everything, ln(vocabulary) when all are equal (Shannon 1948, "A Mathematical
Theory of Communication").

Only the prompt up to that position is run. A decoder cannot look ahead (causal attention: Vaswani et al. 2017,
"Attention Is All You Need"), so the tokens after it cannot change the answer.

Identity: the probabilities of the whole vocabulary sum to one; log_probability = logit - logsumexp(logits).

Limit: a probability belongs to this model, this tokenizer and this exact beginning: a beginning-of-sequence token or a
trailing space changes it. It says what the model assigns to the next token, not what is true.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses._arrays import check_ids, to_float32
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses.sampling import entropy_nats, log_softmax
from analyses.vocabulary import Vocabulary, printable


@dataclass(frozen=True, eq=False)
class NextToken:
    """The distribution after one position, and its k most probable tokens, most probable first."""

    position: int  # from zero: the token after this one is predicted
    ids: Int32[np.ndarray, " k"]
    probability: Float32[np.ndarray, " k"]  # share of the whole vocabulary, not of these k
    log_probability: Float32[np.ndarray, " k"]  # nats
    logits: Float32[np.ndarray, " d_vocab"]
    entropy_nats: float  # of the whole distribution

    def to_frame(self, vocabulary: Vocabulary | None = None) -> Any:
        """A pandas table, one row per token: rank, id, (token,) probability, log_probability_nats, logit."""
        import pandas as pd

        columns: dict[str, Any] = {"rank": np.arange(len(self.ids)), "id": self.ids}
        if vocabulary is not None:
            columns["token"] = [printable(vocabulary.piece(i)) for i in self.ids]
        columns["probability"] = self.probability
        columns["log_probability_nats"] = self.log_probability
        columns["logit"] = self.logits[self.ids]
        return pd.DataFrame(columns)


def next_token_steps(model: Any, tokens: Any, *, position: int = -1, top_k: int = 10) -> Steps[NextToken]:
    """The steps of `run_next_token`: one forward pass."""
    d_vocab = model.config.d_vocab
    ids = check_ids(tokens, d_vocab=d_vocab, n_ctx=model.config.n_ctx)
    if not -len(ids) <= position < len(ids):
        raise ValueError(f"needs a position from 0 to {len(ids) - 1}; found {position}; choose a token of the prompt.")
    if not 1 <= top_k <= d_vocab:
        raise ValueError(f"needs a top-k from 1 to {d_vocab:,}; found {top_k:,}; choose how many tokens to list.")
    position %= len(ids)
    yield Progress(0.0, 1.0, note="one forward pass")
    logits = to_float32(model.forward(ids[: position + 1], last_only=True)[0, -1])
    log_probability = log_softmax(logits)
    top = np.argsort(-logits, kind="stable")[:top_k]  # stable: of equal logits the lowest id comes first
    return NextToken(
        position=position,
        ids=top.astype(np.int32),
        probability=np.exp(log_probability[top]).astype(np.float32),
        log_probability=log_probability[top].astype(np.float32),
        logits=logits,
        entropy_nats=entropy_nats(np.exp(log_probability)),
    )


def run_next_token(model: Any, tokens: Any, *, position: int = -1, top_k: int = 10) -> NextToken:
    """The distribution of the token after `position`.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        position: of the last token that is read; negative ones count from the end.
        top_k: how many of the most probable tokens to list.

    Raises:
        ValueError: no tokens, too many, text instead of ids, or a position or top-k out of range.
    """
    return drain(next_token_steps(model, tokens, position=position, top_k=top_k))


def cost_next_token(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass of the tokens up to the position, read out once."""
    position = params.get("position", -1)
    n_read = min(max(position + 1 if position >= 0 else n_tokens + position + 1, 1), max(n_tokens, 1))
    return Cost(
        seconds=profile.forward_seconds(n_read) + profile.per_readout,
        peak_bytes=profile.forward_bytes(n_read) + 5 * 8 * profile.d_vocab,  # float64: logits, softmax, order, entropy
        result_bytes=4 * profile.d_vocab + 12 * params.get("top_k", 10),
    )
