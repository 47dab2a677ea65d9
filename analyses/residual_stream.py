"""How does the stream grow and turn? Its length at every depth and position, and how much each block changes its direction.

Blocks only add to the stream, so its length usually grows with depth, and what one block adds is small beside what is
there: the cosine between the stream before and after a block is then near one. A few entries may be much longer than
all others: a beginning of the text on which later layers rest their attention ("massive activations"; Sun, Chen, Kolter
and Liu 2024, "Massive Activations in Large Language Models"). In SmolLM2 it is position 0, whose length is 22,712 where that
of the other positions is 146. So every mean here leaves position 0 out, and a picture of lengths needs a logarithmic axis.

Identity: the stream after a block is the stream before it + attention + MLP, so the lengths of two neighbouring depths
differ by at most attention_norm + mlp_norm.

Limit: length and direction say how much is written, not what, nor whether anything later reads it; a block that turns the
stream little can be the one that matters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._arrays import check_ids, to_float32
from analyses._steps import Cost, Profile, Progress, Steps, drain

# A position counts as massive from this many times the median length of its depth. Our own bound: Sun et al. ask of one
# number in the stream that it is over 100 and about 1,000 times the median number; a length averages over all numbers.
MASSIVE = 10.0


@dataclass(frozen=True, eq=False)
class ResidualStream:
    """Lengths (L2 norms) and directions of the stream. Depth d is the stream before block d; the last is the final one."""

    norm: Float32[np.ndarray, "depth pos"]
    cosine: Float32[np.ndarray, "layer pos"]  # between the stream before and after each block
    attention_norm: Float32[np.ndarray, "layer pos"] | None  # of what attention adds; None where that cannot be read
    mlp_norm: Float32[np.ndarray, "layer pos"] | None

    @property
    def mean_norm(self) -> Float32[np.ndarray, " depth"]:
        """Mean length over positions from 1 on; not a number for one token."""
        return _mean(self.norm)

    @property
    def mean_cosine(self) -> Float32[np.ndarray, " layer"]:
        """Mean cosine over positions from 1 on; not a number for one token."""
        return _mean(self.cosine)

    @property
    def mean_attention_norm(self) -> Float32[np.ndarray, " layer"] | None:
        """Mean length of what attention adds, over positions from 1 on; not a number for one token."""
        return None if self.attention_norm is None else _mean(self.attention_norm)

    @property
    def mean_mlp_norm(self) -> Float32[np.ndarray, " layer"] | None:
        """Mean length of what the MLP adds, over positions from 1 on; not a number for one token."""
        return None if self.mlp_norm is None else _mean(self.mlp_norm)

    @property
    def massive(self) -> tuple[tuple[int, int], ...]:
        """(depth, position) where the stream is over ten times as long as the median of positions from 1 on there."""
        if self.norm.shape[1] < 2:
            return ()
        usual = np.median(self.norm[:, 1:], axis=1, keepdims=True)
        return tuple((int(depth), int(position)) for depth, position in np.argwhere(self.norm > MASSIVE * usual))

    def to_frame(self) -> Any:
        """A pandas table, one row per depth and position: depth, position, norm, cosine, (attention_norm, mlp_norm).

        The last three are of the block that follows; they are empty at the last depth, which no block follows.
        """
        import pandas as pd

        n_depths, n_positions = self.norm.shape
        columns = {
            "depth": np.repeat(np.arange(n_depths), n_positions),
            "position": np.tile(np.arange(n_positions), n_depths),
            "norm": self.norm.ravel(),
        }
        nothing = np.full(n_positions, np.nan, dtype=np.float32)
        for name in ("cosine", "attention_norm", "mlp_norm"):
            if (values := getattr(self, name)) is not None:
                columns[name] = np.concatenate([values.ravel(), nothing])
        return pd.DataFrame(columns)


def residual_stream_steps(model: Any, tokens: Any) -> Steps[ResidualStream]:
    """The steps of `run_residual_stream`: one forward pass."""
    ids = check_ids(tokens, d_vocab=model.config.d_vocab, n_ctx=model.config.n_ctx)
    yield Progress(0, 1, note="one forward pass")
    return _read(model, ids)


def run_residual_stream(model: Any, tokens: Any) -> ResidualStream:
    """Lengths and directions of the stream at every depth and position, and lengths of what is added to it.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.

    Raises:
        ValueError: no tokens, too many, or text instead of ids.
    """
    return drain(residual_stream_steps(model, tokens))


def cost_residual_stream(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """One forward pass; of the streams only lengths are kept."""
    return Cost(
        seconds=profile.forward_seconds(n_tokens) + profile.per_readout,
        peak_bytes=profile.forward_bytes(n_tokens) + 4 * 4 * n_tokens * profile.d_model,
        result_bytes=4 * n_tokens * (4 * profile.n_layers + 1),
    )


def _read(model: Any, ids: tuple[int, ...]) -> ResidualStream:
    """One forward pass, reduced to lengths inside the hooks: of all streams, only the latest is held."""
    from torch.nn.functional import cosine_similarity

    n_layers, n_positions = model.config.n_layers, len(ids)
    arrays = {"norm": np.empty((n_layers + 1, n_positions), np.float32)}
    arrays["cosine"] = np.empty((n_layers, n_positions), np.float32)
    before: list[Any] = []

    def stream(depth: int) -> Callable[..., None]:
        def note(tensor: Float[Any, "1 pos d_model"], hook: Any) -> None:
            now = tensor[0].float()  # fp16 overflows in the square of a massive activation
            arrays["norm"][depth] = to_float32(now.norm(dim=-1))
            if depth:
                arrays["cosine"][depth - 1] = to_float32(cosine_similarity(before.pop(), now, dim=-1).clamp(-1, 1))
            before.append(now)

        return note

    def added(name: str, layer: int) -> Callable[..., None]:
        def note(tensor: Float[Any, "1 pos d_model"], hook: Any) -> None:
            arrays[name][layer] = to_float32(tensor[0].float().norm(dim=-1))

        return note

    pairs = [(model.hook_name("resid_pre", layer), stream(layer)) for layer in range(n_layers)]
    pairs.append((model.hook_name("resid_post", n_layers - 1), stream(n_layers)))
    for name, point in (("attention_norm", "attn_out"), ("mlp_norm", "mlp_out")):
        if not model.capabilities[point]:
            arrays[name] = np.empty((n_layers, n_positions), np.float32)
            pairs += [(model.hook_name(point, layer), added(name, layer)) for layer in range(n_layers)]
    with model.hooks(*pairs):
        model.forward(ids, last_only=True)
    return ResidualStream(
        arrays["norm"], arrays["cosine"], attention_norm=arrays.get("attention_norm"), mlp_norm=arrays.get("mlp_norm")
    )


def _mean(values: Float32[np.ndarray, "row pos"]) -> Float32[np.ndarray, " row"]:
    if values.shape[1] < 2:
        return np.full(len(values), np.nan, dtype=np.float32)
    return values[:, 1:].mean(axis=1)
