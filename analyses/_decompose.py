"""The maps between a part of the stream and a logit, which are linear once the norms' statistics are held.

A norm divides by a number that it computes from its input. With that number held at its value in the run, a norm
multiplies each component by a constant (and, for a LayerNorm, takes the mean off first); so does the unembedding, and
a head's output matrix. The constants are found by trying the norm, not by reading its weights: families store them in
different ways (Gemma's gain is 1 + weight, Cohere's norm has no bias).

Only analyses/model.py opens the bridge; it hands out a `LinearParts`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Float64

BEFORE_TRANSFORM = "unembed.hook_out"  # hook: [batch, pos, d_vocab] logits before the family's softcap or scale
PROBE = 32.0  # size of a probing component: a norm's epsilon (1e-5 or less) is then below 1e-8 of the mean square
TOLERANCE = {"float32": 1e-3}  # of what attention writes, for its heads to count as understood; a wrong map is off by 1
TOLERANCE_HALF = 0.05  # bfloat16 keeps 8 bits


@dataclass(frozen=True)
class LinearParts:
    """Modules of a model, to be called with rows and never changed."""

    final_norm: Callable[..., Any]
    weight: Float[Any, "d_vocab d_model"]  # the unembedding
    bias: Float[Any, " d_vocab"] | None
    outputs: tuple[Any, ...]  # layer -> attention's output matrix (with its bias), None where there is none
    post_norms: tuple[Any, ...]  # layer -> the norm between it and the stream (Gemma 2, OLMo 2), None without

    def unembedding(self, token: int) -> tuple[Float64[Any, " d_model"], float]:
        """Row and bias with which the normed stream gives a token's logit."""
        return _exact(self.weight[token]), 0.0 if self.bias is None else float(self.bias[token])


@dataclass(frozen=True)
class FrozenNorm:
    """A norm with the statistics of one row held: `gain * (x - mean of x, if it centres) + bias`."""

    gain: Float64[Any, " d_model"]
    bias: Float64[Any, " d_model"]
    centres: bool

    def pull_back(self, direction: Float64[Any, " d_model"]) -> Float64[Any, " d_model"]:
        """The direction before the norm whose product with a part is that part's product with `direction` after it."""
        scaled = self.gain * direction
        return scaled - scaled.mean() if self.centres else scaled


@dataclass(frozen=True)
class HeadShares:
    """What each head, and attention without its heads, adds along a direction of the stream."""

    head: Float64[Any, " head"]
    bias: float


def linear_parts(bridge: Any) -> LinearParts:
    """The modules of a bridge that a logit is split with."""
    unembedding = bridge.original_model.get_output_embeddings()
    return LinearParts(
        final_norm=bridge.ln_final,
        weight=unembedding.weight,
        bias=getattr(unembedding, "bias", None),
        outputs=tuple(getattr(block.attn, "o", None) for block in bridge.blocks),
        post_norms=tuple(getattr(block, "ln1_post", None) for block in bridge.blocks),
    )


def freeze(norm: Callable[..., Any], row: Float[Any, " d_model"]) -> FrozenNorm:
    """The norm as it acts on this row, found from four rows that it is tried on.

    Zero gives its bias; equal components show whether it takes the mean off; alternating ones give its gain; the row
    itself gives the number it divides by.
    """
    import torch

    signs = torch.full_like(row, PROBE)
    signs[1::2] = -PROBE
    zero, equal, alternating, actual = _exact(
        norm(torch.stack([torch.zeros_like(row), torch.full_like(row, PROBE), signs, row]))
    )
    centres = bool((equal - zero).norm() < 0.5 * (alternating - zero).norm())
    probe, own = _exact(signs), _exact(row)
    if centres:
        probe, own = probe - probe.mean(), own - own.mean()
    gain = (alternating - zero) * probe.square().mean().sqrt() / probe
    shape = gain * own
    scale = (actual - zero) @ shape / shape.square().sum().clamp(min=torch.finfo(shape.dtype).tiny)
    return FrozenNorm(gain * scale, zero, centres)


def split_heads(
    parts: LinearParts,
    layer: int,
    heads: Float[Any, "head d_head"],
    written: Float[Any, " d_model"],
    direction: Float64[Any, " d_model"],
) -> HeadShares | str:
    """What every head of a layer adds along a direction, or the reason why its attention is no sum of heads.

    Args:
        parts: of the model.
        layer: from zero.
        heads: the heads' outputs at one position, before the output matrix.
        written: what attention added to the stream there.
        direction: of the stream.
    """
    import torch

    output = parts.outputs[layer]
    if output is None or heads.ndim != 2:
        return "its attention has no output matrix over separate heads"
    count, width = heads.shape
    apart = torch.zeros(count + 2, count, width, dtype=heads.dtype, device=heads.device)
    apart[torch.arange(count), torch.arange(count)] = heads  # one head each; then none of them; then all
    apart[-1] = heads
    mixed = output(apart.flatten(1))
    none, whole = _exact(mixed[-2]), mixed[-1]
    post = parts.post_norms[layer]
    frozen = None if post is None else freeze(post, whole)
    predicted, actual = _exact(whole if post is None else post(whole[None])[0]), _exact(written)
    # Granite multiplies what a sublayer writes by one number before it is added.
    factor = float(predicted @ actual / predicted.square().sum().clamp(min=torch.finfo(predicted.dtype).tiny))
    gap = float((factor * predicted - actual).norm() / actual.norm().clamp(min=torch.finfo(actual.dtype).tiny))
    if not gap <= TOLERANCE.get(str(written.dtype).removeprefix("torch."), TOLERANCE_HALF):
        return f"what its heads write does not sum to what attention adds (off by {gap:.2g} of it in layer {layer})"
    towards = direction if frozen is None else frozen.pull_back(direction)
    own_bias = none @ towards + (0.0 if frozen is None else frozen.bias @ direction)
    return HeadShares(factor * ((_exact(mixed[:-2]) - none) @ towards), factor * float(own_bias))


def _exact(tensor: Float[Any, "..."]) -> Float64[Any, "..."]:
    """In float64 on the CPU, so that sums of hundreds of parts add no rounding of their own (mps has no float64)."""
    return tensor.detach().cpu().double()
