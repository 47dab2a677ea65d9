"""Reading many rows of a stream out, a piece at a time: the logits of all of them together would not fit.

One row of SmolLM2's logits is 0.2 MB; all depths and positions of a 512-token prompt would be 3.1 GB. Pieces are rows
(`row_chunks`) or parts of the vocabulary (`Unembedding`): many rows against a small part reuse that part while it is in the
processor's cache, which takes half the time of a few rows against the whole (docs/log.md).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from jaxtyping import Float, Int

CHUNK_BYTES = 32 << 20  # of float32 logits that are held at once; 64 to 128 rows are fastest on a CPU


def row_chunks(model: Any, n_rows: int, *, held: int = 2) -> Iterator[slice]:
    """Slices that cover the rows; asks `model.check()` before each, so that a reader can be stopped.

    Args:
        model: a HookedModel.
        n_rows: rows to read.
        held: arrays of the size of the logits that the reader holds at once, the logits among them.
    """
    for rows in even_slices(n_rows, CHUNK_BYTES // (4 * held * model.config.d_vocab)):
        model.check()
        yield rows


def even_slices(n: int, at_most: int) -> Iterator[slice]:
    """Slices of nearly equal length that cover 0 to n: a short last one would cost as much as a full one."""
    n_slices = -(-n // max(1, at_most))
    for i in range(n_slices):
        yield slice(i * n // n_slices, (i + 1) * n // n_slices)


def log_probability_of(
    model: Any, resid: Float[Any, "*rows d_model"], targets: Int[Any, "*rows"]
) -> Float[Any, "*rows"]:
    """Log-probability (nats, float32, on the model's device) that each row of a stream before the final norm gives its target."""
    import torch

    flat, wanted = resid.reshape(-1, resid.shape[-1]), targets.reshape(-1, 1)
    found = torch.empty(len(flat), dtype=torch.float32, device=flat.device)
    for rows in row_chunks(model, len(flat)):
        logits = model.readout(flat[rows]).float()
        found[rows] = logits.gather(-1, wanted[rows])[:, 0] - logits.logsumexp(-1)
    return found.reshape(resid.shape[:-1])


@dataclass(frozen=True, eq=False)
class Unembedding:
    """The readout taken apart: `transform(norm(resid) @ weight.T + bias)`, for a part of the vocabulary."""

    norm: Callable[[Any], Any]  # the model's final norm, [..., d_model] -> [..., d_model]
    weight: Float[Any, "d_vocab d_model"]
    bias: Float[Any, " d_vocab"] | None  # None where it is zero: adding it costs a pass over the logits
    transform: Callable[[Any], Any]  # softcap or scale of the family, value by value

    def logits(self, normed: Float[Any, "rows d_model"], columns: slice) -> Float[Any, "rows columns"]:
        """float32 logits of a part of the vocabulary."""
        from torch.nn.functional import linear

        bias = None if self.bias is None else self.bias[columns]
        return self.transform(linear(normed, self.weight[columns], bias)).float()

    def logits_at(self, normed: Float[Any, "rows d_model"], ids: Int[Any, "rows k"]) -> Float[Any, "rows k"]:
        """float32 logits of some tokens, other ones for every row."""
        import torch

        # In float32 and then rounded, as a matrix multiplication does: a sum in bfloat16 would round at every step.
        wide = normed.float()
        found = torch.stack([torch.linalg.vecdot(wide, self.weight[column].float()) for column in ids.T], dim=-1)
        found = found.to(self.weight.dtype)
        return self.transform(found if self.bias is None else found + self.bias[ids]).float()


_unembeddings: WeakKeyDictionary[Any, Unembedding | None] = WeakKeyDictionary()
_halves: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def unembedding_of(model: Any) -> Unembedding | None:
    """The parts of `model.readout`, or None where they do not reproduce it. Tried once per model, on one row."""
    if model not in _unembeddings:
        _unembeddings[model] = _taken_apart(model)
    return _unembeddings[model]


def half_weight(model: Any) -> Float[Any, "d_vocab d_model"] | None:
    """The unembedding in bfloat16, made once per model (it costs as much as reading 30 rows); None where it gains nothing."""
    import torch

    parts = unembedding_of(model)
    if parts is None or parts.weight.dtype != torch.float32 or not is_bfloat16_fast(model.config.device):
        return None
    if model.weights not in _halves:
        _halves[model.weights] = parts.weight.to(torch.bfloat16)
    return _halves[model.weights]


def is_bfloat16_fast(device: str) -> bool:
    """Whether matrices in bfloat16 multiply faster than in float32 here.

    Without instructions for it (AVX-512 BF16, AMX, or the one of ARM) a CPU converts each number, and is slower.
    """
    import torch

    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    able = torch.cpu.get_capabilities()
    return device == "cpu" and any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _taken_apart(model: Any) -> Unembedding | None:
    """Compared with the whole, one half of the vocabulary after the other: a transform that mixes tokens would show."""
    import torch

    bridge = model._bridge
    linear = getattr(bridge.unembed, "original_component", None)
    weight, bias = getattr(linear, "weight", None), getattr(linear, "bias", None)
    if weight is None or weight.shape != (model.config.d_vocab, model.config.d_model) or not weight.is_floating_point():
        return None
    if bias is not None and not bool(bias.any()):
        bias = None
    parts = Unembedding(bridge.ln_final, weight, bias, bridge.adapter.apply_output_logits_transform)
    row = torch.randn(1, model.config.d_model, generator=torch.Generator().manual_seed(0)).to(weight)
    whole, half = model.readout(row).float(), model.config.d_vocab // 2
    normed = parts.norm(row)
    halves = torch.cat([parts.logits(normed, slice(0, half)), parts.logits(normed, slice(half, None))], dim=1)
    tolerance = (1e-5 if weight.dtype == torch.float32 else 0.02) * float(whole.abs().max())
    return parts if torch.allclose(halves, whole, atol=tolerance) else None
