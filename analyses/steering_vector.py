"""A steering vector as a value: a direction of the stream, where it belongs, and how it was made.

Add, subtract, scale, normalise and project out return new vectors; a vector itself never changes. A file of it is safetensors
(numbers and text, no code) with its origin, so that a vector of another model is refused instead of added.

Identities: (a + b) - b = a up to rounding; after `a.project_out(b)` the dot product with b is zero; saved and loaded is equal
bit for bit.

Limit: that concepts are directions is a working hypothesis (Park, Choe and Veitch 2023, "The Linear Representation Hypothesis
and the Geometry of Large Language Models"). A vector is what two groups of texts differ in, and that may be something else than
its name says.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from analyses._direction import check_values, encode_values

FORMAT = "streamscope steering vector 1"
MAX_BYTES = 1 << 20  # of a file: a vector of 65,536 numbers takes a quarter of it
MAX_TEXT = 200  # characters of a name or an origin: it is shown on a page
FIELDS = ("name", "model", "fingerprint", "made", "read")


@dataclass(frozen=True, eq=False)
class SteeringVector:
    """A direction of the stream before block `layer`; frozen, and its numbers are read-only."""

    direction: Float32[np.ndarray, " d_model"]  # with the length it was found with, in the stream's own units
    layer: int
    name: str
    model: str = ""  # name of the model it belongs to
    fingerprint: str = ""  # of that model; "" when it is not known
    made: str = ""  # how, in words
    read: str = ""  # "mean" or "last": which positions were read; "" when no text was

    def __post_init__(self) -> None:
        own = np.array(check_values(self.direction), dtype=np.float32)  # a copy: nobody else holds it
        own.flags.writeable = False
        object.__setattr__(self, "direction", own)

    @property
    def norm(self) -> float:
        """Length, in the stream's own units."""
        return float(np.linalg.norm(self.direction.astype(np.float64)))

    @property
    def digest(self) -> str:
        """Changes with the numbers, the layer and the model."""
        found = hashlib.blake2b(f"{self.layer} {self.fingerprint} ".encode(), digest_size=16)
        found.update(self.direction.astype("<f4").tobytes())
        return found.hexdigest()

    @property
    def wire(self) -> dict[str, Any]:
        """The JSON-able form that analyses take as `vector`."""
        return {"values": encode_values(self.direction), "layer": self.layer}

    def __add__(self, other: "SteeringVector") -> "SteeringVector":
        return self._with(self.direction + self._partner(other).direction, f"{self.name} + {other.name}", "sum")

    def __sub__(self, other: "SteeringVector") -> "SteeringVector":
        return self._with(self.direction - self._partner(other).direction, f"{self.name} - {other.name}", "difference")

    def __neg__(self) -> "SteeringVector":
        return self.scale(-1.0)

    def scale(self, factor: float | int) -> "SteeringVector":
        """`factor` times as long; negative factors turn it round."""
        return self._with(np.float32(factor) * self.direction, f"{factor:g} x {self.name}", f"{factor:g} times")

    def normalise(self) -> "SteeringVector":
        """The same direction with length one."""
        unit = self.direction.astype(np.float64) / self.norm
        return self._with(unit.astype(np.float32), self.name, "length one of")

    def project_out(self, other: "SteeringVector") -> "SteeringVector":
        """Without its component along `other`.

        Raises:
            ValueError: nothing is left: the two point the same way.
        """
        along = self._partner(other).direction.astype(np.float64) / other.norm
        own = self.direction.astype(np.float64)
        left = own - (own @ along) * along
        if np.linalg.norm(left) < 1e-6 * self.norm:
            raise ValueError(
                "needs two vectors that point different ways; found parallel ones; choose another to take out."
            )
        return self._with(left.astype(np.float32), f"{self.name} without {other.name}", "projection")

    def cosine(self, other: "SteeringVector") -> float:
        """1 for the same direction, 0 for a right angle, -1 for opposite ones; the layers may differ."""
        _check_width(other.direction, len(self.direction))
        return float(self.direction.astype(np.float64) @ other.direction.astype(np.float64)) / (self.norm * other.norm)

    def at(self, layer: int) -> "SteeringVector":
        """The same numbers for another layer: streams of all layers share their axes, not what these mean."""
        if layer < 0:
            raise ValueError(f"needs a layer from 0; found {layer}; layers count from zero.")
        return replace(self, layer=layer)

    def rename(self, name: str) -> "SteeringVector":
        """The same numbers under another name."""
        return replace(self, name=name)

    def intervention(
        self,
        *,
        coefficient: float | int | None = None,
        size: float | int | None = None,
        where: str = "both",
        mode: str = "add",
        layer: Any = None,
        first: bool = False,
    ) -> dict[str, Any]:
        """`{"steer": {...}}` for `run_generation`: JSON-able, holds the numbers themselves.

        Args:
            coefficient: in mean lengths of the stream at the layer; 0.3 unless a size is given (1 to project out).
            size: instead of it, the length that is added, in the stream's own units.
            where: "prompt" (before its last position), "new" (from its last position on) or "both".
            mode: "add", or "project_out" to take the component along the direction away.
            layer: another layer than the vector's, or [first, last].
            first: position 0 too, which is left alone otherwise.
        """
        if coefficient is None and size is None:
            coefficient = 1.0 if mode == "project_out" else 0.3
        amount = {key: value for key, value in (("coefficient", coefficient), ("size", size)) if value is not None}
        place = {"layer": self.layer if layer is None else layer, "mode": mode, "where": where}
        return {"steer": self.wire | place | amount | ({"first": True} if first else {})}

    def _partner(self, other: "SteeringVector") -> "SteeringVector":
        _check_width(other.direction, len(self.direction))
        if other.fingerprint and self.fingerprint and other.fingerprint != self.fingerprint:
            raise ValueError(
                f"needs two vectors of one model; found {self.model!r} and {other.model!r}; make both with one model."
            )
        if other.layer != self.layer:
            raise ValueError(
                f"needs two vectors of one layer; found {self.layer} and {other.layer}; move one with .at({self.layer})."
            )
        return other

    def _with(self, direction: Float32[np.ndarray, " d_model"], name: str, made: str) -> "SteeringVector":
        words = f"{made} {self.name} ({self.made})" if self.made else f"{made} {self.name}"
        return replace(self, direction=direction, name=name[:MAX_TEXT], made=words[:MAX_TEXT])


def random_vector_like(vector: SteeringVector, seed: int = 0) -> SteeringVector:
    """A vector of the same length and a random direction, all directions alike: the control that steering is compared with."""
    found = np.random.default_rng(seed).standard_normal(len(vector.direction))
    same = (found * vector.norm / np.linalg.norm(found)).astype(np.float32)
    return replace(vector, direction=same, name=f"random {seed}", made=f"random, seed {seed}", read="")


def check_vector(
    vector: SteeringVector, *, d_model: int, n_layers: int, fingerprint: str = "", model: str = ""
) -> SteeringVector:
    """The same vector, if it belongs to this model.

    Raises:
        ValueError: another width, a layer that is not there, or another model of the same shape.
    """
    _check_width(vector.direction, d_model)
    if not 0 <= vector.layer < n_layers:
        raise ValueError(f"needs a layer from 0 to {n_layers - 1}; found {vector.layer}; load a vector of this model.")
    if fingerprint and vector.fingerprint and vector.fingerprint != fingerprint:
        raise ValueError(
            f"needs a vector of this model ({model or fingerprint}); found one of {vector.model or vector.fingerprint!r}; "
            "load that model or make the vector again."
        )
    return vector


def save_vector(vector: SteeringVector, path: Any = None) -> bytes:
    """The vector as a safetensors file with its origin; also written to `path` when there is one."""
    from safetensors.numpy import save

    words = {key: str(getattr(vector, key)) for key in FIELDS}
    data = save(
        {"direction": np.array(vector.direction)}, metadata={"format": FORMAT, "layer": str(vector.layer)} | words
    )
    if path is not None:
        Path(path).write_bytes(data)
    return data


def load_vector(source: Any) -> SteeringVector:
    """A vector from a file or from its bytes. `check_vector` says whether it belongs to a model.

    Raises:
        ValueError: another kind of file, one that is damaged or too large, or numbers that are no direction.
    """
    data = source if isinstance(source, bytes) else _read_file(Path(source))
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"needs a file of at most {MAX_BYTES >> 20} MiB; found {len(data) / 2**20:,.1f} MiB; choose a steering vector's file."
        )
    tensors, words = _parts(data)
    tensor = tensors.get("direction")
    if words.get("format") != FORMAT or len(tensors) != 1 or tensor is None:
        raise ValueError(
            "needs a steering vector's file; found another safetensors file; save one on the Steering page first."
        )
    layer = words.get("layer", "")
    if (
        tensor["dtype"] != "F32"
        or len(tensor["shape"]) != 1
        or not (layer.isascii() and layer.isdigit() and len(layer) < 5)
    ):
        raise ValueError("needs one row of float32 numbers and a layer; found something else; save the vector again.")
    direction = np.frombuffer(bytes(tensor["data"]), dtype="<f4").astype(np.float32)
    return SteeringVector(direction, int(layer), **{key: _plain(words.get(key, "")) for key in FIELDS})


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"needs a file that can be read; found {path.name!r} ({error.strerror}); check its name."
        ) from error


def _parts(data: bytes) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Tensors and metadata of a safetensors file; safetensors itself checks offsets and sizes."""
    from safetensors import SafetensorError, deserialize

    try:
        tensors = dict(deserialize(data))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(
            "needs a steering vector's file (safetensors); found something else; choose another."
        ) from error
    words = header.get("__metadata__") or {}
    return tensors, words


def _plain(text: str) -> str:
    """What may be shown: no control or direction characters, no more than fits a line."""
    return "".join(c for c in text if c.isprintable())[:MAX_TEXT]


def _check_width(direction: Float32[np.ndarray, " d_model"], d_model: int) -> None:
    if direction.shape != (d_model,):
        raise ValueError(f"needs a vector of {d_model:,} numbers; found {direction.shape}; make it with this model.")
