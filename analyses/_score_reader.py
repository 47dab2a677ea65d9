"""Reads head scores off each layer's maps inside its hook: no two layers' maps are held, and one forward pass is enough."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int64

from analyses._arrays import to_float32
from analyses._push import head_pushes
from analyses._repeated import Repeated, copy_losses

NO_REPEAT = "not defined, no token repeats"
NO_FOLLOWER = "not defined, no repeated token has another token between its copies"

Pairs = Int64[np.ndarray, "2 _"]  # query and key of each


@dataclass(frozen=True, eq=False)
class Rows:
    """Which pairs count for induction and for duplicate, and over how many rows their sum is divided."""

    induction: Pairs
    duplicate: Pairs
    n_induction: int
    n_duplicate: int
    induction_reason: str = ""  # why there are none
    duplicate_reason: str = ""


def random_rows(text: Repeated) -> Rows:
    """Every row of the second copy, one pair each."""
    query = np.arange(text.second, text.second + text.n_copy)
    same = query - text.n_copy
    return Rows(np.stack([query, same + 1]), np.stack([query, same]), len(query), len(query))


def prompt_rows(ids: tuple[int, ...]) -> Rows:
    """Rows whose token has come before: all its earlier places (duplicate), and those right after them (induction).

    A place right after an earlier copy that is the row itself (a token twice in a row) is no earlier follower.
    """
    before: dict[int, list[int]] = {}  # token -> its places so far
    duplicate: list[tuple[int, int]] = []
    for q, token in enumerate(ids):
        places = before.setdefault(token, [])
        duplicate += [(q, k) for k in places]
        places.append(q)
    induction = [(q, k + 1) for q, k in duplicate if k + 1 < q]
    return Rows(
        *(np.array(pairs, dtype=np.int64).reshape(-1, 2).T for pairs in (induction, duplicate)),
        *(len({q for q, _ in pairs}) for pairs in (induction, duplicate)),
        "" if induction else NO_FOLLOWER if duplicate else NO_REPEAT,
        "" if duplicate else NO_REPEAT,
    )


class ScoreReader:
    """Scores of one forward pass; with a `text`, also the push towards its induction targets and the loss on its copies."""

    def __init__(self, model: Any, rows: Rows, text: Repeated | None = None) -> None:
        self.rows = rows
        self.push: Float32[np.ndarray, "layer head"] | None = None
        self.push_reason = "" if text else "only on repeated random tokens"
        self.losses = (float("nan"), float("nan"))
        self._text = text
        self._scores: dict[str, dict[int, Float32[np.ndarray, " head"]]] = {}
        missing = next(filter(None, (model.capabilities[name] for name in ("head_output", "attn_out"))), "")
        if text and missing:
            self.push_reason = missing
        self._pushes = bool(text) and not missing
        # Rows of the second copy, by layer: small beside the maps, which are never kept.
        self._heads: dict[int, Any] = {}
        self._written: dict[int, Any] = {}
        self._last: Any = None

    def run(self, model: Any, ids: Any) -> None:
        """One forward pass of one text or of several of equal length."""
        layers = range(model.config.n_layers)
        pairs = [(model.hook_name("pattern", i), self._read(i)) for i in layers]
        if self._text:
            pairs.append(
                (model.hook_name("resid_post", layers[-1]), lambda tensor, hook: setattr(self, "_last", tensor))
            )
        if self._pushes:
            pairs += [(model.hook_name("head_output", i), self._keep(self._heads, i)) for i in layers]
            pairs += [(model.hook_name("attn_out", i), self._keep(self._written, i)) for i in layers]
        with model.hooks(*pairs):
            model.forward(ids, last_only=True)
        if self._pushes:
            r = self._text.ids[:, self._text.first : self._text.second].to(self._last.device)
            heads, written = ([kept[i] for i in layers] for kept in (self._heads, self._written))
            self.push = to_float32(head_pushes(model, r[:, 1:], r, heads, written, self._at_rows(self._last)))
        if self._text:
            self.losses = copy_losses(model, self._last, self._text)
        self._heads, self._written, self._last = {}, {}, None

    def score(self, name: str) -> Float32[np.ndarray, "layer head"] | None:
        """A score of every head, or None where it is not defined."""
        layers = self._scores.get(name)
        return np.stack([layers[i] for i in sorted(layers)]) if layers else None

    def _read(self, layer: int) -> Any:
        def read(tensor: Float[Any, "sequence head query key"], hook: Any) -> None:
            for name, values in read_scores(tensor.float(), self.rows).items():
                self._scores.setdefault(name, {})[layer] = to_float32(values)

        return read

    def _keep(self, kept: dict[int, Any], layer: int) -> Any:
        return lambda tensor, hook: kept.update({layer: self._at_rows(tensor)})

    def _at_rows(self, tensor: Float[Any, "sequence pos ..."]) -> Float[Any, "row ..."]:
        """The second copy without its last row: there a next token is known."""
        return tensor[:, self._text.second : -1].flatten(0, 1).clone()  # not a view that keeps the whole


def read_scores(pattern: Float[Any, "sequence head query key"], rows: Rows) -> dict[str, Float[Any, " head"]]:
    """Scores of the heads of one layer, means over sequences and rows."""
    import torch

    query = torch.arange(1, pattern.shape[-1], device=pattern.device)
    logs = torch.where(pattern > 0, pattern, torch.ones_like(pattern)).log()
    entropy = -(pattern * logs).sum(-1)[..., 1:]
    found = {
        "previous_token": pattern[..., query, query - 1].mean((0, 2)),
        "current_token": pattern[..., query, query].mean((0, 2)),
        "first_token": pattern[..., query, 0].mean((0, 2)),
        "entropy_nats": entropy.mean((0, 2)),
        "entropy_share": (entropy / torch.log(query + 1.0)).mean((0, 2)),
    }
    for name, pairs, n_rows in (
        ("induction", rows.induction, rows.n_induction),
        ("duplicate_token", rows.duplicate, rows.n_duplicate),
    ):
        if n_rows:
            q, k = (torch.from_numpy(index).to(pattern.device) for index in pairs)
            found[name] = pattern[..., q, k].mean(0).sum(-1) / n_rows
    return found
