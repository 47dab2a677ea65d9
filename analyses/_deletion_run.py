"""Runs with addends left out, all of them in one go: how every deletion analysis gets its numbers.

By replay (analyses/_variants.py) where the model can: a deleted block is not run, a deleted attention or MLP is zeroed in its
rows. Elsewhere, or on request, one hooked forward pass per variant; same numbers, about three times the seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import Float

from analyses._addends import PARTS, POINT, Addends, addend_hooks, check_wrong
from analyses._damage import Damage, Yardstick, no_damage_yet
from analyses._steps import Cost, Profile, Progress, Steps
from analyses._variants import Read, Run, Start, replay_cost, row_bytes, rows_in_group, variant_steps

METHODS = ("auto", "replay", "forward")


def choose_replay(model: Any, method: str) -> bool:
    """Whether to replay; also refuses models whose addends or last stream cannot be reached.

    Raises:
        ValueError: an unknown method, or one that this model cannot follow.
    """
    if method not in METHODS:
        raise ValueError(f"needs one of {', '.join(METHODS)}; found {method!r}; leave it out.")
    model.require("attn_out", "mlp_out", "readout", *(["replay"] if method == "replay" else []))
    return method != "forward" and not model.capabilities["replay"]


def deletion_steps(
    model: Any,
    ids: tuple[int, ...],
    variants: Sequence[Addends],
    *,
    positions: str,
    top_k: int = 0,
    wrong: bool = False,
    method: str = "auto",
    partial: Callable[[Damage], Mapping[str, Any]] | None = None,
) -> Steps[tuple[Any, Yardstick, Damage]]:
    """The captured base run, what the whole model says, and what every variant lost.

    Raises:
        ValueError: from the checks of the parameters, before the first forward pass.
    """
    replay = choose_replay(model, method)
    if wrong:
        check_wrong(variants)
    yield Progress(0.0, 1.0, note="the whole model")
    calls = model.capture_calls(ids)
    whole = Yardstick(model, calls.logits[0], ids, positions, top_k)
    damage = no_damage_yet(len(variants), whole.n_targets, top_k)

    def read(which: Sequence[int], rows: Any) -> None:
        whole.read(damage, which, rows)

    so_far = (lambda: partial(damage)) if partial else None
    if replay:
        starts = [start_of(v, wrong=wrong) for v in variants]
        starts = [s or Start(model.config.n_layers, model.config.n_layers) for s in starts]
        run = without(model, calls, variants, wrong=wrong)
        reading = _reading(model.config.d_vocab, model.config.d_model, whole.n_targets, len(ids))
        yield from variant_steps(model, calls.resid, starts, run, read, reading=reading, partial=so_far)
    else:
        yield from hooked_steps(model, ids, variants, read, wrong=wrong, partial=so_far)
    return calls, whole, damage


def start_of(variant: Addends, *, wrong: bool = False) -> Start | None:
    """Where a variant leaves the base run, None for the base itself.

    Yardstick blocks at its beginning need not be run: their stream goes straight to the next one.
    """
    if not variant:
        return None
    first = min(layer for layer, _ in variant)
    if wrong:
        last = max(layer for layer, _ in variant)
        return Start(last, last)  # zero after the last one, whatever was before
    layer = first
    while all((layer, part) in variant for part in PARTS):
        layer += 1
    return Start(layer, first)


def without(model: Any, calls: Any, variants: Sequence[Addends], *, wrong: bool = False) -> Run:
    """Takes rows through a block, each without the addends of its variant."""

    def run(layer: int, rows: Float[Any, "row pos d_model"], which: Sequence[int]) -> Float[Any, "row pos d_model"]:
        silent = {part: {r for r, v in enumerate(which) if (layer, part) in variants[v]} for part in PARTS}
        skipped = silent["attention"] & silent["mlp"]
        kept = [row for row in range(len(which)) if row not in skipped]
        after = rows.new_zeros(rows.shape) if wrong else rows
        if not kept:
            return after
        pairs = []
        for part in PARTS:
            quiet = [index for index, row in enumerate(kept) if row in silent[part]]
            if quiet:
                pairs.append((model.hook_name(POINT[part], layer), _silence(quiet)))
        batch = rows[kept] if skipped else rows
        if pairs:
            with model.hooks(*pairs):
                batch = model.run_block(layer, batch, calls)
        else:
            batch = model.run_block(layer, batch, calls)
        if not skipped:
            return batch
        after = after.clone()
        after[kept] = batch
        return after

    return run


def hooked_steps(
    model: Any,
    ids: tuple[int, ...],
    variants: Sequence[Addends],
    read: Read,
    *,
    wrong: bool = False,
    partial: Callable[[], Mapping[str, Any]] | None = None,
) -> Steps[None]:
    """One forward pass per variant, with hooks that leave its addends out."""
    name = model.hook_name("resid_post", model.config.n_layers - 1)
    for index, variant in enumerate(variants):
        yield Progress(index, len(variants), partial=partial() if partial and index else None)
        seen: list[Any] = []
        with model.hooks(*addend_hooks(model, variant, wrong=wrong), (name, lambda t, hook, seen=seen: seen.append(t))):
            model.forward(ids, last_only=True)
        read([index], seen[0])
    yield Progress(len(variants), len(variants), partial=partial() if partial else None)


def deletion_cost(
    profile: Profile, n_tokens: int, variants: Sequence[Addends], params: Mapping[str, Any], result_bytes: int
) -> Cost:
    """One base run, then the blocks that differ; or one forward pass per variant when the method is "forward"."""
    n_tokens = max(n_tokens, 1)
    n_read = n_tokens if params.get("positions", "all") == "all" else 1
    starts = [start_of(v, wrong=params.get("wrong", False)) for v in variants]
    starts = [s or Start(profile.n_layers, profile.n_layers) for s in starts]
    shape = (profile.n_heads, profile.d_model, profile.bytes_per_value)
    blocks, calls, rows = replay_cost(starts, profile.n_layers, n_tokens, *shape)
    if params.get("method", "auto") == "forward":
        blocks = calls = len(variants) * profile.n_layers
        rows = 1
    one = profile.per_token * n_tokens + profile.per_pair * n_tokens**2
    seconds = profile.forward_seconds(n_tokens) + (blocks * one + calls * profile.base) / profile.n_layers
    held = min(rows_in_group(n_tokens, profile.d_model, profile.bytes_per_value), len(variants))
    streams = (profile.n_layers + 2 * held) * n_tokens * profile.d_model * profile.bytes_per_value
    return Cost(
        seconds=seconds + profile.per_readout * (n_tokens + len(variants) * n_read),
        peak_bytes=profile.forward_bytes(n_tokens, readouts=n_tokens)
        + streams
        + rows * row_bytes(n_tokens, *shape)
        + (64 << 20),  # chunks of logits and of shares
        result_bytes=result_bytes,
    )


def _silence(rows: list[int]) -> Callable[..., Any]:
    def leave_out(tensor: Any, hook: Any) -> Any:
        changed = tensor.clone()
        changed[rows] = 0
        return changed

    return leave_out


def _reading(d_vocab: int, d_model: int, n_targets: int, n_tokens: int) -> float:
    """What reading a variant takes, in blocks of one row: parameters of the unembedding over those of a block (12 d_model^2)."""
    return max(n_targets, 1) / n_tokens * d_vocab / (12 * d_model)
