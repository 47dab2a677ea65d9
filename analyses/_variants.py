"""Many variants of one run at once: rows of a batch that leave the base run at some layer, replayed block by block.

Up to the layer where a variant is first changed its stream is the base run's, so no block before it runs again. The rest run
together: after a layer's variants have joined, every later block sees batches of them. Against one forward pass per variant this
halves the arithmetic (L layers: 2L / (L + 1) times less), and wide products of matrices are faster than narrow ones.

A group is as many variants as their streams may take bytes; groups are run one after the other, so long texts take more groups,
not more memory. Within a group a block runs on batches of rows, bounded in tokens and in the bytes of its activations. Needs the
capability `replay`. Every layer-deletion analysis uses this, and whatever else changes one row at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from analyses._readout import even_slices
from analyses._steps import Progress, Steps

GROUP_BYTES = 128 << 20  # of activations of one block, all rows of a batch together
GROUP_TOKENS = 512  # of a batch; on a CPU more are slower again, for they leave its cache (docs/log.md)
HELD_BYTES = 64 << 20  # of streams of a group
HELD_ROWS = 256  # of a group: a reader may hold a row of logits for each

# (layer, streams before that block, the variants that are these rows) -> streams after that block.
Run = Callable[[int, Float[Any, "row pos d_model"], Sequence[int]], Float[Any, "row pos d_model"]]
# (variants, their streams after the last block): what is to be kept of them, before the next group takes their place.
Read = Callable[[Sequence[int], Float[Any, "row pos d_model"]], None]


@dataclass(frozen=True)
class Start:
    """Where a variant leaves the base run: its stream before block `layer` is the base's at `depth`.

    A changed head of layer 4 starts at (4, 4). Without block 4 the stream before block 5 is the base's before block 4: (5, 4).
    """

    layer: int
    depth: int


def row_bytes(pos: int, n_heads: int, d_model: int, bytes_per_value: int = 4) -> int:
    """Bytes that one row takes while a block runs: scores, mask and softmax; a few streams and the MLP's inside."""
    return bytes_per_value * (3 * n_heads * pos**2 + 20 * pos * d_model)


def rows_at_once(pos: int, n_heads: int, d_model: int, bytes_per_value: int = 4) -> int:
    """Rows of a batch that goes through a block; one at least."""
    fitting = GROUP_BYTES // row_bytes(pos, n_heads, d_model, bytes_per_value)
    return max(1, min(fitting, GROUP_TOKENS // pos))


def rows_in_group(pos: int, d_model: int, bytes_per_value: int = 4) -> int:
    """Variants of a group, whose streams are held together; one at least."""
    return max(1, min(HELD_BYTES // (bytes_per_value * pos * d_model), HELD_ROWS))


def in_groups(starts: Sequence[Start], size: int) -> list[list[int]]:
    """Indices of the variants, those that start at neighbouring layers together, at most `size` in a group."""
    order = sorted(range(len(starts)), key=lambda v: starts[v].layer)
    return [order[i : i + size] for i in range(0, len(order), size)]


def variant_steps(
    model: Any,
    resid: Sequence[Float[Any, "1 pos d_model"]],
    starts: Sequence[Start],
    run: Run,
    read: Read,
    *,
    reading: float = 0.0,
    partial: Callable[[], Mapping[str, Any]] | None = None,
    note: str = "",
) -> Steps[None]:
    """Run every variant from where it starts to the last layer, group by group.

    Args:
        model: a HookedModel.
        resid: streams of the base run by depth, 0 to n_layers (`Calls.resid`, or those of another base).
        starts: where each variant leaves the base; (n_layers, n_layers) is the base itself.
        run: takes rows through one block, for instance `model.run_block` inside `model.hooks(...)`. `variants` are sorted by
            their start, which is the order of the rows; called once per batch of a group.
        read: keeps what is wanted of a group's streams after the last layer.
        reading: what reading one variant takes, in blocks of one row: for an honest progress.
        partial: everything finished so far, asked for after each group.
        note: what is being done, in words.

    Yields:
        Progress in blocks of one row, before each block of a batch and after each group.
    """
    import torch

    config = model.config
    pos, width = resid[0].shape[1], resid[0].element_size()
    batch = rows_at_once(pos, config.n_heads, config.d_model, width)
    total = sum(config.n_layers - start.layer + reading for start in starts)
    done = 0.0
    for group in in_groups(starts, rows_in_group(pos, config.d_model, width)):
        rows = resid[0][:0]
        for layer in range(starts[group[0]].layer, config.n_layers + 1):
            joining = [resid[starts[v].depth] for v in group if starts[v].layer == layer]
            rows = torch.cat([rows, *joining]) if joining else rows
            if layer == config.n_layers:
                break
            after = []
            for at in even_slices(len(rows), batch):
                yield Progress(done, total, note=note)
                after.append(run(layer, rows[at], group[at]))
                done += len(after[-1])
            rows = after[0] if len(after) == 1 else torch.cat(after)
        yield Progress(done, total, note=note)
        read(group, rows)
        done += reading * len(group)
        yield Progress(min(done, total), total, note=note, partial=partial() if partial else None)


def replay_cost(
    starts: Sequence[Start], n_layers: int, pos: int, n_heads: int, d_model: int, bytes_per_value: int = 4
) -> tuple[int, int, int]:
    """What `variant_steps` will take: blocks of one row, blocks of a batch, and rows of the largest batch."""
    batch = rows_at_once(pos, n_heads, d_model, bytes_per_value)
    calls = 0
    for group in in_groups(starts, rows_in_group(pos, d_model, bytes_per_value)):
        first = [starts[v].layer for v in group]
        calls += sum(-(-sum(f <= layer for f in first) // batch) for layer in range(first[0], n_layers))
    return sum(n_layers - start.layer for start in starts), calls, min(batch, len(starts))
