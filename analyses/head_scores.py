"""Which heads look one token back, at the same token, or at what followed it last time? Scores of every head.

On seeded sequences [start] r r, r being random distinct tokens, the copy can only be predicted by looking at the first r.
With n the length of r and A[q, k] a head's attention, means over sequences and rows q:

* induction       A[q, q - n + 1] over the second copy: the token that followed this one last time
                  (Olsson et al. 2022, "In-context Learning and Induction Heads")
* duplicate_token A[q, q - n] over the second copy: the same token
* previous_token, current_token, first_token   A[q, q - 1], A[q, q], A[q, 0] over all rows but the first
* entropy_nats    -sum_k A ln A over all rows but the first; `entropy_share` divides each row by its largest possible value
* push            what the head adds straight to the logit of the token that follows, against the mean over r, over the second
                  copy without its last row; the norms' statistics are held as they are in the run

On a person's own prompt, induction and duplicate are sums over all earlier copies of the token, over the rows that have one, and
they are not defined where no token repeats.

Identity: a head that puts all its weight on q - n + 1 scores exactly 1 for induction and 0 for the others.

Limit: a score says where a head looks on random repeats, not what it does. Olsson et al. also require that it copies: in SmolLM2
L17H4 looks and writes nothing towards the answer itself, and L24H4 writes against it. So `push` stands beside, and the check by
ablation (head_check.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses._arrays import check_ids
from analyses._heads import head_name
from analyses._repeated import COPY, SEQUENCES, Repeated, repeated_tokens
from analyses._score_reader import ScoreReader, prompt_rows, random_rows
from analyses._steps import Cost, Profile, Progress, Steps, drain

SCORES = ("induction", "duplicate_token", "previous_token", "first_token", "current_token")
MOST_SEEDS, MOST_SEQUENCES = 10, 32


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Scores of every head, 0 to 1 (entropy and push: see the unit). None where they are not defined."""

    on: str  # "random" or "prompt"
    seed: int
    n_seeds: int
    n_sequences: int
    n_copy: int  # tokens of one copy; 0 on a prompt
    start: int | None  # the token in front of the sequences
    induction: Float32[np.ndarray, "layer head"] | None
    duplicate_token: Float32[np.ndarray, "layer head"] | None
    previous_token: Float32[np.ndarray, "layer head"]
    first_token: Float32[np.ndarray, "layer head"]
    current_token: Float32[np.ndarray, "layer head"]
    entropy_nats: Float32[np.ndarray, "layer head"]
    entropy_share: Float32[np.ndarray, "layer head"]  # 1: spread over all tokens alike
    push: Float32[np.ndarray, "layer head"] | None  # logits, straight to the induction target; only on random tokens
    induction_reason: str  # why induction is None
    duplicate_reason: str
    push_reason: str
    # Standard deviation over the seeds `seed`, `seed` + 1, ...; None for one seed. The scores above are those of `seed`.
    induction_spread: Float32[np.ndarray, "layer head"] | None
    previous_token_spread: Float32[np.ndarray, "layer head"] | None
    first_copy_loss_nats: float  # NaN on a prompt
    second_copy_loss_nats: float  # without its first token; NaN on a prompt

    def rank(self, score: str) -> Int32[np.ndarray, "layer head"] | None:
        """How many heads score higher: 0 is the top. None where the score is not defined; equal scores share a rank.

        Raises:
            ValueError: an unknown score.
        """
        if score not in (*SCORES, "entropy_nats", "entropy_share", "push"):
            raise ValueError(f"needs one of {', '.join(SCORES)}, entropy_nats or push; found {score!r}; choose one.")
        values = getattr(self, score)
        if values is None:
            return None
        higher = np.searchsorted(np.sort(-values.ravel()), -values.ravel(), side="left")
        return higher.reshape(values.shape).astype(np.int32)

    def top(self, score: str, n: int = 10) -> tuple[str, ...]:
        """Names of the n heads that score highest, best first; none where the score is not defined."""
        rank = self.rank(score)
        if rank is None:
            return ()
        order = np.argsort(rank.ravel(), kind="stable")[:n]
        return tuple(head_name(*divmod(int(i), rank.shape[1])) for i in order)

    def to_frame(self) -> Any:
        """A pandas table, one row per head: layer, head, name, every score that is defined, rank of the induction score."""
        import pandas as pd

        n_layers, n_heads = self.previous_token.shape
        layer, head = np.divmod(np.arange(n_layers * n_heads), n_heads)
        columns: dict[str, Any] = {"layer": layer, "head": head}
        columns["name"] = [head_name(*pair) for pair in zip(layer.tolist(), head.tolist(), strict=True)]
        names = (*SCORES, "entropy_nats", "entropy_share", "push", "induction_spread", "previous_token_spread")
        for name in names:
            if (values := getattr(self, name)) is not None:
                columns[name] = values.ravel()
        if (rank := self.rank("induction")) is not None:
            columns["induction_rank"] = rank.ravel()
        return pd.DataFrame(columns)


def head_scores_steps(
    model: Any,
    tokens: Any = (),
    *,
    on: str = "random",
    seed: int = 0,
    n_seeds: int = 3,
    n_sequences: int = SEQUENCES,
    n_copy: int | None = None,
    start: int | str = "document",
) -> Steps[HeadScores]:
    """The steps of `run_head_scores`: one forward pass per seed, or one of the prompt."""
    _check(on, seed, n_seeds, n_sequences)
    model.require("pattern")
    if on == "prompt":
        ids = check_ids(tokens, d_vocab=model.config.d_vocab, n_ctx=model.config.n_ctx, at_least=2)
        yield Progress(0, 1, note="one forward pass")
        reader = ScoreReader(model, prompt_rows(ids))
        reader.run(model, ids)
        return _result(reader, on=on, seed=seed)
    texts = [
        repeated_tokens(model, seed=seed + i, sequences=n_sequences, copy=n_copy, start=start) for i in range(n_seeds)
    ]
    readers: list[ScoreReader] = []
    for done, text in enumerate(texts):
        yield Progress(done, n_seeds, note=f"random tokens, seed {seed + done}")
        # Only the first seed is shown with its push and losses; the others say how far scores move.
        reader = ScoreReader(model, random_rows(text), text if done == 0 else None)
        reader.run(model, text.ids)
        readers.append(reader)
    return _result(*readers, on=on, seed=seed, text=texts[0])


def run_head_scores(
    model: Any,
    tokens: Any = (),
    *,
    on: str = "random",
    seed: int = 0,
    n_seeds: int = 3,
    n_sequences: int = SEQUENCES,
    n_copy: int | None = None,
    start: int | str = "document",
) -> HeadScores:
    """Scores of every head.

    Args:
        model: a HookedModel.
        tokens: the prompt, where `on` is "prompt"; not read otherwise.
        on: "random" for repeated random tokens, "prompt" for the prompt.
        seed: of the random tokens.
        n_seeds: draws for the spread; the scores themselves are those of `seed`.
        n_sequences: sequences per seed.
        n_copy: tokens of one copy; None for 50, or as many as the context holds.
        start: "document" for the token that separates documents, "none", or an id.

    Raises:
        ValueError: a model without attention maps, a parameter out of range, or a prompt of fewer than two tokens.
    """
    named = dict(on=on, seed=seed, n_seeds=n_seeds, n_sequences=n_sequences, n_copy=n_copy, start=start)
    return drain(head_scores_steps(model, tokens, **named))


def cost_head_scores(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass per seed and two copies read out once, or one forward pass of the prompt."""
    result = 12 * 4 * profile.n_layers * profile.n_heads
    if params.get("on") == "prompt":
        seconds = profile.forward_seconds(n_tokens) + profile.per_readout
        return Cost(seconds, profile.forward_bytes(n_tokens), result)
    sequences, seeds = params.get("n_sequences", SEQUENCES), params.get("n_seeds", 3)
    pos = min(1 + 2 * (params.get("n_copy") or COPY), profile.n_ctx)
    seconds = seeds * profile.forward_seconds(pos, sequences) + profile.per_readout * sequences * (pos + seeds)
    return Cost(seconds, profile.forward_bytes(pos, sequences) + (64 << 20) + 8 * profile.d_model**2, result)


def _check(on: str, seed: int, n_seeds: int, n_sequences: int) -> None:
    if on not in ("random", "prompt"):
        raise ValueError(f"needs random or prompt to score on; found {on!r}; choose one of them.")
    if seed < 0:
        raise ValueError(f"needs a seed from 0 up; found {seed}; choose another.")
    for value, most, what in ((n_seeds, MOST_SEEDS, "seeds"), (n_sequences, MOST_SEQUENCES, "sequences")):
        if not 1 <= value <= most:
            raise ValueError(f"needs 1 to {most} {what}; found {value}; choose another number.")


def _result(*readers: ScoreReader, on: str, seed: int, text: Repeated | None = None) -> HeadScores:
    first = readers[0]

    def spread(name: str) -> Float32[np.ndarray, "layer head"] | None:
        values = [reader.score(name) for reader in readers]
        return None if len(values) == 1 else np.std(values, axis=0, ddof=1).astype(np.float32)

    return HeadScores(
        on=on,
        seed=seed,
        n_seeds=len(readers) if text else 0,
        n_sequences=len(text.ids) if text else 1,
        n_copy=text.n_copy if text else 0,
        start=text.start if text else None,
        **{name: first.score(name) for name in (*SCORES, "entropy_nats", "entropy_share")},
        push=first.push,
        induction_reason=first.rows.induction_reason,
        duplicate_reason=first.rows.duplicate_reason,
        push_reason=first.push_reason,
        induction_spread=spread("induction"),
        previous_token_spread=spread("previous_token"),
        first_copy_loss_nats=first.losses[0],
        second_copy_loss_nats=first.losses[1],
    )
