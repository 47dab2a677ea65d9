"""Where a model comes from: the embedded default, a local folder, or the Hugging Face hub.

`resolve` answers within seconds whether a name can be opened here, from its config and the names of its files; `fetch`
then returns a folder in Hugging Face format, converting or downloading what is missing. A local path comes first, so
a folder is never asked from the hub. Limit: passing `resolve` does not promise that TransformerBridge supports the
family; loading finds that out.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from analyses._checkpoints import SHIPPED, folder_of
from analyses._child import OnProgress
from analyses._hub import HUB_ID, fetch_hub, resolve_hub
from analyses._source import EMBEDDED, Source, SourceError, cache_folder, from_folder
from analyses.conversion import FILE, convert, embedded_file

__all__ = ["EMBEDDED", "Source", "SourceError", "cache_folder", "fetch", "resolve"]

# Counted from the converted file: 134,515,008 parameters of 4 bytes.
EMBEDDED_BYTES = 134_515_008 * 4
Answer = TypeVar("Answer")


def resolve(name: str | None = None, *, revision: str | None = None, timeout: float = 5.0) -> Source:
    """What a name stands for, checked without its weights.

    Args:
        name: None or "smollm2-135m-instruct" for the embedded model, "tiny-induction" or "tiny-induction-1-layer" for one
            that ships with its checkpoints, a folder, or a hub id "owner/name".
        revision: branch, tag or commit of a hub model.
        timeout: seconds after which this gives up, whatever hangs.

    Raises:
        SourceError: the name cannot be opened; one sentence says what is needed, what was found and what to do.
    """
    return _within(timeout, name or EMBEDDED, lambda: _resolve(name, revision, timeout))


def fetch(source: Source, *, on_progress: OnProgress | None = None) -> Path:
    """Folder with the model in Hugging Face format: config.json, safetensors, tokenizer.

    Args:
        source: what `resolve` returned.
        on_progress: called with a `Progress` at least every 0.3 s while there is work to do. It may raise
            `analyses._steps.Cancelled` (or anything else): the work stops, no unfinished file stays, and it is raised
            here.

    Raises:
        SourceError: the conversion or the download failed, in one sentence.
    """
    if source.kind == "embedded":
        return convert(on_progress=on_progress)
    if source.kind == "hub":
        return fetch_hub(source, on_progress or (lambda progress: None))
    return Path(source.path or source.name)


def looks_like_path(name: str) -> bool:
    """Whether a name can only mean a folder: it starts like a path, or has separators where a hub id has none."""
    return name.startswith(("~", ".", os.sep)) or (any(s in name for s in "/\\") and not HUB_ID.fullmatch(name))


def _resolve(name: str | None, revision: str | None, timeout: float) -> Source:
    """The catalogue, then the disk (a relative folder may look like a hub id: what lies here wins), then the hub."""
    if name is None or name == EMBEDDED:
        return _embedded(revision)
    if name in SHIPPED:
        return _shipped(name, revision)
    if looks_like_path(name) or os.path.isdir(name):
        return _local(name, revision)
    if not HUB_ID.fullmatch(name):
        raise SourceError(
            f"needs {EMBEDDED}, a folder, or a hub id like openai-community/gpt2; found {name!r}; "
            "write the owner, a slash and the name."
        )
    return resolve_hub(name, revision=revision, timeout=timeout)


def _embedded(revision: str | None) -> Source:
    if revision is not None:
        raise SourceError(f"needs no revision for the embedded model; found {revision!r}; leave it out.")
    embedded_file()
    note = "weights dequantised from 4 bits (Q4_1), the embedding from 8 bits"
    return Source(EMBEDDED, "embedded", None, note, None, "LlamaForCausalLM", "llama", EMBEDDED_BYTES, (FILE,))


def _shipped(name: str, revision: str | None) -> Source:
    if revision is not None:
        raise SourceError(f"needs no revision for {name}; found {revision!r}; name a training step as its checkpoint.")
    return replace(from_folder(folder_of(name), name, "local"), kind="shipped", note=SHIPPED[name])


def _local(name: str, revision: str | None) -> Source:
    if revision is not None:
        raise SourceError(f"needs a hub id for a revision; found the folder {name}; leave the revision out.")
    folder = os.path.expanduser(name)
    if not os.path.isdir(folder):
        found = "a file" if os.path.isfile(folder) else "no such folder"
        raise SourceError(f"needs a folder with a model; found {found} at {name!r}; check the path.")
    return from_folder(Path(folder).resolve(), name, "local")


def _within(seconds: float, name: str, work: Callable[[], Answer]) -> Answer:
    """Run `work` in a thread of its own and leave it behind when it does not answer in time."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - carried to the caller and raised there
            future.set_exception(error)

    threading.Thread(target=run, name=f"resolve {name}", daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError as error:
        hub = os.environ.get("HF_ENDPOINT") or "the Hugging Face hub"
        where = f"the folder {name}" if looks_like_path(name) else f"{name} from {hub}"
        raise SourceError(
            f"needs an answer about {where} within {seconds:g} s; found none in time; "
            "check the network or the disk, or name a local folder."
        ) from error
