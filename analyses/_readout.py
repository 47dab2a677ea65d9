"""Reading many rows of a stream out, a few at a time: the logits of all of them together would not fit.

One row of SmolLM2's logits is 0.2 MB; all depths and positions of a 512-token prompt would be 3.1 GB.
"""

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float, Int

CHUNK_BYTES = 32 << 20  # of float32 logits that are held at once; 64 to 128 rows are fastest on a CPU


def row_chunks(model: Any, n_rows: int, *, held: int = 2) -> Iterator[slice]:
    """Slices that cover the rows; asks `model.check()` before each, so that a reader can be stopped.

    Args:
        model: a HookedModel.
        n_rows: rows to read.
        held: arrays of the size of the logits that the reader holds at once, the logits among them.
    """
    size = max(1, CHUNK_BYTES // (4 * held * model.config.d_vocab))
    for start in range(0, n_rows, size):
        model.check()
        yield slice(start, min(start + size, n_rows))


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
