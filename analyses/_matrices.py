"""The weight matrices inside a block, read but never changed, and the loss while hooks change what they give.

A family may store a matrix transposed (GPT-2), or three in one that the bridge keeps split copies of: so a matrix is taken only
after its product with the inputs that it got has been compared with what it gave.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from analyses._readout import log_probability_of

# Inputs and outputs of these are hooks `blocks.<layer>.<part>.hook_in` and `.hook_out`.
PARTS: Mapping[str, str] = {
    "attn.q": "queries",
    "attn.k": "keys",
    "attn.v": "values",
    "attn.o": "attention's output",
    "mlp.gate": "MLP, gate",
    "mlp.in": "MLP, in",
    "mlp.out": "MLP, out",
}
TOLERANCE = {"float32": 1e-4}  # of the product with the matrix, relative to the largest output
TOLERANCE_HALF = 0.05  # bfloat16 keeps 8 bits

Pair = tuple[str, Callable[..., Any]]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix of the model: `output = input @ weight + bias`, with heads laid side by side."""

    name: str  # of the hooks, without their endings
    weight: Float[Any, "n_in n_out"]
    bias: Float[Any, " n_out"] | None

    def apply(self, rows: Float[Any, "*rows n_in"]) -> Float[Any, "*rows n_out"]:
        """What the matrix makes of rows."""
        found = rows @ self.weight
        return found if self.bias is None else found + self.bias


def parts_of(model: Any, layer: int) -> tuple[str, ...]:
    """Names of `PARTS` whose matrices this family keeps in a block as such."""
    return tuple(part for part in PARTS if _weight(model, layer, part) is not None)


def matrices_of(model: Any, ids: tuple[int, ...], places: Sequence[tuple[int, str]]) -> list[Matrix]:
    """Matrices by layer and part, after one forward pass in which each did what it says.

    Raises:
        ValueError: no such layer or part, or this family computes the part in another way.
    """
    for layer, part in places:
        check_part(model, layer, part)
    found: dict[str, Matrix | None] = {}
    pairs = [pair for layer, part in places for pair in _watch(model, layer, part, len(ids), found)]
    with model.hooks(*pairs):
        model.forward(ids, last_only=True)
    for layer, part in places:
        if found.get(f"blocks.{layer}.{part}") is None:
            raise ValueError(
                f"needs a matrix that gives what its hooks show; found that {part} of {model.config.name} is computed in "
                "another way; choose another matrix."
            )
    return [found[f"blocks.{layer}.{part}"] for layer, part in places]


def _watch(model: Any, layer: int, part: str, n_rows: int, found: dict[str, Matrix | None]) -> list[Pair]:
    """Hooks that compare the product with a stored matrix, either way round, with what comes out."""
    import torch

    name, seen = f"blocks.{layer}.{part}", {}
    weight, bias = _weight(model, layer, part)

    def compare(tensor: Any, hook: Any) -> None:
        rows, given = seen.pop("in").reshape(n_rows, -1), tensor.reshape(n_rows, -1)
        limit = TOLERANCE.get(model.config.dtype, TOLERANCE_HALF) * float(given.abs().max())
        found[name] = None
        for turned in (weight.T, weight):
            if turned.shape != (rows.shape[1], given.shape[1]):
                continue
            candidate = Matrix(name, turned, bias)
            if torch.allclose(candidate.apply(rows), given, rtol=0, atol=limit):
                found[name] = candidate
                break

    return [(f"{name}.hook_in", keep(seen, "in")), (f"{name}.hook_out", compare)]


def check_part(model: Any, layer: int, part: str) -> None:
    """Refuse a layer or a matrix that is not there.

    Raises:
        ValueError: it is not.
    """
    if not 0 <= layer < model.config.n_layers:
        raise ValueError(f"needs a layer from 0 to {model.config.n_layers - 1}; found {layer}; layers count from zero.")
    there = parts_of(model, layer)
    if part not in there:
        known = ", ".join(there) or "none"
        more = " (experts are not single matrices)" if not any(each.startswith("mlp.") for each in there) else ""
        raise ValueError(f"needs one of this model's matrices: {known}; found {part!r}{more}; choose one of them.")


def keep(seen: dict[str, Any], name: str) -> Callable[..., None]:
    """A hook that remembers what passes it, and leaves it as it is."""

    def hook(tensor: Any, hook: Any) -> None:
        seen[name] = tensor

    return hook


def record(model: Any, ids: Any, *names: str) -> list[Any]:
    """What passes named hooks in one forward pass.

    Raises:
        ValueError: one of the hooks never fired.
    """
    seen: dict[str, Any] = {}

    with model.hooks(*((name, keep(seen, name)) for name in names)):
        model.forward(ids, last_only=True)
    if silent := [name for name in names if name not in seen]:
        raise ValueError(
            f"needs a model that shows {silent[0]}; found that {model.config.name} computes it elsewhere; choose another view."
        )
    return [seen[name] for name in names]


def hooked_loss(model: Any, ids: tuple[int, ...], *pairs: Pair) -> float:
    """Mean loss of a text (nats per token) while hooks change the model; the readout is under the hooks too."""
    import torch

    kept: dict[str, Any] = {}
    targets = torch.tensor(ids[1:], device=model.config.device)
    if model.capabilities["readout"]:  # then only the model itself turns its stream into logits
        with model.hooks(*pairs):
            found = model.forward(ids)[0, :-1].float().log_softmax(-1).gather(-1, targets[:, None])
    else:
        last = model.hook_name("resid_post", model.config.n_layers - 1)
        with model.hooks(*pairs, (last, keep(kept, last))):
            model.forward(ids, last_only=True)
            found = log_probability_of(model, kept[last][0, :-1], targets)
    return -float(found.double().mean())


def _weight(model: Any, layer: int, part: str) -> tuple[Any, Any] | None:
    """The stored matrix and bias behind a part, as they are stored; None where there are none."""
    module = model._bridge.blocks[layer]
    if part.startswith("mlp.") and getattr(getattr(module, "mlp", None), "out", None) is None:
        return None  # a mixture of experts, whose `gate` is the router
    for name in part.split("."):
        module = getattr(module, name, None)
        if module is None:
            return None
    inner = getattr(module, "original_component", None)
    weight = getattr(inner, "weight", None)
    if weight is None or weight.ndim != 2 or not weight.is_floating_point():
        return None
    return weight, getattr(inner, "bias", None)
