"""Who mixes positions? One token is changed: its MLP output changes and no other; attention passes the change on.

The MLP is the same function at every position, of that position alone ("position-wise feed-forward networks", Vaswani et al.
2017, "Attention Is All You Need"). Attention is the only part of a block in which positions meet. So the row of one position in
the stream that a layer reads is replaced by what it is after another token, and all other rows are left: the layer's MLP output
is compared, and, in another pass, its attention output.

Identity: the MLP's output at every other position is exactly the same, to the last bit; attention's at every earlier position
too, for the mask lets nothing look ahead.

Limit: exact zeros are about one layer. In the whole run a changed token reaches the MLPs of all later positions, because the
attention of earlier layers has carried it there (the third row). A mixture of experts sorts tokens by expert before it computes,
so there the other positions are the same up to rounding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from analyses._arrays import check_ids
from analyses._matrices import keep
from analyses._steps import Cost, Profile, Progress, Steps, drain


@dataclass(frozen=True, eq=False)
class PositionWise:
    """How far each position's output moved: the length of the difference over the length of what it was."""

    layer: int
    position: int  # of the changed token
    token: int  # id that was there
    replacement: int  # id that was put there
    side_by_side: bool  # attention and MLP both read the stream before the block
    mlp_change: Float32[np.ndarray, " pos"]  # the MLP got one changed row
    attention_change: Float32[np.ndarray, " pos"]  # attention got one changed row
    run_change: Float32[
        np.ndarray, " pos"
    ]  # the MLP of the same layer when the whole text was run with the other token
    mlp_elsewhere: float  # largest difference of a number at any other position
    attention_before: float  # the same, before the changed position

    def to_frame(self) -> Any:
        """A pandas table, one row per position."""
        import pandas as pd

        columns = ("mlp_change", "attention_change", "run_change")
        return pd.DataFrame(
            {"position": np.arange(len(self.mlp_change))} | {name: getattr(self, name) for name in columns}
        )


def position_wise_steps(
    model: Any, tokens: Any, *, layer: int | None = None, position: int = 0, replacement: int | None = None
) -> Steps[PositionWise]:
    """The steps of `run_position_wise`: four forward passes."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx, at_least=2)
    layer = config.n_layers // 2 if layer is None else layer
    mlp, attention = model.hook_name("mlp_out", layer), model.hook_name("attn_out", layer)
    if not -len(ids) <= position < len(ids):
        raise ValueError(f"needs a position from 0 to {len(ids) - 1}; found {position}; choose a token of the prompt.")
    position %= len(ids)
    other = (ids[position] + 1) % config.d_vocab if replacement is None else replacement
    changed = (*ids[:position], other, *ids[position + 1 :])
    check_ids(changed, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    if other == ids[position]:
        raise ValueError(f"needs another token than the one that is there; found id {other} twice; choose another.")
    side_by_side = bool(model.capabilities["resid_mid"])
    read_by_attention = model.hook_name("resid_pre", layer)
    read_by_mlp = read_by_attention if side_by_side else model.hook_name("resid_mid", layer)
    seen = {}
    for index, (name, text) in enumerate((("text", ids), ("changed", changed))):
        yield Progress(index, 4, note="the text with one token changed" if index else "the text")
        seen[name] = _record(model, text, {mlp, attention, read_by_attention, read_by_mlp})
    patched = {}
    for index, (part, read) in enumerate(((mlp, read_by_mlp), (attention, read_by_attention))):
        yield Progress(2 + index, 4, note=f"one changed row into layer {layer}")
        row = seen["changed"][read][:, position]
        patched[part] = _record(model, ids, {part}, patch=(read, position, row))[part]
    base = seen["text"]
    moved = {part: (patched[part] - base[part])[0].abs().amax(-1).numpy() for part in (mlp, attention)}
    return PositionWise(
        layer=layer,
        position=position,
        token=ids[position],
        replacement=other,
        side_by_side=side_by_side,
        mlp_change=_relative(patched[mlp], base[mlp]),
        attention_change=_relative(patched[attention], base[attention]),
        run_change=_relative(seen["changed"][mlp], base[mlp]),
        mlp_elsewhere=float(max(moved[mlp][:position].max(initial=0), moved[mlp][position + 1 :].max(initial=0))),
        attention_before=float(moved[attention][:position].max(initial=0)),
    )


def run_position_wise(
    model: Any, tokens: Any, *, layer: int | None = None, position: int = 0, replacement: int | None = None
) -> PositionWise:
    """What one changed token does to the MLP and to the attention of one layer, position by position.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        layer: the middle one when None.
        position: of the token that is changed; negative ones count from the end.
        replacement: id to put there; the next id of the vocabulary when None.

    Raises:
        ValueError: fewer than two tokens, a layer or position that is not there, or the token that is there already.
    """
    return drain(position_wise_steps(model, tokens, layer=layer, position=position, replacement=replacement))


def cost_position_wise(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Four forward passes without readout."""
    return Cost(
        seconds=4 * profile.forward_seconds(n_tokens),
        peak_bytes=profile.forward_bytes(n_tokens) + 10 * 4 * n_tokens * profile.d_model,
        result_bytes=12 * n_tokens,
    )


def _record(
    model: Any, ids: tuple[int, ...], names: set[str], patch: tuple[str, int, Any] | None = None
) -> dict[str, Any]:
    """What passes hooks in one forward pass, as float32; with `patch`, one row at one hook is replaced."""
    seen: dict[str, Any] = {}

    def put(tensor: Any, hook: Any) -> Any:
        _, position, row = patch
        changed = tensor.clone()
        changed[:, position] = row.to(tensor)
        return changed

    pairs = [(name, keep(seen, name)) for name in names]
    with model.hooks(*([(patch[0], put)] if patch else []), *pairs):
        model.forward(ids, last_only=True)
    return {name: tensor.float().cpu() for name, tensor in seen.items()}


def _relative(after: Float[Any, "1 pos d_model"], before: Float[Any, "1 pos d_model"]) -> Float32[np.ndarray, " pos"]:
    """Length of the difference over the length of what was there, for each position."""
    moved, size = (after - before)[0].norm(dim=-1), before[0].norm(dim=-1)
    return (moved / size.clamp(min=1e-12)).numpy().astype(np.float32)
