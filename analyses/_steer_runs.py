"""Steered runs of one text, many at once: rows of a batch that leave the plain run at the first layer they change.

By replay (analyses/_variants.py) where the model can, else one hooked forward pass per variant; the same numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import Float

from analyses._steer import Steer, change_stream, steer_hooks
from analyses._steps import Cost, Profile, Progress, Steps
from analyses._variants import Read, Run, Start, replay_cost, row_bytes, rows_in_group, variant_steps


def steered_steps(
    model: Any,
    ids: tuple[int, ...],
    variants: Sequence[Steer],
    calls: Any,
    read: Read,
    *,
    reading: float = 0.0,
    partial: Callable[[], Mapping[str, Any]] | None = None,
    note: str = "",
) -> Steps[None]:
    """Hand the streams after the last block of every variant to `read`, a group at a time.

    Call `reference_norms(model)` before: this opens hooks around blocks and must not need another forward pass.

    Args:
        model: a HookedModel.
        ids: the text; all of it is a prompt, so "new" is its last position.
        variants: what is added to which rows; one that changes nothing gets the plain run's stream.
        calls: the plain run, from `model.capture_calls(ids)`.
        read: told which variants and their streams.
        reading: what reading one variant takes, in blocks of one row.
        partial: everything finished so far, asked for after each group.
        note: what is being done, in words.
    """
    n_layers = model.config.n_layers
    if not variants:
        return
    if model.capabilities["replay"]:
        yield from hooked_steps(model, ids, variants, read, partial=partial, note=note)
        return
    starts = [
        Start(n_layers if v.is_nothing else v.layers[0], n_layers if v.is_nothing else v.layers[0]) for v in variants
    ]
    run = adding(model, calls, variants, len(ids))
    yield from variant_steps(model, calls.resid, starts, run, read, reading=reading, partial=partial, note=note)


def adding(model: Any, calls: Any, variants: Sequence[Steer], n_prompt: int) -> Run:
    """Takes rows through a block, after adding to what it reads."""
    import torch

    directions = {id(v): torch.tensor(v.direction, device=model.config.device) for v in variants}

    def run(layer: int, rows: Float[Any, "row pos d_model"], which: Sequence[int]) -> Float[Any, "row pos d_model"]:
        own = [row for row, v in enumerate(which) if layer in variants[v].layers and not variants[v].is_nothing]
        if own:
            rows = rows.clone()
        for row in own:
            steer = variants[which[row]]
            at = steer.span(0, rows.shape[1], n_prompt)
            rows[row, at] = change_stream(rows[row, at], directions[id(steer)], steer.amount(model, layer), steer.mode)
        return model.run_block(layer, rows, calls)

    return run


def hooked_steps(
    model: Any,
    ids: tuple[int, ...],
    variants: Sequence[Steer],
    read: Read,
    *,
    partial: Callable[[], Mapping[str, Any]] | None = None,
    note: str = "",
) -> Steps[None]:
    """One forward pass per variant."""
    name = model.hook_name("resid_post", model.config.n_layers - 1)
    for index, variant in enumerate(variants):
        yield Progress(index, len(variants), note=note, partial=partial() if partial and index else None)
        seen: list[Any] = []
        pairs = steer_hooks(model, variant, start=0, n_prompt=len(ids))
        with model.hooks(*pairs, (name, lambda tensor, hook, seen=seen: seen.append(tensor))):
            model.forward(ids, last_only=True)
        read([index], seen[0])
    yield Progress(len(variants), len(variants), note=note, partial=partial() if partial else None)


def steered_cost(
    profile: Profile, n_tokens: int, layers: Sequence[int], *, n_read: int, result_bytes: int = 0, method: str = "auto"
) -> Cost:
    """One plain run, then the blocks from each variant's first layer on, and the readout of `n_read` positions of each."""
    n_tokens = max(n_tokens, 1)
    starts = [Start(layer, layer) for layer in layers]
    shape = (profile.n_heads, profile.d_model, profile.bytes_per_value)
    blocks, calls, rows = replay_cost(starts, profile.n_layers, n_tokens, *shape)
    one = profile.per_token * n_tokens + profile.per_pair * n_tokens**2
    held = min(rows_in_group(n_tokens, profile.d_model, profile.bytes_per_value), max(1, len(layers)))
    streams = (profile.n_layers + 2 * held) * n_tokens * profile.d_model * profile.bytes_per_value
    return Cost(
        seconds=profile.forward_seconds(n_tokens)
        + (blocks * one + calls * profile.base) / profile.n_layers
        + profile.per_readout * (n_tokens + len(layers) * n_read),
        peak_bytes=profile.forward_bytes(n_tokens, readouts=n_tokens)
        + streams
        + rows * row_bytes(n_tokens, *shape)
        + (64 << 20),
        result_bytes=result_bytes,
    )


def reading_share(model: Any, n_read: int, n_tokens: int) -> float:
    """What reading a variant takes, in blocks of one row: parameters of the unembedding over those of a block (12 d_model^2)."""
    return n_read / max(1, n_tokens) * model.config.d_vocab / (12 * model.config.d_model)
