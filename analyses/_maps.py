"""Affine maps from each depth of the stream to the last one: solved from sums, kept in one file, read when needed.

A map is fitted from the sums of x x', x y' and x over all rows, never from the rows themselves, so memory does not grow with
the text. The penalty pulls it towards the identity, "nothing changes from here on", instead of towards zero: a map fitted
on few tokens then leaves alone what they say nothing about (docs/linear_lens.md).
"""

import contextlib
import os
import secrets
import shutil
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxtyping import Float

from analyses._source import CACHE_VARIABLE, cache_folder

# Strength of the penalty: it counts as much as this many rows of average size. The best compromise between fits on 204, 800
# and 11,220 rows, where 0.2 to 1,122 were tried (docs/linear_lens.md).
PENALTY_ROWS = 100
OWN_FITS, OWN_BYTES = 8, 1 << 30  # kept per model on disk, of people's own texts
MODEL_FITS = 2  # kept open per model
HELD_BYTES = 512 << 20  # of maps that stay on a device other than the CPU, where they are no memory-mapped file
LEFTOVER_SECONDS = 3600  # an unfinished file this old has no writer any more


class Moments:
    """Sums over rows x (one depth) and y (the last depth) that decide the least-squares map.

    Both are counted from the mean of the first rows, so that the products do not drown in a large common part.
    """

    def __init__(self, x: Float[Any, "rows d_model"], y: Float[Any, "rows d_model"]) -> None:
        self._from_x, self._from_y = x.mean(0), y.mean(0)
        self.gram, self.cross = x.new_zeros(x.shape[1], x.shape[1]), x.new_zeros(x.shape[1], y.shape[1])
        self._sum_x, self._sum_y = x.new_zeros(x.shape[1]), y.new_zeros(y.shape[1])
        self.n_rows = 0
        self.add(x, y)

    def add(self, x: Float[Any, "rows d_model"], y: Float[Any, "rows d_model"]) -> None:
        """Count more rows, in float32."""
        x, y = x - self._from_x, y - self._from_y
        self.gram.addmm_(x.T, x)
        self.cross.addmm_(x.T, y)
        self._sum_x += x.sum(0)
        self._sum_y += y.sum(0)
        self.n_rows += len(x)

    def solve(self) -> tuple[Float[Any, "d_model d_model"], Float[Any, " d_model"]]:
        """Weight and bias (float32, on the CPU) of the map y = x @ weight + bias.

        The minimum of sum |x W + b - y|^2 + penalty |W - I|^2, solved in float64.

        Raises:
            ValueError: the stream is not finite, as half precision can leave it.
        """
        import torch

        # mps has no float64.
        device = "cpu" if self.gram.device.type == "mps" else self.gram.device
        gram, cross, mean_x, mean_y = (
            t.to(device).double() for t in (self.gram, self.cross, self._sum_x / self.n_rows, self._sum_y / self.n_rows)
        )
        if not bool(gram.isfinite().all() and cross.isfinite().all()):
            raise ValueError("needs a finite stream at every depth; found infinity or NaN; load the model in float32.")
        gram -= self.n_rows * torch.outer(mean_x, mean_x)
        cross -= self.n_rows * torch.outer(mean_x, mean_y)
        penalty = max(relative_ridge(self.n_rows) * float(gram.diagonal().mean()), 1e-12)
        gram.diagonal().add_(penalty)
        cross.diagonal().add_(penalty)  # (G + pI) W = C + pI is the penalty on W - I
        weight = torch.cholesky_solve(cross, torch.linalg.cholesky(gram))
        bias = (mean_y + self._from_y.to(device).double()) - (mean_x + self._from_x.to(device).double()) @ weight
        return weight.float().cpu(), bias.float().cpu()


def relative_ridge(n_rows: int) -> float:
    """The penalty as a share of the mean diagonal of the centred sum of x x' over so many rows."""
    return PENALTY_ROWS / n_rows


def apply_map(
    rows: Float[Any, "*rows d_model"], weight: Float[Any, "d_model d_model"], bias: Float[Any, " d_model"]
) -> Float[Any, "*rows d_model"]:
    """Rows in the last depth's basis, in the type they came in."""
    return (rows.float() @ weight + bias).to(rows.dtype)


class LinearMaps:
    """The fitted maps of one model, read from their file when a depth is first asked for."""

    def __init__(self, path: Path, n_layers: int, device: str) -> None:
        from safetensors import safe_open

        self._file = safe_open(path, framework="pt")
        self._n_layers, self._device = n_layers, device
        self._held: dict[int, tuple[Any, Any]] = {}

    def apply(self, depth: int, rows: Float[Any, "*rows d_model"]) -> Float[Any, "*rows d_model"]:
        """Rows of the stream at a depth, in the last depth's basis, before the final norm; unchanged at the last depth.

        Raises:
            ValueError: no such depth.
        """
        if not 0 <= depth <= self._n_layers:
            raise ValueError(f"needs a depth from 0 to {self._n_layers}; found {depth}; depths count from zero.")
        return rows if depth == self._n_layers else apply_map(rows, *self._map(depth))

    def _map(self, depth: int) -> tuple[Any, Any]:
        if depth in self._held:
            return self._held[depth]
        weight, bias = (self._file.get_tensor(f"{part}.{depth}").to(self._device) for part in ("weight", "bias"))
        if self._device == "cpu" or (len(self._held) + 1) * weight.nbytes <= HELD_BYTES:
            self._held[depth] = (weight, bias)
        return weight, bias


_OPEN: "weakref.WeakKeyDictionary[Any, OrderedDict[Any, LinearMaps]]" = weakref.WeakKeyDictionary()


def open_maps(model: Any, path: Path) -> LinearMaps | None:
    """The maps in a file, the newest few of a model kept open; None when there is no whole file."""
    from safetensors import SafetensorError

    try:
        stat = path.stat()
        key = (path, stat.st_mtime_ns, stat.st_size, stat.st_ino)
        kept = _OPEN.setdefault(model, OrderedDict())
        if key not in kept:
            kept[key] = LinearMaps(path, model.config.n_layers, model.config.device)
    except (OSError, SafetensorError):
        return None
    kept.move_to_end(key)
    while len(kept) > MODEL_FITS:
        kept.popitem(last=False)
    return kept[key]


def folder_of(fingerprint: str) -> Path:
    """Where the fits of a model lie."""
    return cache_folder() / "lenses" / fingerprint


def read_notes(path: Path) -> Mapping[str, str] | None:
    """The notes stored with the maps; None when there is no file, or one that is cut off (safetensors checks its length)."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata()
    except (OSError, SafetensorError):
        return None


def check_room(path: Path, n_bytes: int) -> None:
    """Refuse before the work when its result cannot be written.

    Raises:
        ValueError: the folder cannot be made or written, or is too full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise ValueError(_no_room(path, n_bytes, error.strerror or str(error))) from error
    if not os.access(path.parent, os.W_OK):
        raise ValueError(_no_room(path, n_bytes, "a folder that cannot be written"))
    if free < n_bytes:
        raise ValueError(_no_room(path, n_bytes, f"{free / 1e6:,.0f} MB free"))


def write_maps(path: Path, maps: Mapping[int, tuple[Any, Any]], notes: Mapping[str, str]) -> None:
    """Write the maps (depth -> weight, bias) and their notes: beside, then renamed, so that no reader sees half a file.

    Raises:
        ValueError: it cannot be written; nothing is left.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {f"weight.{depth}": weight.contiguous() for depth, (weight, _) in maps.items()}
    tensors |= {f"bias.{depth}": bias.contiguous() for depth, (_, bias) in maps.items()}
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        save_file(tensors, beside, metadata=dict(notes))
        descriptor = os.open(beside, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # a rename must not survive a power cut that the contents do not
        finally:
            os.close(descriptor)
        os.replace(beside, path)
    except (OSError, SafetensorError) as error:
        size = sum(t.nbytes for t in tensors.values())
        raise ValueError(_no_room(path, size, str(error).rstrip("."))) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def tidy(folder: Path, pattern: str) -> None:
    """Remove the oldest fits of people's own texts, and what a killed writer left; the newest fit always stays."""
    with contextlib.suppress(OSError):  # another process tidies too
        for leftover in folder.glob(".*.tmp"):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS:
                leftover.unlink(missing_ok=True)
        newest_first = sorted(((f.stat().st_mtime_ns, f.stat().st_size, f) for f in folder.glob(pattern)), reverse=True)
        total = 0
        for i, (_, size, file) in enumerate(newest_first):
            total += size
            if i > 0 and (i >= OWN_FITS or total > OWN_BYTES):
                file.unlink(missing_ok=True)


def _no_room(path: Path, n_bytes: int, found: str) -> str:
    return (
        f"needs {n_bytes / 1e6:,.0f} MB in {path.parent} for the fitted lens; found {found}; free some, or name another folder "
        f"with {CACHE_VARIABLE}."
    )
