"""What is the nonlinearity for? Two matrices without one are a single matrix.

An MLP of two matrices with a nonlinearity between them is out(act(in(x))). Without it, out(in(x)) = (W_in W_out) x: one matrix of
at most d_model rank, however wide the middle, and the second matrix buys nothing. That is shown on the matrices of a real MLP.

A gated MLP (Shazeer 2020, "GLU Variants Improve Transformer") has three: out(act(gate(x)) * in(x)). With the activation gone it
is out(gate(x) * in(x)), which is still not linear: a product of two linear maps is quadratic, and doubling x makes it four times
as large. Linear is what is left when the gate is held: for fixed values g of the gate, out(g * in(x)) is linear in x, and with
g = 1 it is the product of the two matrices.

Identity: max |out(in(x)) - x (W_in W_out)| is rounding. With the biases taken off, f(2 x) = 2 f(x) and f(x + y) = f(x) + f(y) for
the two matrices; f(2 x) = 4 f(x) for the gated MLP without its activation. A ReLU keeps the first (f(2 x) = 2 f(x)) and not the
second, so doubling alone does not show that something is linear.

Limit: the loss with the activation exchanged is that of a model that was trained with another one. It says how much this model
relies on its nonlinearity, not what a model trained without would reach. The softmax of attention and the norms are nonlinear
too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from analyses._arrays import check_ids, to_float32
from analyses._matrices import Matrix, Pair, check_part, hooked_loss, keep, matrices_of, record
from analyses._steps import Cost, Profile, Progress, Steps, drain


@dataclass(frozen=True, eq=False)
class LinearMlp:
    """One MLP with and without its nonlinearity, at one position, and the losses of the model without any."""

    layer: int
    position: int
    gated: bool
    activation: str
    d_model: int
    d_mlp: int
    two_matrices: Float32[np.ndarray, " d_model"]  # out(in(x)), one after the other, biases left out
    one_matrix: Float32[np.ndarray, " d_model"]  # x (W_in W_out)
    max_error: float  # largest difference of the two, over all positions of the text
    largest: float  # largest number in them
    rank: int  # of the one matrix, numerically
    doubled_two_matrices: float  # |f(2x)| / |f(x)|, mean over positions: 2 where f is linear
    doubled_identity: float  # of the MLP with the activation left out: 4 where gated
    doubled_own: float  # of the MLP as it is; NaN where its activation is not known by name
    sum_error_two_matrices: (
        float  # |f(x + y) - f(x) - f(y)| / |f(x + y)|, x and y at neighbouring positions: 0 where f is linear
    )
    sum_error_identity: float
    sum_error_own: float
    loss_nats: float  # per token; NaN when it was not asked for or there is no next token
    identity_loss_nats: float  # with the activation of every layer left out
    relu_loss_nats: float  # with ReLU in its place
    uniform_loss_nats: float

    @property
    def n_two(self) -> int:
        """Numbers in the two matrices."""
        return 2 * self.d_model * self.d_mlp

    @property
    def n_one(self) -> int:
        """Numbers in their product."""
        return self.d_model**2

    def to_frame(self) -> Any:
        """A pandas table, one row per component of the stream."""
        import pandas as pd

        columns = {"two_matrices": self.two_matrices, "one_matrix": self.one_matrix}
        return pd.DataFrame({"component": np.arange(self.d_model)} | columns)


def linear_mlp_steps(
    model: Any, tokens: Any, *, layer: int | None = None, position: int = -1, compare: bool = True
) -> Steps[LinearMlp]:
    """The steps of `run_linear_mlp`: a pass per matrix, and one per activation."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    layer = config.n_layers // 2 if layer is None else layer
    if not -len(ids) <= position < len(ids):
        raise ValueError(f"needs a position from 0 to {len(ids) - 1}; found {position}; choose a token of the prompt.")
    compare = compare and len(ids) > 1
    total = 2 + 3 * compare
    names = ("in", "out", "gate") if config.gated_mlp else ("in", "out")
    places = [(layer, f"mlp.{name}") for name in names]
    for place in places:
        check_part(model, *place)
    yield Progress(0, total, note=f"the MLP of layer {layer}")
    mlp = dict(zip(names, matrices_of(model, ids, places), strict=True))
    yield Progress(1, total, note="its matrices in one")
    rows = record(model, ids, f"blocks.{layer}.mlp.in.hook_in")[0].reshape(len(ids), -1)
    before, after = mlp["in"].weight, mlp["out"].weight
    product = before @ after
    chain, single = (rows @ before) @ after, rows @ product
    losses = [float("nan")] * 3
    if compare:
        for index, activation in enumerate((None, "identity", "relu")):
            yield Progress(2 + index, total, note=f"the text with {activation or 'its own activation'}")
            pairs = [] if activation is None else _everywhere(model, activation)
            losses[index] = hooked_loss(model, ids, *pairs)
    functions = (
        lambda x: (x @ before) @ after,
        lambda x: _without_biases(mlp, x, lambda values: values),
        _own(model, mlp),
    )
    doubled = [_doubled(rows, function) for function in functions]
    sums = [_sum_error(rows, function) for function in functions]
    return LinearMlp(
        layer=layer,
        position=position % len(ids),
        gated="gate" in mlp,
        activation=config.activation,
        d_model=before.shape[0],
        d_mlp=before.shape[1],
        two_matrices=to_float32(chain[position]),
        one_matrix=to_float32(single[position]),
        max_error=float((chain - single).abs().max()),
        largest=float(chain.abs().max()),
        rank=_rank(before, after),
        doubled_two_matrices=doubled[0],
        doubled_identity=doubled[1],
        doubled_own=doubled[2],
        sum_error_two_matrices=sums[0],
        sum_error_identity=sums[1],
        sum_error_own=sums[2],
        loss_nats=losses[0],
        identity_loss_nats=losses[1],
        relu_loss_nats=losses[2],
        uniform_loss_nats=float(np.log(config.d_vocab)),
    )


def run_linear_mlp(
    model: Any, tokens: Any, *, layer: int | None = None, position: int = -1, compare: bool = True
) -> LinearMlp:
    """A real MLP without its nonlinearity.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        layer: whose MLP is looked at; the middle one when None.
        position: of the token whose numbers are kept; negative ones count from the end.
        compare: also compute the loss three times: as it is, with the activation left out everywhere, and with ReLU.

    Raises:
        ValueError: a text that does not fit, a layer or position that is not there, or a mixture of experts.
    """
    return drain(linear_mlp_steps(model, tokens, layer=layer, position=position, compare=compare))


def cost_linear_mlp(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Two passes for the matrices, three with every position read out, and the rank of a square matrix."""
    compare = params.get("compare", True)
    return Cost(
        seconds=(2 + 3 * compare) * profile.forward_seconds(n_tokens)
        + 3 * compare * profile.per_readout * n_tokens
        + 2e-9 * profile.d_model**3,
        peak_bytes=profile.forward_bytes(n_tokens) + (64 << 20) + 12 * profile.d_model**2,
        result_bytes=8 * profile.d_model,
    )


def _without_biases(mlp: Mapping[str, Matrix], rows: Any, activation: Callable[[Any], Any]) -> Any:
    """The MLP of some rows, its biases left out so that scaling says something."""
    inner = rows @ mlp["in"].weight
    inner = activation(rows @ mlp["gate"].weight) * inner if "gate" in mlp else activation(inner)
    return inner @ mlp["out"].weight


def _own(model: Any, mlp: Mapping[str, Matrix]) -> Callable[[Any], Any]:
    """The MLP as it is, without its biases; NaN where transformers has no activation of that name."""
    from transformers.activations import ACT2FN

    known = model.config.activation in ACT2FN
    activation = ACT2FN[model.config.activation] if known else lambda values: values * float("nan")
    return lambda rows: _without_biases(mlp, rows, activation)


def _doubled(rows: Any, function: Callable[[Any], Any]) -> float:
    """How many times as large the output is for an input twice as large."""
    once, twice = function(rows).norm(dim=-1), function(2 * rows).norm(dim=-1)
    return float((twice / once.clamp(min=1e-12)).double().mean())


def _sum_error(rows: Any, function: Callable[[Any], Any]) -> float:
    """How far the output of a sum is from the sum of the outputs, over neighbouring positions."""
    other = rows.roll(1, 0)
    together = function(rows + other)
    gap = (together - function(rows) - function(other)).norm(dim=-1)
    return float((gap / together.norm(dim=-1).clamp(min=1e-12)).double().mean())


def _rank(before: Any, after: Any) -> int:
    """Singular values of the product above rounding, in float64: in float32 the smallest ones of a real model are lost in it."""
    import torch

    return int(torch.linalg.matrix_rank(before.cpu().double() @ after.cpu().double()))


def _everywhere(model: Any, activation: str) -> list[Pair]:
    """Hooks that exchange the activation of every MLP: what goes into its last matrix is put together anew."""
    gated = model.config.gated_mlp
    seen: dict[str, Any] = {}

    def act(values: Any) -> Any:
        return values.relu() if activation == "relu" else values

    def put(name: str) -> Callable[..., Any]:
        def hook(tensor: Any, hook: Any) -> Any:
            inner = seen[f"{name}.in"]
            inner = act(seen[f"{name}.gate"]) * inner if gated else act(inner)
            return inner.reshape(tensor.shape)

        return hook

    pairs: list[Pair] = []
    for layer in range(model.config.n_layers):
        name = f"blocks.{layer}.mlp"
        for part in ("in", "gate") if gated else ("in",):
            pairs.append((f"{name}.{part}.hook_out", keep(seen, f"{name}.{part}")))
        pairs.append((f"{name}.out.hook_in", put(name)))
    return pairs
