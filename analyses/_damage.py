"""How far damaged runs are from the whole model: loss, KL divergence, agreement, and what is predicted at the end.

Base and variants are read out together, a few positions at a time, so nothing of size variants x positions x vocabulary exists.
The KL divergence needs one product per row: sum of p * (log p - log q) = sum of p * log p - (sum of p * logits of q) + log of
q's normaliser. Positions that count are those that have a next token ("all"), or the last one alone ("last").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int32

from analyses._arrays import check_ids, to_float32
from analyses._readout import row_chunks

POSITIONS = ("all", "last")


def check_text(model: Any, tokens: Any, positions: str) -> tuple[int, ...]:
    """The ids of a text that has a position that counts.

    Raises:
        ValueError: positions that are neither "all" nor "last", or ids that do not fit.
    """
    if positions not in POSITIONS:
        raise ValueError(f"needs positions 'all' or 'last'; found {positions!r}; choose one of them.")
    config = model.config
    return check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx, at_least=2 if positions == "all" else 1)


@dataclass(frozen=True, eq=False)
class Damage:
    """Filled variant by variant; NaN where nothing has been read yet."""

    position_loss_nats: Float32[np.ndarray, "variant target"]  # no targets when only the last position counts
    kl_nats: Float32[np.ndarray, " variant"]  # KL(whole || variant), mean over the positions that count
    top1_agreement: Float32[np.ndarray, " variant"]  # share of them with the same first choice
    top_ids: Int32[np.ndarray, "variant k"]  # after the last position, most probable first
    top_log_probability: Float32[np.ndarray, "variant k"]
    first_log_probability: Float32[np.ndarray, "variant k"]  # of the whole model's top k

    @property
    def loss_nats(self) -> Float64[np.ndarray, " variant"]:
        """Mean over the targets; NaN when there are none."""
        if not self.position_loss_nats.shape[1]:
            return np.full(len(self.kl_nats), np.nan)
        return self.position_loss_nats.astype(np.float64).mean(1)


def no_damage_yet(n_variants: int, n_targets: int, top_k: int) -> Damage:
    """Room for so many variants."""
    nothing = [np.full(shape, np.nan, dtype=np.float32) for shape in ((n_variants, n_targets), n_variants, n_variants)]
    top = [np.full((n_variants, top_k), value, dtype) for value, dtype in ((-1, np.int32), (np.nan, np.float32))]
    return Damage(*nothing, *top, np.full((n_variants, top_k), np.nan, dtype=np.float32))


class Yardstick:
    """What one run, as a rule the whole model, says of a text at the positions that count; others are measured against it."""

    def __init__(
        self, model: Any, logits: Float[Any, "pos d_vocab"], ids: tuple[int, ...], positions: str, top_k: int = 0
    ) -> None:
        import torch

        self._model = model
        every = positions == "all"
        self._slice = slice(None, -1) if every else slice(-1, None)
        self._logits = logits[self._slice]
        self._targets = torch.tensor(ids[1:] if every else (), device=logits.device)
        n_positions = len(self._logits)
        self._lse, self._mean_logit = torch.empty(2, n_positions, device=logits.device)
        self._first = torch.empty(n_positions, dtype=torch.int64, device=logits.device)
        losses = []
        for at in row_chunks(model, n_positions, held=3):
            part = self._logits[at].float()
            self._lse[at] = part.logsumexp(-1)
            self._mean_logit[at] = _product(self._shares(at), part[None])[0]
            self._first[at] = part.argmax(-1)
            if every:
                losses.append(self._lse[at] - part.gather(-1, self._targets[at, None])[:, 0])
        self.position_loss_nats = to_float32(torch.cat(losses)) if losses else np.empty(0, dtype=np.float32)
        self.loss_nats = float(self.position_loss_nats.astype(np.float64).mean()) if losses else float("nan")
        top = logits[-1].float().log_softmax(-1).topk(top_k)
        self.top_ids, self._top = top.indices.cpu().numpy().astype(np.int32), top.indices
        self.top_log_probability = to_float32(top.values)

    @property
    def n_targets(self) -> int:
        """Positions with a next token whose loss counts."""
        return len(self._targets)

    def read(self, damage: Damage, variants: Sequence[int], rows: Float[Any, "variant pos d_model"]) -> None:
        """Write into `damage` what these variants' streams after the last layer say."""
        for part in row_chunks(self._model, len(rows)):
            self._read_part(damage, list(variants[part]), rows[part])

    def _read_part(self, damage: Damage, where: list[int], rows: Float[Any, "variant pos d_model"]) -> None:
        import torch

        picked = rows[:, self._slice]
        loss, kl, same = [], [], []
        # One array of logits as large as the budget, and as much again inside logsumexp: with half as many rows the product
        # with the unembedding takes a third longer per row (2.0 against 1.5 ms on one thread).
        for at in row_chunks(self._model, len(self._logits), held=len(where)):
            logits = self._model.readout(picked[:, at]).float()
            lse = logits.logsumexp(-1)
            kl.append(self._mean_logit[at] - self._lse[at] - _product(self._shares(at), logits) + lse)
            same.append(logits.argmax(-1) == self._first[at])
            if self.n_targets:
                wanted = self._targets[at].expand(len(where), -1)[..., None]
                loss.append(lse - logits.gather(-1, wanted)[..., 0])
        damage.kl_nats[where] = to_float32(torch.cat(kl, dim=1).mean(1).clamp(min=0))
        damage.top1_agreement[where] = to_float32(torch.cat(same, dim=1).float().mean(1))
        if loss:
            damage.position_loss_nats[where] = to_float32(torch.cat(loss, dim=1))
        if damage.top_ids.shape[1]:
            # When only the last position counts it has just been read.
            self._keep_top(damage, where, self._model.readout(rows[:, -1]).float() if loss else logits[:, -1])

    def _keep_top(self, damage: Damage, where: list[int], logits: Float[Any, "variant d_vocab"]) -> None:
        found = logits.log_softmax(-1)
        top = found.topk(damage.top_ids.shape[1])
        damage.top_ids[where] = top.indices.cpu().numpy()
        damage.top_log_probability[where] = to_float32(top.values)
        damage.first_log_probability[where] = to_float32(found[:, self._top])

    def _shares(self, at: slice) -> Float[Any, "pos d_vocab"]:
        """Probabilities of the whole model."""
        return (self._logits[at].float() - self._lse[at, None]).exp()


def _product(shares: Float[Any, "pos d_vocab"], logits: Float[Any, "variant pos d_vocab"]) -> Float[Any, "variant pos"]:
    """Mean logit of every row under the whole model's probabilities; no copy of the logits is made."""
    import torch

    return torch.einsum("pv,npv->np", shares, logits)
