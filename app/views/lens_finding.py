"""The computed sentence of the page "Logit lens"."""

import numpy as np

from analyses.logit_lens import LogitLens
from app.components.finding import Piece
from app.ui.token_text import percent

EMPTY = "An empty prompt has nothing to read. Write one on the left."


def target_words(lens: LogitLens, at: int, pieces: tuple[bytes, bytes]) -> list[str | Piece]:
    """What the lens says of the target after one token.

    Args:
        lens: the result.
        at: column of the result.
        pieces: the token of that column, and the target.
    """
    before, target = (Piece(piece) for piece in pieces)
    position, n_layers = int(lens.positions[at]), lens.n_depths - 1
    rank, probability = lens.target_rank[:, at], lens.target_probability[:, at]
    start: list[str | Piece] = ["After ", before, f" (token {position}), ", target]
    first = int(lens.leads_from[at])
    if rank[-1] > 0:
        n = int(rank[-1])
        before = "1 token is" if n == 1 else f"{n:,} tokens are"
        said = f" is not the answer: at the end {before} more probable (it has {percent(float(probability[-1]))})."
    elif first >= n_layers:
        only = "leads only" if (rank[:-1] > 0).all() else "led before, but lastingly leads only"
        said = f" {only} after the last layer, {n_layers - 1} ({percent(float(probability[-1]))})."
    elif first == 0:
        said = f" leads from the embedding on and ends at {percent(float(probability[-1]))}."
    else:
        said = (
            f" leads from layer {first - 1} on ({percent(float(probability[first]))} there, "
            f"{percent(float(probability[-1]))} at the end)."
        )
    return [*start, said]


def worse_than_guessing(lens: LogitLens, d_vocab: int) -> list[str]:
    """Through which depth the loss on the tokens that really follow is above that of a uniform guess, on this prompt."""
    loss, n_tokens = mean_loss(lens)
    uniform = float(np.log(d_vocab))
    if not n_tokens or not np.isfinite(loss).all():
        return []
    worse = np.flatnonzero(loss > uniform)
    tokens = "the one token that follows" if n_tokens == 1 else f"the {n_tokens} tokens that follow"
    if not len(worse):
        return [f" On {tokens} here, the lens is better than a uniform guess ({uniform:.1f} nats) at every depth."]
    through = int(worse[-1])
    left_out = ", token 0 left out" if lens.positions[0] == 0 else ""
    whole = "" if len(worse) == through + 1 else "at times "
    return [
        f" Through depth {through}{_after(through)} this lens is {whole}worse than a uniform guess "
        f"({uniform:.1f} nats; mean loss on {tokens} here{left_out})."
    ]


def _after(depth: int) -> str:
    return f" (after layer {depth - 1})" if depth else ""


def mean_loss(lens: LogitLens) -> tuple[np.ndarray, int]:
    """Mean loss by depth over the positions after 0 whose next token is in the prompt, and how many they are."""
    counted = (lens.positions > 0) & np.isfinite(lens.next_loss_nats[-1])
    n = int(counted.sum())
    return (lens.next_loss_nats[:, counted].mean(1) if n else np.full(lens.n_depths, np.nan)), n
