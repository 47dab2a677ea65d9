"""A direction added to the stream, as data: read from JSON, checked, turned into hooks for one forward pass.

The wire form is `{"values": base64 of little-endian float32, "layer": 12, "coefficient": 0.3}`; it needs no file and no server
state. With u the direction of length one and r the mean length of the stream before block `layer` on a fixed text, "add" adds
`coefficient * r * u` to what the block reads ("size" gives the length itself), and "project_out" takes `coefficient` (1 when
left out) times the component along u away.

Position 0 is left alone: in many models its stream is a hundred times longer than all others and serves as a resting place for
attention (Sun, Chen, Kolter and Liu 2024, "Massive Activations in Large Language Models"). `"first": true` includes it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Float32

from analyses._direction import decode_values
from analyses.passages import PASSAGES
from analyses.tokenization import run_tokenization

MODES = ("add", "project_out")
WHERE = ("prompt", "new", "both")
KEYS = frozenset({"values", "layer", "coefficient", "size", "mode", "where", "first"})
MAX_COEFFICIENT = 100.0  # a hundred streams; at 1 the embedded model already writes gibberish
MAX_SIZE = 1e6

# What the lengths are measured on: running text, as most prompts are. The first tokens of it when the context is short.
REFERENCE_TEXT = PASSAGES["plain English"]
REFERENCE_TOKENS = 256

_norms: WeakKeyDictionary[Any, Float32[np.ndarray, " depth"]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Steer:
    """One steering intervention, checked for one model."""

    direction: Float32[np.ndarray, " d_model"]  # length one, read-only
    layers: tuple[int, ...]  # the blocks whose input is changed
    coefficient: float | None  # in lengths of the stream there; the share to take away in the mode "project_out"
    size: float | None  # or the length that is added, in the stream's own units
    mode: str = "add"
    where: str = (
        "both"  # "prompt": before its last position; "new": from that one on, which predicts the first new token
    )
    first: bool = False  # position 0 too

    @property
    def is_nothing(self) -> bool:
        """Whether the model is left exactly as it is."""
        return not (self.coefficient or self.size)

    def amount(self, model: Any, layer: int) -> float:
        """What `change_stream` takes before block `layer`: a signed length in the stream's own units, or a share."""
        if self.size is not None:
            return self.size
        share = float(self.coefficient or 0)
        return share if self.mode == "project_out" or not share else share * float(reference_norms(model)[layer])

    def span(self, start: int, n_columns: int, n_prompt: int) -> slice:
        """The columns of a forward pass that are changed, when its first one is position `start` of the whole text."""
        begin = 0 if self.first else 1
        end = start + n_columns
        if self.where == "new":
            begin = max(begin, n_prompt - 1)
        elif self.where == "prompt":
            end = min(end, n_prompt - 1)
        begin = max(begin - start, 0)
        return slice(begin, max(end - start, begin))


def read_steer(model: Any, item: Any) -> Steer:
    """The steering that a mapping describes, for this model.

    Raises:
        ValueError: a mapping that is none, an unknown or missing key, a direction that cannot be decoded, has another width, is
            not finite or zero, or a layer, size, mode or place that does not exist.
    """
    if not isinstance(item, Mapping):
        raise ValueError(
            f"needs a mapping that describes a direction; found {type(item).__name__}; pass its intervention."
        )
    unknown = sorted(str(key) for key in item if key not in KEYS)
    if unknown:
        raise ValueError(f"needs only the keys {', '.join(sorted(KEYS))}; found {unknown[0]!r}; leave it out.")
    mode, where, first = item.get("mode", "add"), item.get("where", "both"), item.get("first", False)
    if mode not in MODES:
        raise ValueError(f"needs a mode from {', '.join(MODES)}; found {mode!r}; choose one of them.")
    if where not in WHERE:
        raise ValueError(f"needs where to be one of {', '.join(WHERE)}; found {where!r}; choose one of them.")
    if not isinstance(first, bool):
        raise ValueError(f"needs first to be true or false; found {first!r}; leave it out to spare position 0.")
    coefficient, size = _read_amount(item, mode)
    direction = decode_values(item.get("values"), model.config.d_model)
    return Steer(
        direction, read_layers(item.get("layer"), model.config.n_layers), coefficient, size, mode, where, first
    )


def steer_of(model: Any, vector: Any, *, layer: Any = None, **how: Any) -> Steer:
    """The steering with a vector as an analysis gets it: a `SteeringVector`, its `wire` form, or its intervention.

    Args:
        model: a HookedModel.
        vector: what is added; of an intervention only the numbers and the layer count.
        layer: another layer, or [first, last]; None for the vector's own.
        how: coefficient or size, mode, where, first, as in `read_steer`; None stands for what is not given.

    Raises:
        ValueError: as `read_steer`, or a vector of another model.
    """
    fingerprint = getattr(vector, "fingerprint", "")
    if fingerprint and fingerprint != model.config.fingerprint:
        raise ValueError(
            f"needs a vector of this model ({model.config.name}); found one of {vector.model!r}; make it with this model."
        )
    item = getattr(vector, "wire", vector)
    if not isinstance(item, Mapping):
        raise ValueError(f"needs a steering vector; found {type(item).__name__}; make one with make_steering_vector.")
    item = item.get("steer", item)
    if isinstance(item, Mapping):
        kept = {key: value for key, value in item.items() if key in ("values", "layer") or key not in KEYS}
        item = kept | {key: value for key, value in how.items() if value is not None}
        item |= {} if layer is None else {"layer": layer}
    return read_steer(model, item)


def control_of(steer: Steer, seed: Any) -> Steer:
    """The same steering along a random direction: same layers, same lengths, same positions.

    Raises:
        ValueError: a seed that is no whole number from 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"needs a seed from 0; found {seed!r}; choose a whole number.")
    found = np.random.default_rng(seed).standard_normal(len(steer.direction))
    unit = (found / np.linalg.norm(found)).astype(np.float32)
    unit.flags.writeable = False
    return replace(steer, direction=unit)


def steer_hooks(model: Any, steer: Steer, *, start: int, n_prompt: int) -> list[tuple[str, Callable[..., Any]]]:
    """Hooks that steer one forward pass; none where nothing is changed.

    Call it outside every `model.hooks(...)`: the first call on a model may run one forward pass for its lengths.

    Args:
        model: a HookedModel.
        steer: from `read_steer`.
        start: position in the whole text of the first column of this pass (0 without a cache).
        n_prompt: tokens of the prompt, for `where`.

    Raises:
        ValueError: this model's stream cannot be changed.
    """
    if steer.is_nothing:
        return []
    model.require("resid_writable")
    return [
        (model.hook_name("resid_pre", layer), _changing(model, steer, layer, start, n_prompt)) for layer in steer.layers
    ]


def change_stream(
    stream: Float[Any, "*batch d_model"], direction: Float[Any, " d_model"], amount: Any, mode: str
) -> Float[Any, "*batch d_model"]:
    """A stream steered everywhere: computed in float32, returned in its own dtype.

    Args:
        stream: any leading axes.
        direction: length one, float32, on the stream's device.
        amount: a length ("add") or a share ("project_out"); a number, or a tensor that broadcasts over the leading axes.
        mode: one of `MODES`.
    """
    wide = stream.float()
    if mode == "add":
        return (wide + amount * direction).to(stream.dtype)
    return (wide - amount * (wide @ direction)[..., None] * direction).to(stream.dtype)


def reference_norms(model: Any) -> Float32[np.ndarray, " depth"]:
    """Mean length of the stream at every depth, 0 to n_layers, over positions from 1 of a fixed text; once per checkpoint.

    Depth `layer` is the input of that block; the last is the stream before the final norm. Read-only.

    Raises:
        ValueError: a tokenizer that makes fewer than two tokens of the text.
    """
    if model.weights not in _norms:
        found = _measure_norms(model)
        found.flags.writeable = False
        _norms[model.weights] = found
    return _norms[model.weights]


def read_layers(given: Any, n_layers: int) -> tuple[int, ...]:
    """The layers that a number or a pair [first, last] names.

    Raises:
        ValueError: neither of them, or a layer that is not there.
    """
    ends = given if isinstance(given, list | tuple) and len(given) == 2 else [given, given]
    if not all(isinstance(end, Integral) and not isinstance(end, bool) for end in ends):
        raise ValueError(f"needs a layer, or the first and last of a range; found {given!r}; use 12 or [10, 14].")
    first, last = map(int, ends)
    if not 0 <= first <= last < n_layers:
        raise ValueError(
            f"needs layers from 0 to {n_layers - 1}, the first not after the last; found {given!r}; correct it."
        )
    return tuple(range(first, last + 1))


def _read_amount(item: Mapping[str, Any], mode: str) -> tuple[float | None, float | None]:
    """Coefficient and size; exactly one of them is given."""
    given = [key for key in ("coefficient", "size") if item.get(key) is not None]
    if mode == "project_out":
        if "size" in given:
            raise ValueError(
                "needs no size to project out; found one; leave it out, or give a coefficient from 0 to 1."
            )
        share = _number(item, "coefficient", 1.0) if given else 1.0
        if share < 0:
            raise ValueError(
                f"needs a coefficient from 0 to 1 to project out; found {share}; 1 takes the whole component away."
            )
        return share, None
    if len(given) != 1:
        raise ValueError(
            f"needs either a coefficient (in lengths of the stream) or a size; found {'both' if given else 'neither'}; "
            "give one of them."
        )
    if given == ["size"]:
        return None, _number(item, "size", MAX_SIZE)
    return _number(item, "coefficient", MAX_COEFFICIENT), None


def _number(item: Mapping[str, Any], key: str, limit: float) -> float:
    value = item[key]
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or abs(value) > limit:
        raise ValueError(
            f"needs a {key} from {-limit:,g} to {limit:,g}; found {value!r}; choose a number in this range."
        )
    return float(value)


def _changing(model: Any, steer: Steer, layer: int, start: int, n_prompt: int) -> Callable[..., Any]:
    import torch

    direction = torch.tensor(steer.direction, device=model.config.device)
    amount = steer.amount(model, layer)

    def change(tensor: Float[Any, "batch pos d_model"], hook: Any) -> Any:
        at = steer.span(start, tensor.shape[1], n_prompt)
        if at.start >= at.stop:
            return None
        changed = tensor.clone()
        changed[:, at] = change_stream(tensor[:, at], direction, amount, steer.mode)
        return changed

    return change


def _measure_norms(model: Any) -> Float32[np.ndarray, " depth"]:
    n_layers = model.config.n_layers
    ids = run_tokenization(model, REFERENCE_TEXT, keep="start").ids[:REFERENCE_TOKENS]
    if len(ids) < 2:
        raise ValueError(f"needs a tokenizer that makes two tokens of a text; found {len(ids)}; load another model.")
    found = np.zeros(n_layers + 1, dtype=np.float32)

    def noting(depth: int) -> Callable[..., None]:
        def note(tensor: Float[Any, "1 pos d_model"], hook: Any) -> None:
            found[depth] = float(tensor[0, 1:].float().norm(dim=-1).mean())

        return note

    pairs = [(model.hook_name("resid_pre", layer), noting(layer)) for layer in range(n_layers)]
    with model.hooks(*pairs, (model.hook_name("resid_post", n_layers - 1), noting(n_layers))):
        model.forward(ids, last_only=True)
    return found
