"""What does a norm do to the stream? RMSNorm against LayerNorm, on a real activation of the model.

A LayerNorm takes the mean off a vector and divides by its standard deviation (Ba, Kiros and Hinton 2016, "Layer Normalization");
an RMSNorm divides by the root of the mean square and leaves the mean in (Zhang and Sennrich 2019, "Root Mean Square Layer
Normalization"). Both then multiply every number by a learned gain, and may add a bias. They differ by what lies in the mean:
d * mean² of the vector's squared length ||x||².

The gain, the bias, epsilon and whether the norm centres are found by trying it on four vectors, in one forward pass whose norms
get these instead of the stream; no family's weights are read by name.

Identity: norm(x) = gain * x / RMS(x) + bias, so RMS((norm(x) - bias) / gain) = 1 (with a LayerNorm, x less its mean); norm(c x) =
norm(x). With its own kind put in place of every norm the loss is the model's.

Limit: the other kind is put into a trained model whose weights have learned with its own. A small change of the loss says that
this model hardly uses the mean, not that it would have learned as well with the other. Norms inside attention, on queries and
keys, and one right after the embedding (Bloom) are left as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._arrays import check_ids, to_float32
from analyses._matrices import Pair, hooked_loss, keep
from analyses._steps import Cost, Profile, Progress, Steps, drain

PROBES = (0.0, 32.0, 32.0, 0.01)  # zero; all equal; alternating signs, large; alternating, so small that epsilon shows
# Which norm is meant: the place on the page -> hooks of a block, the first that the family has.
PLACES: Mapping[str, tuple[str, ...]] = {"attention": ("ln1", "ln1_post"), "mlp": ("ln2", "ln2_post")}
LAST = "before the unembedding"
KINDS = ("RMSNorm", "LayerNorm")
_IN_BLOCK = ("ln1", "ln1_post", "ln2", "ln2_post")


@dataclass(frozen=True, eq=False)
class Norms:
    """One norm at one position, both ways, and what its kind is worth to the whole model."""

    kind: str  # "RMSNorm" or "LayerNorm", as this norm was found to act
    where: str  # "before attention", "after attention", "before the MLP", "after the MLP", "before the unembedding"
    layer: int
    position: int
    before: Float32[np.ndarray, " d_model"]
    after: Float32[np.ndarray, " d_model"]  # what the model's own norm gives
    gain: Float32[np.ndarray, " d_model"]
    bias: Float32[np.ndarray, " d_model"]
    epsilon: float
    rms_normed: Float32[np.ndarray, " d_model"]  # x / RMS(x), without gain and bias
    layer_normed: Float32[np.ndarray, " d_model"]  # (x - mean) / standard deviation
    mean: float  # of the numbers before
    rms: float
    mean_share: float  # of the squared length that lies in the mean
    unit_rms: float  # RMS of (after - bias) / gain: the identity, 1
    mean_share_by_layer: Float32[np.ndarray, " layer"]  # mean over positions from 1, before each layer's same norm
    loss_nats: float  # per token; NaN when it was not asked for or there is no next token
    other_loss_nats: float  # with the other kind in place of every norm of the stream
    n_norms: int  # how many were replaced

    def to_frame(self) -> Any:
        """A pandas table, one row per component."""
        import pandas as pd

        columns = ("before", "after", "gain", "bias", "rms_normed", "layer_normed")
        return pd.DataFrame(
            {"component": np.arange(len(self.before))} | {name: getattr(self, name) for name in columns}
        )


@dataclass(frozen=True, eq=False)
class _Found:
    """A norm, as it was found to act."""

    gain: Float[Any, " d_model"]
    bias: Float[Any, " d_model"]
    centres: bool
    epsilon: float

    def apply(self, rows: Float[Any, "*rows d_model"], centres: bool) -> Float[Any, "*rows d_model"]:
        """The norm of some rows, as its own or the other kind."""
        wide = rows.float()
        return (self.gain * normalised(wide, centres, self.epsilon) + self.bias).to(rows.dtype)


def normalised(rows: Any, centres: bool, epsilon: float) -> Any:
    """Rows of root mean square 1, with their mean taken off first if `centres`."""
    if centres:
        rows = rows - rows.mean(-1, keepdim=True)
    return rows / (rows.square().mean(-1, keepdim=True) + epsilon).sqrt()


def norms_steps(
    model: Any,
    tokens: Any,
    *,
    layer: int | None = None,
    place: str = "attention",
    position: int = -1,
    compare: bool = True,
) -> Steps[Norms]:
    """The steps of `run_norms`: a pass that tries the norms, the text itself, and the text under the other kind."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    layer = config.n_layers // 2 if layer is None else layer
    if not 0 <= layer < config.n_layers:
        raise ValueError(f"needs a layer from 0 to {config.n_layers - 1}; found {layer}; layers count from zero.")
    if not -len(ids) <= position < len(ids):
        raise ValueError(f"needs a position from 0 to {len(ids) - 1}; found {position}; choose a token of the prompt.")
    position %= len(ids)
    chosen = _hook(model, layer, place)
    compare = compare and len(ids) > 1
    yield Progress(0, 1 + compare * 2, note="trying the norms")
    names = _norms_of(model)
    tried = _try(model, names)
    before, after, shares = _read(model, ids, chosen, names)
    loss, other = float("nan"), float("nan")
    if compare:
        yield Progress(1, 3, note="the text as it is")
        loss = hooked_loss(model, ids)
        yield Progress(2, 3, note="the text with the other kind of norm")
        other = hooked_loss(model, ids, *_replaced(tried, {name: not found.centres for name, found in tried.items()}))
    found = tried[chosen]
    row = before[position].float()
    mean, square = float(row.double().mean()), float(row.double().square().mean())
    used = found.gain.abs() > 1e-6
    scaled = ((after[position].float() - found.bias) / found.gain)[used].double()
    return Norms(
        kind=KINDS[found.centres],
        where=_where(chosen),
        layer=layer,
        position=position,
        before=to_float32(row),
        after=to_float32(after[position]),
        gain=to_float32(found.gain),
        bias=to_float32(found.bias),
        epsilon=found.epsilon,
        rms_normed=to_float32(normalised(row, False, found.epsilon)),
        layer_normed=to_float32(normalised(row, True, found.epsilon)),
        mean=mean,
        rms=square**0.5,
        mean_share=mean**2 / square if square else 0.0,
        unit_rms=float(scaled.square().mean().sqrt()),
        mean_share_by_layer=np.array(shares, dtype=np.float32),
        loss_nats=loss,
        other_loss_nats=other,
        n_norms=len(tried),
    )


def run_norms(
    model: Any,
    tokens: Any,
    *,
    layer: int | None = None,
    place: str = "attention",
    position: int = -1,
    compare: bool = True,
) -> Norms:
    """One norm on one activation, as RMSNorm and as LayerNorm, and the loss with the other kind everywhere.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        layer: whose norm is looked at; the middle one when None.
        place: "attention" or "mlp": the norm that stands before it (after it in families that have it there), or "final".
        position: of the token; negative ones count from the end.
        compare: also compute the loss, twice; needs two tokens.

    Raises:
        ValueError: a text that does not fit, a layer, position or norm that is not there.
    """
    return drain(norms_steps(model, tokens, layer=layer, place=place, position=position, compare=compare))


def cost_norms(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Two short passes, and two with every position read out."""
    compare = params.get("compare", True)
    forward = profile.forward_seconds(n_tokens)
    return Cost(
        seconds=profile.forward_seconds(4) + forward * (1 + 2 * compare) + 2 * compare * profile.per_readout * n_tokens,
        peak_bytes=profile.forward_bytes(n_tokens) + (64 << 20),
        result_bytes=4 * (6 * profile.d_model + profile.n_layers),
    )


def _hook(model: Any, layer: int, place: str) -> str:
    """Name of the chosen norm.

    Raises:
        ValueError: an unknown place, or one without a norm in this family.
    """
    if place == "final":
        return "ln_final"
    if place not in PLACES:
        raise ValueError(f"needs a norm at 'attention', 'mlp' or 'final'; found {place!r}; choose one of them.")
    for kind in PLACES[place]:
        if model.has_hook(f"blocks.{layer}.{kind}.hook_out"):
            return f"blocks.{layer}.{kind}"
    raise ValueError(
        f"needs a norm of its own for the {place}; found that {model.config.name} has none there (attention and MLP read the "
        "same normed stream); choose 'attention'."
    )


def _where(name: str) -> str:
    kind = name.rpartition(".")[2]
    return {
        "ln1": "before attention",
        "ln1_post": "after attention",
        "ln2": "before the MLP",
        "ln2_post": "after the MLP",
    }.get(kind, LAST)


def _norms_of(model: Any) -> list[str]:
    """Every norm of the stream, in the order of the model."""
    inside = [f"blocks.{layer}.{kind}" for layer in range(model.config.n_layers) for kind in _IN_BLOCK]
    return [name for name in (*inside, "ln_final") if model.has_hook(f"{name}.hook_out")]


def _try(model: Any, names: list[str]) -> dict[str, _Found]:
    """How each norm acts, from one pass of four tokens in which it gets the probes instead of the stream."""
    import torch

    size = torch.tensor(PROBES)[:, None].expand(-1, model.config.d_model).clone()
    size[2:, 1::2] *= -1
    seen: dict[str, Any] = {}

    def put(tensor: Any, hook: Any) -> Any:
        return size.to(tensor).expand_as(tensor) if tensor.ndim == 3 else size.to(tensor)

    pairs = [pair for n in names for pair in ((f"{n}.hook_in", put), (f"{n}.hook_out", keep(seen, n)))]
    with model.hooks(*pairs):
        model.forward((0,) * len(PROBES))
    return {
        name: _understood(seen[name].reshape(len(PROBES), -1).float(), size.to(seen[name].device)) for name in names
    }


def _understood(given: Any, size: Any) -> _Found:
    """A norm from what it made of the probes."""
    zero, equal, large, small = given
    centres = bool((equal - zero).norm() < 0.5 * (large - zero).norm())
    # An odd width leaves the alternating probe a mean, which a norm that centres takes off.
    probe = size[2] - size[2].mean() if centres else size[2]
    gain = (large - zero) * probe.square().mean().sqrt() / probe
    little = size[3] - size[3].mean() if centres else size[3]
    ratio = ((small - zero) * gain).double().sum() / (gain.double().square() * little.double()).sum()
    epsilon = max(0.0, float(1 / ratio.square() - little.double().square().mean()))
    return _Found(gain, zero, centres, epsilon)


def _read(model: Any, ids: tuple[int, ...], chosen: str, names: list[str]) -> tuple[Any, Any, list[float]]:
    """What goes into and comes out of the chosen norm, and the share of the mean before the same norm of every layer."""
    seen: dict[str, Any] = {}
    kind = chosen.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == kind]
    pairs: list[Pair] = [(f"{name}.hook_in", keep(seen, name)) for name in same]
    with model.hooks(*pairs, (f"{chosen}.hook_out", keep(seen, "after"))):
        model.forward(ids)
    rows = {name: seen[name].reshape(len(ids), -1) for name in same}
    shares = []
    for name in same:
        wide = rows[name].float()[min(1, len(ids) - 1) :]  # token 0 is often a hundred times larger than the others
        shares.append(float((wide.mean(-1).square() / wide.square().mean(-1)).mean()))
    return rows[chosen], seen["after"].reshape(len(ids), -1), shares


def _replaced(tried: Mapping[str, _Found], centres: Mapping[str, bool]) -> list[Pair]:
    """Hooks that put a norm of the given kind in the place of each."""
    seen: dict[str, Any] = {}

    def other(name: str) -> Callable[..., Any]:
        return lambda tensor, hook: tried[name].apply(seen[name], centres[name]).reshape(tensor.shape)

    return [pair for n in tried for pair in ((f"{n}.hook_in", keep(seen, n)), (f"{n}.hook_out", other(n)))]
