"""What happens between a source and its weights, and one plain sentence for whatever goes wrong there.

The cheap questions come first: does the bridge know the family, does it fit in memory, are the files whole, can the
config and the tokenizer be read. Only then are the weights loaded.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analyses import _bridge
from analyses._child import OnProgress
from analyses._source import Source, SourceError
from analyses._steps import Cancelled
from analyses._weights import check_memory, expected, read_headers
from analyses.sources import fetch

DETAIL = 160  # characters of a library's own words that a sentence quotes


def prepare(source: Source, *, dtype: str, device: str, on_progress: OnProgress | None) -> tuple[Path, Any]:
    """The folder of a source and its tokenizer, after every check that needs no weights; fetches what is not here yet.

    Raises:
        SourceError: the family, the memory, the files or the tokenizer will not do.
    """
    from transformers import AutoConfig, AutoTokenizer

    _bridge.check_family(source.architecture, source.model_type)
    check_memory(source.name, expected(source), dtype, device)  # before anything is downloaded
    folder = fetch(source, on_progress=on_progress)
    with in_words(source.name, "the weights"):
        check_memory(source.name, read_headers(folder, source.name), dtype, device)
    here = {"trust_remote_code": False, "local_files_only": True}
    with in_words(source.name, "config.json"):
        AutoConfig.from_pretrained(str(folder), **here)
    with in_words(source.name, "the tokenizer"):
        return folder, AutoTokenizer.from_pretrained(str(folder), **here)


@contextmanager
def in_words(name: str, part: str) -> Iterator[None]:
    """Within this context every failure is raised as a SourceError about a part of a model, for example "the tokenizer".

    A cancel, and what is already a sentence of ours, pass unchanged.
    """
    try:
        yield
    except (SourceError, Cancelled):
        raise
    except Exception as error:  # tokenizers raises bare Exception, and a worker must not die of a bad file
        raise SourceError(_sentence(error, name, part)) from error


def _sentence(error: Exception, name: str, part: str) -> str:
    found = _first_line(error)
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return (
            f"needs more memory than is free to open {name}; found none left while reading {part}; "
            'load it with dtype="bfloat16", or choose a smaller model.'
        )
    if isinstance(error, ImportError):
        return (
            f"needs a library that is not installed to read {part} of {name}; found: {found}; "
            "install it, or name another model."
        )
    if "ignore_mismatched_sizes" in str(error) or "size mismatch" in str(error):
        return (
            f"needs weights of the shapes that config.json describes; found others in {name}; "
            "use the config.json that came with the weights."
        )
    return (
        f"needs {part} in a form that transformers can read; found this in {name}: {found}; "
        "fetch its files again, or name another model."
    )


def _first_line(error: Exception) -> str:
    """A library's own words: their first line, with the next one where it ends in a colon; else what kind of error it was."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    words = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    if not words or isinstance(error, KeyError):
        words = f"{type(error).__name__} {words}".strip()
    return words[: DETAIL - 3] + "..." if len(words) > DETAIL else words.rstrip(".")
