"""The streams of one forward pass at the positions that are asked for, and their readout group by group."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from jaxtyping import Float

from analyses import _lens, _readout
from analyses._lens import Cells, Final, Known, Rows, Wanted, read
from analyses._readout import Unembedding, even_slices

SOON = 32  # positions that are read first: all depths of SmolLM2 at so many are 1,000 rows, a second and a half on one thread

Found = TypeVar("Found")


def capture(
    model: Any, ids: tuple[int, ...], places: Sequence[int], mid: bool, changes: Sequence[Any] = ()
) -> tuple[Float[Any, "pos stream d_model"], Float[Any, "pos d_vocab"]]:
    """The stream before every block (then, with `mid`, after every attention), and the model's own float32 logits.

    Only the rows at `places` are kept, and only these are unembedded: the logits of a long prompt are the largest thing there
    is (400 MB at 2,048 tokens of SmolLM2).
    """
    import torch

    index = torch.tensor(places, device=model.config.device)
    n_layers, kept = model.config.n_layers, []

    def keep(stream: int) -> Callable[..., None]:
        def note(tensor: Any, hook: Any) -> None:
            if not kept:
                kept.append(tensor.new_empty(len(places), n_layers * (1 + mid), tensor.shape[-1]))
            kept[0][:, stream] = tensor[0, index]

        return note

    pairs: list[Any] = [(model.hook_name("resid_pre", layer), keep(layer)) for layer in range(n_layers)]
    if mid:
        pairs += [(model.hook_name("resid_mid", layer), keep(n_layers + layer)) for layer in range(n_layers)]
    narrow = len(places) < len(ids) and model.has_hook("unembed.hook_in")
    if narrow:
        pairs.append(("unembed.hook_in", lambda normed, hook: normed[:, index]))
    with model.hooks(*changes, *pairs):
        logits = model.forward(ids)[0]
    if len(logits) != len(places):
        logits = logits[index]
    return kept[0], logits.float()


def read_all(
    model: Any,
    streams: Float[Any, "pos stream d_model"],
    logits: Float[Any, "pos d_vocab"],
    wanted: Wanted,
    half: Float[Any, "d_vocab d_model"] | None,
    cells: Cells,
) -> Iterator[tuple[int, int]]:
    """Numbers of every stream and of the model's own output. Positions outermost: all depths are compared with the last.

    The last positions come first: what a prompt ends with is what people look at while the rest is read.

    Args:
        model: a HookedModel.
        streams: before the final norm; used up.
        logits: the model's own.
        wanted: what is asked, by position.
        half: the unembedding in bfloat16 for approximate logits, or None.
        cells: where the numbers go, the streams' first and the output's last.

    Yields:
        Multiplications done since the last step, and the first position from which on everything is known.
    """
    n_positions, n_streams = streams.shape[:2]
    parts = _readout.unembedding_of(model)
    if parts is not None:
        for stream in range(n_streams):
            model.check()
            streams[:, stream] = parts.norm(streams[:, stream])
    held_per_row = 4 * (streams.shape[2] if parts is not None else _lens.HELD * logits.shape[1])
    n_rows = max(1, min(_lens.ROWS, _readout.CHUNK_BYTES // held_per_row))
    known_from = n_positions
    for places in from_the_end(n_positions, n_rows // n_streams):
        asked = Wanted(wanted.top_k, wanted.ids[places], wanted.n_ranked)
        found, log_total, entropy = yield from _at(known_from, read(model, Known(logits[places]), asked, None))
        cells.fill(slice(n_streams, n_streams + 1), places, found)
        final = Final(logits[places], log_total, entropy)
        for group in even_slices(n_streams, n_rows):
            rows = streams[places, group].flatten(0, 1)
            source = _source(model, parts, rows, half)
            found, _, _ = yield from _at(known_from, read(model, source, asked, final))
            cells.fill(group, places, found)
        known_from = places.start
        yield 0, known_from


def _at(known_from: int, steps: Generator[int, None, Found]) -> Generator[tuple[int, int], None, Found]:
    """The same steps, saying what was known before them."""
    while True:
        try:
            work = next(steps)
        except StopIteration as stop:
            return stop.value
        yield work, known_from


def from_the_end(n: int, at_most: int) -> Iterator[slice]:
    """Slices that cover `n` to 0, the last positions first: a few soon, then as many as are fast."""
    first = min(n, max(1, at_most), SOON)
    yield slice(n - first, n)
    yield from reversed(list(even_slices(n - first, at_most)))


def _source(model: Any, parts: Unembedding | None, rows: Float[Any, "rows d_model"], half: Any) -> Known | Rows:
    return Known(model.readout(rows).float()) if parts is None else Rows(parts, rows, half)
