"""How low is the rank of a weight? One matrix, or every matrix of the blocks, is cut to its r largest singular values.

Of all matrices of rank r, the first r terms of the singular value decomposition are nearest to W (Eckart and Young 1936, "The
approximation of one matrix by another of lower rank"). What they keep of the squared entries is the energy. The singular vectors
of the smaller side are found as eigenvectors of W W^T or W^T W in float64; a hook puts the cut matrix's output in the place of
the whole one's, and the weights stay as they are.

Identity: rank 0 gives nothing but the bias, rank min(n_in, n_out) gives the model; energy = sum of the kept squared singular
values over the sum of all.

Limit: LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models") does not claim that weights have a low rank,
but that the change made by fine-tuning can be written with one. A weight that cannot be cut says nothing against it, and one that
can says nothing for it. The nearest matrix is not the one with the smallest loss: which directions matter depends on what comes
in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32

from analyses._arrays import check_ids
from analyses._matrices import PARTS, Matrix, Pair, check_part, hooked_loss, keep, matrices_of, parts_of
from analyses._steps import Cost, Profile, Progress, Steps, drain

ALL = "all"
EIGEN_SECONDS = 1e-9  # times the smaller side cubed: 0.2 s for 576 on one thread


@dataclass(frozen=True, eq=False)
class WeightTruncation:
    """The loss of the model with a weight, or all of them, cut to each rank."""

    part: str  # of `PARTS`, or "all"
    layer: int  # -1 for all
    n_matrices: int
    n_in: int  # of the one matrix; 0 for all
    n_out: int
    ranks: tuple[int, ...]
    loss_nats: Float32[np.ndarray, " rank"]  # per token
    n_cut: Int32[np.ndarray, " rank"]  # matrices that have more than this rank; the others stay whole
    energy: Float32[np.ndarray, " rank"]  # share of the squared entries that is kept; the mean over those that are cut
    baseline_loss_nats: float
    uniform_loss_nats: float
    singular_values: Float32[np.ndarray, " value"]  # of the one matrix, largest first; empty for all
    rank_90: int  # smallest rank that keeps 90 % of the energy (a mean over the matrices for all)
    rank_99: int

    @property
    def loss_change_nats(self) -> Float32[np.ndarray, " rank"]:
        """How much the loss rises."""
        return self.loss_nats - np.float32(self.baseline_loss_nats)

    @property
    def kept_numbers(self) -> Int32[np.ndarray, " rank"]:
        """Numbers that two thin matrices of this rank take; the whole one takes n_in * n_out."""
        return np.array([rank * (self.n_in + self.n_out) for rank in self.ranks], dtype=np.int32)

    def to_frame(self) -> Any:
        """A pandas table, one row per rank."""
        import pandas as pd

        columns = {"rank": self.ranks, "loss_nats": self.loss_nats, "loss_change_nats": self.loss_change_nats}
        return pd.DataFrame(columns | {"energy": self.energy})


@dataclass(frozen=True, eq=False)
class _Cut:
    """A matrix with the singular directions of its smaller side, largest first."""

    matrix: Matrix
    vectors: Float[Any, "side value"]
    squares: Float[Any, " value"]  # squared singular values
    inputs: bool  # the smaller side is that of the inputs

    def energy(self, rank: int) -> float:
        return float(self.squares[:rank].sum() / self.squares.sum().clamp(min=1e-300))

    def rank_for(self, share: float) -> int:
        return 1 + int((self.squares.cumsum(0) / self.squares.sum() < share).sum())

    def outputs(self, rows: Float[Any, "rows n_in"], rank: int) -> Float[Any, "rows n_out"]:
        kept = self.vectors[:, :rank]
        if self.inputs:
            found = ((rows @ kept) @ kept.T) @ self.matrix.weight
        else:
            found = ((rows @ self.matrix.weight) @ kept) @ kept.T
        return found if self.matrix.bias is None else found + self.matrix.bias


def weight_truncation_steps(
    model: Any, tokens: Any, *, part: str = "mlp.out", layer: int | None = None, ranks: Sequence[Any] = (1, 16, 256)
) -> Steps[WeightTruncation]:
    """The steps of `run_weight_truncation`: one per decomposition, one forward pass per rank."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx, at_least=2)
    layer = config.n_layers // 2 if layer is None else layer
    wanted = _read_ranks(ranks)
    if part == ALL:
        places = [(each, name) for each in range(config.n_layers) for name in parts_of(model, each)]
    else:
        places = [(layer, part)]
    for each, name in places:
        check_part(model, each, name)
    total = len(places) + len(wanted) + 1
    yield Progress(0, total, note="finding the matrices")
    cuts: list[_Cut] = []
    for index, matrix in enumerate(matrices_of(model, ids, places)):
        yield Progress(index, total, note=f"{PARTS[places[index][1]]} of layer {places[index][0]}")
        cuts.append(_decompose(matrix))
    yield Progress(len(places), total, note="the text as it is")
    baseline = hooked_loss(model, ids)
    losses = []
    for index, rank in enumerate(wanted):
        yield Progress(len(places) + 1 + index, total, note=f"the text at rank {rank:,}")
        losses.append(hooked_loss(model, ids, *(pair for cut in cuts for pair in _hooks(cut, rank))))
    alone = part != ALL
    return WeightTruncation(
        part=part,
        layer=layer if alone else -1,
        n_matrices=len(cuts),
        n_in=cuts[0].matrix.weight.shape[0] if alone else 0,
        n_out=cuts[0].matrix.weight.shape[1] if alone else 0,
        ranks=wanted,
        loss_nats=np.array(losses, dtype=np.float32),
        n_cut=np.array([sum(len(cut.squares) > rank for cut in cuts) for rank in wanted], dtype=np.int32),
        energy=np.array([_mean_energy(cuts, rank) for rank in wanted], dtype=np.float32),
        baseline_loss_nats=baseline,
        uniform_loss_nats=float(np.log(config.d_vocab)),
        singular_values=cuts[0].squares.clamp(min=0).sqrt().cpu().numpy().astype(np.float32)
        if alone
        else np.empty(0, np.float32),
        rank_90=round(np.mean([cut.rank_for(0.9) for cut in cuts])),
        rank_99=round(np.mean([cut.rank_for(0.99) for cut in cuts])),
    )


def _mean_energy(cuts: Sequence[_Cut], rank: int) -> float:
    """Over the matrices that this rank cuts; 1 where it cuts none."""
    found = [cut.energy(rank) for cut in cuts if len(cut.squares) > rank]
    return float(np.mean(found)) if found else 1.0


def run_weight_truncation(
    model: Any, tokens: Any, *, part: str = "mlp.out", layer: int | None = None, ranks: Sequence[Any] = (1, 16, 256)
) -> WeightTruncation:
    """The loss with a weight cut to some ranks.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        part: "attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.in", "mlp.out", or "all" of every layer.
        layer: of the one matrix; the middle one when None.
        ranks: to try, each with a forward pass; larger ones than a matrix has leave it whole.

    Raises:
        ValueError: fewer than two tokens, no or a negative rank, or a matrix that this family does not keep as such.
    """
    return drain(weight_truncation_steps(model, tokens, part=part, layer=layer, ranks=ranks))


def cost_weight_truncation(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """The decompositions (squares of d_model on their smaller side) and one read-out pass per rank, and one without."""
    every = params.get("part", "mlp.out") == ALL
    n_passes = 1 + len(params.get("ranks", (1, 16, 256)))
    n_matrices = len(PARTS) * profile.n_layers if every else 1
    per_pass = profile.forward_seconds(n_tokens) * (2.0 if every else 1.0) + profile.per_readout * n_tokens
    side = profile.d_model**2
    return Cost(
        seconds=n_matrices * EIGEN_SECONDS * profile.d_model**3
        + n_passes * per_pass
        + profile.forward_seconds(n_tokens),
        peak_bytes=profile.forward_bytes(n_tokens) + 4 * n_matrices * side + 32 * side + (64 << 20),
        result_bytes=4 * profile.d_model + 8 * n_passes,
    )


def _read_ranks(ranks: Any) -> tuple[int, ...]:
    found = tuple(ranks)
    if not found or any(isinstance(rank, bool) or not isinstance(rank, int) or rank < 0 for rank in found):
        raise ValueError(f"needs ranks from 0 up; found {list(found)!r}; choose at least one.")
    return found


def _decompose(matrix: Matrix) -> _Cut:
    import torch

    wide = matrix.weight.detach().cpu().double()
    inputs = wide.shape[0] <= wide.shape[1]
    squares, vectors = torch.linalg.eigh(wide @ wide.T if inputs else wide.T @ wide)
    order = torch.arange(len(squares) - 1, -1, -1)  # eigh sorts the smallest first
    return _Cut(matrix, vectors[:, order].to(matrix.weight), squares[order].clamp(min=0), inputs)


def _hooks(cut: _Cut, rank: int) -> tuple[Pair, Pair]:
    """The matrix's output, computed anew from its input."""
    seen: dict[str, Any] = {}

    def put(tensor: Any, hook: Any) -> Any:
        rows = seen["in"].reshape(-1, cut.matrix.weight.shape[0])
        return cut.outputs(rows, rank).reshape(tensor.shape)

    name = cut.matrix.name
    return (f"{name}.hook_in", keep(seen, "in")), (f"{name}.hook_out", put)
