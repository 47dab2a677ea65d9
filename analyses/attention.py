"""Who looks where? Every head's attention map of the prompt, and for one head the four steps that make it.

A head compares the query of each token with the keys of the tokens up to it (q . k), multiplies by a factor (one over the
root of the head's width, so that the softmax does not saturate), hides what comes later (the mask), and a softmax makes each
row a set of weights that sum to one; the head then adds up values with them (Vaswani et al. 2017, "Attention Is All You
Need"). With grouped queries several heads share one set of keys and values (Ainslie et al. 2023, "GQA").

Identity: the four steps give the model's own map (`error`), and each row sums to one unless the family gives a share to a
sink that is no token (gpt-oss). Nothing is rescaled here, and `least_row_sum` says how far rows are from one.

Limit: a weight says how much of a value is mixed in, not what the value does. A head may look at a token and take nothing
from it: `weighted` multiplies each weight by the size of what is written. Even so a map is not an explanation of the answer
(Jain and Wallace 2019, "Attention is not Explanation"); to know what a head does, leave it out and measure (head_check.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32, UInt8

from analyses._arrays import check_ids, to_float32
from analyses._head_steps import POINTS, head_steps
from analyses._heads import check_head, check_layer, head_name, kv_heads, layer_windows, sink_share
from analyses._steps import Cost, Profile, Progress, Steps, drain

FULL_BYTES = 8 << 20  # of all maps together; above this "auto" sends block maxima: half the app's limit for one result
BLOCKS = 64  # per side of a sheet's map: as many pixels as a small picture of it has


@dataclass(frozen=True, eq=False)
class Attention:
    """All heads of some layers as bytes, lower triangle only; one head exactly, where it was asked for."""

    layers: tuple[int, ...]  # of the maps in `packed`
    packed: UInt8[np.ndarray, "layer head cell"]  # round(255 * weight), rows of the lower triangle one after the other
    n_tokens: int
    block: int  # 1: every pair; n: each cell is the largest weight among n x n pairs
    kv_head_of: Int32[np.ndarray, " head"]
    window: tuple[int | None, ...]  # of every layer of the model: tokens it sees, its own among them; None: all
    sinks: tuple[bool, ...]  # of `layers`: rows sum to less than one by design
    least_row_sum: Float32[np.ndarray, "layer head"]  # 1 where every row sums to one
    rows_reason: str  # "" where rows sum to one; else why not
    # ---- one head, in exact numbers ----
    layer: int | None = None
    head: int | None = None
    exact: Float32[np.ndarray, "query key"] | None = None  # the model's own weights
    weighted: Float32[np.ndarray, "query key"] | None = None  # weight times `written`
    written: Float32[np.ndarray, " key"] | None = (
        None  # size (L2 norm) of what each token's value adds through this head
    )
    raw: Float32[np.ndarray, "query key"] | None = None  # q . k of every pair, also of later keys
    scaled: Float32[np.ndarray, "query key"] | None = None  # times `scale`; then the soft cap, where there is one
    masked: Float32[np.ndarray, "query key"] | None = (
        None  # plus ALiBi's bias; minus infinity where a query must not look
    )
    softmax: Float32[np.ndarray, "query key"] | None = None  # our own softmax of `masked`
    scale: float | None = None  # measured: what this model multiplies q . k by
    softcap: float | None = None  # measured; None where scores are not capped
    slope: float | None = None  # ALiBi: added per key position; 0 elsewhere
    error: float | None = None  # largest difference between `softmax` and `exact`
    steps_reason: str = ""  # why raw, scaled, masked and softmax are missing

    @property
    def pattern(self) -> UInt8[np.ndarray, "layer head query key"]:
        """Maps with both sides; zero above the diagonal. Sides are blocks where `block` is not 1."""
        side = -(-self.n_tokens // self.block)
        maps = np.zeros((*self.packed.shape[:2], side, side), dtype=np.uint8)
        maps[:, :, *np.tril_indices(side)] = self.packed
        return maps

    def to_frame(self) -> Any:
        """A pandas table: the opened head's pairs (query, key, weight, ...), or one row per head."""
        import pandas as pd

        if self.exact is None:
            n_heads = len(self.kv_head_of)
            index = [(layer, head) for layer in self.layers for head in range(n_heads)]
            return pd.DataFrame(
                {
                    "layer": [layer for layer, _ in index],
                    "head": [head for _, head in index],
                    "name": [head_name(*pair) for pair in index],
                    "kv_head": [int(self.kv_head_of[head]) for _, head in index],
                    "window": [self.window[layer] for layer, _ in index],
                    "least_row_sum": self.least_row_sum.ravel(),
                }
            )
        query, key = np.tril_indices(self.n_tokens)
        columns = {"query": query, "key": key, "weight": self.exact[query, key]}
        for name in ("raw", "scaled", "masked", "softmax", "weighted"):
            if (values := getattr(self, name)) is not None:
                columns[name] = values[query, key]
        return pd.DataFrame(columns)


def attention_steps(
    model: Any,
    tokens: Any,
    *,
    layers: Sequence[int] | None = None,
    detail: str = "auto",
    layer: int | None = None,
    head: int | None = None,
) -> Steps[Attention]:
    """The steps of `run_attention`: one forward pass."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    chosen = tuple(range(config.n_layers)) if layers is None else tuple(int(i) for i in layers)
    for number in chosen:
        check_layer(config, number)
    if (layer is None) != (head is None):
        raise ValueError(f"needs a layer and a head, or neither; found {layer} and {head}; name both.")
    if layer is not None and head is not None:
        check_head(config, layer, head)
    block = block_size(len(ids), len(chosen) * config.n_heads, detail)
    model.require("pattern")
    yield Progress(0, 1, note="one forward pass")
    reader = _Reader(block, chosen, layer)
    with model.hooks(*reader.hooks(model)):
        # Only the steps of one head need the stream before its block.
        calls = model.capture_calls(ids) if layer is not None else model.forward(ids, last_only=True)
    opened = {} if layer is None else _open_head(model, calls, reader.seen, layer, head)
    least = reader.least(config.n_heads)
    return Attention(
        layers=chosen,
        packed=reader.packed(config.n_heads, -(-len(ids) // block)),
        n_tokens=len(ids),
        block=block,
        kv_head_of=kv_heads(config.n_heads, config.n_kv_heads),
        window=layer_windows(model),
        sinks=tuple(sink_share(model, number, float(row.min())) for number, row in zip(chosen, least, strict=True)),
        least_row_sum=least,
        rows_reason=model.capabilities["rows_sum_to_one"],
        **opened,
    )


def run_attention(
    model: Any,
    tokens: Any,
    *,
    layers: Sequence[int] | None = None,
    detail: str = "auto",
    layer: int | None = None,
    head: int | None = None,
) -> Attention:
    """Attention maps of all heads, and one head exactly.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        layers: whose maps to return; None for all, an empty list for none (when only one head is opened).
        detail: "full" for every pair, "sheet" for the largest weight in each of at most 64 x 64 blocks, "auto" for full
            where all maps fit in 8 MiB.
        layer: of the head to open; with `head`.
        head: to open: exact weights, the four steps, the value-weighted view.

    Raises:
        ValueError: a model without attention maps, no tokens, too many, a layer or head that is not there, another detail.
    """
    return drain(attention_steps(model, tokens, layers=layers, detail=detail, layer=layer, head=head))


def block_size(n_tokens: int, n_maps: int, detail: str) -> int:
    """Tokens per side of a cell: 1 for every pair.

    Raises:
        ValueError: an unknown detail.
    """
    if detail not in ("auto", "full", "sheet"):
        raise ValueError(f"needs the detail auto, full or sheet; found {detail!r}; choose one of them.")
    small = n_maps * n_tokens * (n_tokens + 1) // 2 <= FULL_BYTES
    return 1 if detail == "full" or (detail == "auto" and small) else -(-n_tokens // BLOCKS)


def cost_attention(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass; for an opened head the readout of every position comes with it."""
    layers, one = params.get("layers"), params.get("layer") is not None
    n_maps = (profile.n_layers if layers is None else len(layers)) * profile.n_heads
    side = -(-n_tokens // block_size(n_tokens, n_maps, params.get("detail", "auto")))
    maps = n_maps * side * (side + 1) // 2
    pairs = n_tokens**2
    readouts = n_tokens if one else 1
    return Cost(
        seconds=profile.forward_seconds(n_tokens) + profile.per_readout * readouts,
        # The steps of a head hold all heads of its layer in float64, four times; its masks and scores come beside.
        peak_bytes=profile.forward_bytes(n_tokens, readouts=readouts) + 2 * maps + 40 * profile.n_heads * pairs * one,
        result_bytes=maps + n_maps * 4 + 4 * one * (6 * pairs + n_tokens),
    )


class _Reader:
    """Reduces each layer's maps inside the hook, so that no two layers' maps are held at once."""

    def __init__(self, block: int, layers: tuple[int, ...], opened: int | None) -> None:
        self.seen: dict[str, Any] = {}  # what the points of the opened head's layer reported
        self._block, self._layers, self._opened = block, layers, opened
        self._packed: dict[int, UInt8[np.ndarray, "head cell"]] = {}
        self._least: dict[int, Float32[np.ndarray, " head"]] = {}

    def hooks(self, model: Any) -> list[tuple[str, Any]]:
        pairs = [(model.hook_name("pattern", i), self._keep(i)) for i in sorted(set(self._layers))]
        if self._opened is not None:
            names = {point: model.hook_name(point, self._opened) for point in POINTS}
            pairs += [(name, self._see(point)) for point, name in names.items() if model.has_hook(name)]
        return pairs

    def _keep(self, layer: int) -> Any:
        def keep(tensor: Float[Any, "1 head query key"], hook: Any) -> None:
            self._packed[layer] = pack(tensor[0].float(), self._block)
            self._least[layer] = to_float32(tensor[0].float().sum(-1).amin(-1))

        return keep

    def _see(self, point: str) -> Any:
        return lambda tensor, hook: self.seen.update({point: tensor})

    def packed(self, n_heads: int, side: int) -> UInt8[np.ndarray, "layer head cell"]:
        empty = np.zeros((0, n_heads, side * (side + 1) // 2), dtype=np.uint8)
        return np.stack([self._packed[i] for i in self._layers]) if self._layers else empty

    def least(self, n_heads: int) -> Float32[np.ndarray, "layer head"]:
        empty = np.zeros((0, n_heads), dtype=np.float32)
        return np.stack([self._least[i] for i in self._layers]) if self._layers else empty


def pack(maps: Float[Any, "head query key"], block: int) -> UInt8[np.ndarray, "head cell"]:
    """Weights as bytes, rows of the lower triangle one after the other; the largest of each block where it is not 1."""
    import torch

    side = -(-maps.shape[-1] // block)
    if block > 1:
        missing = side * block - maps.shape[-1]
        padded = torch.nn.functional.pad(maps, (0, missing, 0, missing))
        maps = padded.reshape(len(maps), side, block, side, block).amax((2, 4))
    rows, columns = torch.tril_indices(side, side, device=maps.device)
    return (255 * maps[:, rows, columns]).round().to(torch.uint8).cpu().numpy()


def _open_head(model: Any, calls: Any, seen: Mapping[str, Any], layer: int, head: int) -> dict[str, Any]:
    """The fields of one head."""
    exact = to_float32(seen["pattern"][0, head])
    fields: dict[str, Any] = {"layer": layer, "head": head, "exact": exact}
    steps, fields["steps_reason"] = head_steps(model, calls, seen, layer, head)
    if steps is not None:
        fields |= vars(steps) | {"error": float(np.abs(steps.softmax - exact).max())}
    output = model.linear_parts().outputs[layer]
    if "value" in seen and output is not None and not model.capabilities["head_output"]:
        written = written_size(output, seen["value"], model.config.n_heads, head)
        fields |= {"written": written, "weighted": exact * written}
    return fields


def written_size(
    output: Any, value: Float[Any, "1 key kv_head d_head"], n_heads: int, head: int
) -> Float32[np.ndarray, " key"]:
    """L2 norm of what each token's value becomes behind this head's output matrix: |v W_O| (without its bias)."""
    import torch

    served = head // (n_heads // value.shape[2])
    alone = torch.zeros(value.shape[1] + 1, n_heads, value.shape[3], dtype=value.dtype, device=value.device)
    alone[:-1, head] = value[0, :, served]  # the last row stays zero: the bias
    written = output(alone.flatten(1))
    return to_float32((written[:-1] - written[-1]).float().norm(dim=-1))
