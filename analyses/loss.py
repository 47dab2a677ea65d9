"""What surprised it? The loss of every token of a text, given the tokens before it.

The loss of a token is -log of the probability that the model had assigned to it: the surprise (Shannon 1948, "A Mathematical
Theory of Communication"), and what the model was trained to make small. Its mean over tokens is the cross-entropy; perplexity is
exp(mean), the number of equally likely tokens that would surprise as much (Jelinek, Mercer, Bahl and Baker 1977, "Perplexity: a
measure of the difficulty of speech recognition tasks"). One bit is ln 2 nats.

A text longer than the context is read in windows of W tokens, S further each time. Every token is scored once, in the first
window that holds it, so with at least W - S tokens of context, or all there are (the sliding window of transformers'
documentation, "Perplexity of fixed-length models").

Identity: T tokens have T - 1 losses, for nothing stands before the first; loss = -log softmax(logits)[token], as transformers
computes it; perplexity = exp(mean) = 2^bits. The mean is over tokens, and only then exponentiated: a mean of perplexities is
another number.

Limit: nats per token depend on the tokenizer, so they compare texts under one model, not models with different vocabularies;
bits per byte do. W, S and a token in front (BOS) change the number and belong beside it. A low loss is not truth, and not
understanding: a text that repeats itself, or that was in the training data, surprises little.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int32

from analyses._arrays import check_ids, to_float32
from analyses._readout import CHUNK_BYTES, row_chunks
from analyses._steps import Cost, Profile, Progress, Steps, drain

ANY_LENGTH = 1 << 40  # windows make the context no limit for the text
_COLUMNS = ("loss_nats", "entropy_nats", "top_log_probability", "rank", "top_ids")


@dataclass(frozen=True, eq=False)
class Loss:
    """One entry per target: entry `i` is about token `i + 1`, given the tokens up to `i` (as many as its window holds)."""

    loss_nats: Float32[np.ndarray, " target"]
    entropy_nats: Float32[np.ndarray, " target"]  # expected loss under the model's own distribution
    rank: Int32[np.ndarray, " target"]  # of the token that came: 0 was the first choice
    target_ids: Int32[np.ndarray, " target"]  # the token that came
    top_ids: Int32[np.ndarray, "target k"]  # the model's guesses, most probable first
    top_log_probability: Float32[np.ndarray, "target k"]  # nats
    context: Int32[np.ndarray, " target"]  # tokens before it in the window in which it was scored
    window: int  # tokens
    stride: int  # tokens
    n_passes: int
    uniform_loss_nats: float  # ln(vocabulary)

    @property
    def mean_nats(self) -> float:
        """Cross-entropy per token."""
        return float(self.loss_nats.astype(np.float64).mean())

    @property
    def mean_bits(self) -> float:
        """The same in bits."""
        return self.mean_nats / math.log(2)

    @property
    def perplexity(self) -> float:
        """exp(mean); inf where that is too large for a number."""
        return math.exp(self.mean_nats) if self.mean_nats < 709 else math.inf

    @property
    def probability(self) -> Float64[np.ndarray, " target"]:
        """What the model had assigned to each token that came."""
        return np.exp(-self.loss_nats.astype(np.float64))

    def bits_per_byte(self, n_bytes: int) -> float:
        """Total bits over the bytes of the targets: all tokens but the first.

        Raises:
            ValueError: no bytes.
        """
        if n_bytes < 1:
            raise ValueError(f"needs the number of bytes of the scored tokens; found {n_bytes}; pass at least 1.")
        return self.mean_bits * len(self.loss_nats) / n_bytes

    def to_frame(self) -> Any:
        """A pandas table, one row per target: position, id, loss, bits, probability, rank, entropy, context, first guess."""
        import pandas as pd

        return pd.DataFrame(
            {
                "position": np.arange(1, len(self.loss_nats) + 1),
                "id": self.target_ids,
                "loss_nats": self.loss_nats,
                "loss_bits": self.loss_nats / math.log(2),
                "probability": self.probability,
                "rank": self.rank,
                "entropy_nats": self.entropy_nats,
                "context": self.context,
                "top_id": self.top_ids[:, 0],
                "top_probability": np.exp(self.top_log_probability[:, 0].astype(np.float64)),
            }
        )


def loss_steps(
    model: Any, tokens: Any, *, window: int | None = None, stride: int | None = None, top_k: int = 5
) -> Steps[Loss]:
    """The steps of `run_loss`: one forward pass per window."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=ANY_LENGTH, at_least=2)
    window, stride = plan(len(ids), config.n_ctx, window, stride)
    if not 1 <= top_k <= config.d_vocab:
        raise ValueError(f"needs a top-k from 1 to {config.d_vocab:,}; found {top_k:,}; choose how many to list.")
    passes, found, context = windows(len(ids), window, stride), [], []
    for index, (begin, end, first) in enumerate(passes):
        yield Progress(index, len(passes), note=f"window {index + 1} of {len(passes)}" if len(passes) > 1 else "")
        found.append(_score(model, ids[begin:end], first - begin, top_k))
        context.append(np.arange(first - begin, end - begin, dtype=np.int32))
    columns = {name: np.concatenate([part[name] for part in found]) for name in _COLUMNS}
    return Loss(
        **columns,
        target_ids=np.array(ids[1:], dtype=np.int32),
        context=np.concatenate(context),
        window=window,
        stride=stride,
        n_passes=len(passes),
        uniform_loss_nats=math.log(config.d_vocab),
    )


def run_loss(model: Any, tokens: Any, *, window: int | None = None, stride: int | None = None, top_k: int = 5) -> Loss:
    """The loss of every token of a text but the first.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`; more than the context may be given.
        window: tokens that are read at once; None is the model's context.
        stride: how much further each window begins; None is half a window. A shorter text is read in one pass.
        top_k: guesses to keep for every position.

    Raises:
        ValueError: fewer than two tokens, text instead of ids, a window larger than the context, or a stride that would leave a
            token without context.
    """
    return drain(loss_steps(model, tokens, window=window, stride=stride, top_k=top_k))


def cost_loss(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass per window; every target is read out once."""
    window, stride = plan(n_tokens, profile.n_ctx, params.get("window"), params.get("stride"))
    width, n_passes = min(window, max(n_tokens, 1)), n_windows(n_tokens, window, stride)
    return Cost(
        seconds=n_passes * profile.forward_seconds(width) + profile.per_readout * (n_tokens + n_passes),
        peak_bytes=profile.forward_bytes(width, readouts=1) + 2 * CHUNK_BYTES,
        result_bytes=4 * n_tokens * (5 + 2 * params.get("top_k", 5)),
    )


def plan(n_tokens: int, n_ctx: int, window: int | None, stride: int | None) -> tuple[int, int]:
    """Window and stride, with what was left open filled in.

    Raises:
        ValueError: a window that does not fit the context, or a stride that leaves a token without context.
    """
    chosen = n_ctx if window is None else window
    if not 2 <= chosen <= n_ctx:
        raise ValueError(
            f"needs a window from 2 to {n_ctx:,} tokens (the model's context); found {chosen:,}; choose one between."
        )
    step = chosen // 2 if stride is None else stride
    most = chosen - 1 if n_tokens > chosen else chosen
    if not 1 <= step <= most:
        raise ValueError(
            f"needs a stride from 1 to {most:,}, so that every token has some context in a window of {chosen:,}; found "
            f"{step:,}; choose a smaller one."
        )
    return chosen, step


def n_windows(n_tokens: int, window: int, stride: int) -> int:
    """How many windows a text takes."""
    return 1 + max(0, -(-(n_tokens - window) // stride))


def windows(n_tokens: int, window: int, stride: int) -> tuple[tuple[int, int, int], ...]:
    """Begin, end and first scored token of every window."""
    begins = [index * stride for index in range(n_windows(n_tokens, window, stride))]
    ends = [min(begin + window, n_tokens) for begin in begins]
    return tuple(zip(begins, ends, [1, *ends], strict=False))


def _score(model: Any, ids: tuple[int, ...], first: int, top_k: int) -> dict[str, Any]:
    """Numbers of the tokens from `first` on, in one forward pass; logits of a few rows at a time."""
    import torch

    at = slice(first - 1, len(ids) - 1)
    if model.capabilities["readout"]:  # then only the model itself turns its stream into logits
        rows, read = model.forward(ids)[0, at], lambda logits: logits
    else:
        kept: list[Any] = []
        last = model.hook_name("resid_post", model.config.n_layers - 1)
        with model.hooks((last, lambda resid, hook: kept.append(resid[0, at]))):
            model.forward(ids, last_only=True)
        rows, read = kept[0], model.readout
    targets = torch.tensor(ids[first:], device=rows.device)[:, None]
    found: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for part in row_chunks(model, len(rows), held=5):
        log_probability = read(rows[part]).float().log_softmax(-1)
        own = log_probability.gather(-1, targets[part])
        top = log_probability.topk(top_k)
        found["loss_nats"].append(to_float32(-own[:, 0]))
        found["rank"].append((log_probability > own).sum(-1).cpu().numpy().astype(np.int32))
        found["top_ids"].append(top.indices.cpu().numpy().astype(np.int32))
        found["top_log_probability"].append(to_float32(top.values))
        # Lowest float, not -inf, where a family masks tokens: 0 * -inf would be NaN.
        wide = log_probability.clamp(min=torch.finfo(torch.float32).min)
        found["entropy_nats"].append(to_float32(-(wide.exp() * wide).sum(-1)))
    return {name: np.concatenate(parts) for name, parts in found.items()}


@dataclass(frozen=True, eq=False)
class ContextBins:
    """Mean loss by the tokens of context: 1, 2 to 3, 4 to 7, and so on, each bin twice as wide as the one before."""

    first: Int32[np.ndarray, " bin"]  # tokens of context
    last: Int32[np.ndarray, " bin"]
    n_targets: Int32[np.ndarray, " bin"]
    mean_nats: Float64[np.ndarray, " bin"]
    error_nats: Float64[np.ndarray, " bin"]  # standard error of the mean; NaN for one target


def loss_by_context(loss: Loss) -> ContextBins:
    """Does more context help?

    Olsson et al. 2022, "In-context Learning and Induction Heads", compare the loss of token 500 with that of token 50.
    """
    values, bins = loss.loss_nats.astype(np.float64), np.log2(loss.context).astype(int)
    groups = {index: values[bins == index] for index in np.unique(bins)}
    largest = int(loss.context.max())
    return ContextBins(
        first=np.array([2**index for index in groups], dtype=np.int32),
        last=np.array([min(2 ** (index + 1) - 1, largest) for index in groups], dtype=np.int32),
        n_targets=np.array([len(group) for group in groups.values()], dtype=np.int32),
        mean_nats=np.array([group.mean() for group in groups.values()]),
        error_nats=np.array(
            [group.std(ddof=1) / math.sqrt(len(group)) if len(group) > 1 else math.nan for group in groups.values()]
        ),
    )
