"""What a model's weight files hold, and whether it fits in memory: known from their headers, before a byte of weights is read.

Limit: headers do not say whether the numbers are intact; the self-checks at load find out when they are not finite. The
estimate is of the weights alone, so what it refuses cannot fit, while a model that just fits may still run out of memory.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from analyses._source import INDEX, SINGLE, Source, SourceError

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})  # what is converted to the chosen number format; all else stays
# Memory of a loaded model per byte of weights, measured on random models of 100 to 200 MB: Llama 1.1; GPT-NeoX and Mixtral,
# of whose joint matrices the bridge keeps split copies, 1.5. The smaller one: only what surely does not fit is refused.
MEMORY_PER_WEIGHT = 1.1


@dataclass(frozen=True)
class Stored:
    """What lies in a model's safetensors."""

    n_values: int  # numbers in a float format, which loading converts to the chosen one
    n_other_bytes: int  # packed or integer tensors, which stay as they are

    def bytes_as(self, dtype: str) -> int:
        """Bytes of memory the model takes when its floats have this number format."""
        return int(MEMORY_PER_WEIGHT * (self.n_values * ITEM_BYTES[dtype] + self.n_other_bytes))


def expected(source: Source) -> Stored:
    """What the files of a source will hold, judged before they are fetched by their sizes and the dtype in the config.

    Without a dtype, floats of four bytes: the fewest values, so nothing is refused that may fit.
    """
    return Stored(source.n_bytes // ITEM_BYTES.get(source.dtype, 4), 0)


def read_headers(folder: Path, name: str) -> Stored:
    """What the safetensors of a folder hold; only their headers are read.

    Raises:
        SourceError: a file that is cut short, is not safetensors, or is named by the index and lies elsewhere.
    """
    from safetensors import SafetensorError, safe_open

    n_values = n_other = 0
    for file in _files(folder, name):
        path = folder / file
        try:
            with safe_open(path, framework="numpy") as opened:
                for key in opened.keys():
                    piece = opened.get_slice(key)
                    count, kind = math.prod(piece.get_shape()), piece.get_dtype()
                    n_values += count * (kind in FLOATS)
                    n_other += 0 if kind in FLOATS else count  # one byte each: packed formats are 8 bits wide
        except (SafetensorError, OSError) as error:
            raise SourceError(
                f"needs complete safetensors; found {file} in {name} damaged or cut short "
                f"({path.stat().st_size if path.is_file() else 0:,} bytes); copy or download it again."
            ) from error
    return Stored(n_values, n_other)


def _files(folder: Path, name: str) -> tuple[str, ...]:
    """The safetensors that transformers will read in this folder."""
    if (folder / SINGLE).is_file():
        return (SINGLE,)
    index = json.loads((folder / INDEX).read_bytes())
    files = sorted({str(file) for file in index.get("weight_map", {}).values()})
    if strange := [file for file in files if not file.endswith(".safetensors") or Path(file).name != file]:
        raise SourceError(
            f"needs an index that lists safetensors of its own folder; found {strange[0]} in {INDEX} of {name}; "
            "name another model."
        )
    return tuple(files)


def check_memory(name: str, stored: Stored, dtype: str, device: str) -> None:
    """Refuse weights that do not fit into what is free on a device, once their floats are in the chosen number format.

    Raises:
        SourceError: both figures, and a way that fits.
    """
    needed, free = stored.bytes_as(dtype), free_bytes(device)
    if needed <= free:
        return
    smaller = stored.bytes_as("bfloat16")
    if smaller <= free:
        way = f'load it with dtype="bfloat16", which takes {_gb(smaller)}'
    else:
        way = f'choose a model at most {free / smaller:.0%} its size with dtype="bfloat16", or free memory'
    raise SourceError(f"needs about {_gb(needed)} on {device} for {name} in {dtype}; found {_gb(free)} free; {way}.")


def free_bytes(device: str, cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory a new model may take on a device: of a GPU its own; else the machine's, or what a container's limit leaves."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.mem_get_info(device)[0]
    import psutil

    free = psutil.virtual_memory().available
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        counted = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no cgroup of version 2, or the word "max": no limit
        return free
    return min(free, limit - used + int(counted.get("inactive_file", 0)))  # file pages are given back when needed


def _gb(n_bytes: int) -> str:
    """In GB with one digit, in MB below a tenth of one."""
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.1f} MB"
