"""Work in a child process that reports its progress: a cancel kills it at once and all its memory comes back.

The child writes one JSON object per line: {"done", "total", "note"}, and at the end {"result"} or {"error"} (a
sentence). It ends by itself when its standard input closes, so it never outlives the parent.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from analyses._source import SourceError
from analyses._steps import Progress

OnProgress = Callable[[Progress], object]
Report = Callable[..., None]

POLL_SECONDS = 0.2  # how soon a cancel is noticed while the child is silent
GRACE_SECONDS = 2.0  # how long a child may tidy up before it is killed


class ChildDied(Exception):
    """The child ended without a result; the text says how, in words."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Command that runs a module of this package in a new Python, whatever the current folder holds."""
    return [sys.executable, "-P", "-m", module, *arguments]


def run_child(command: Sequence[str], on_progress: OnProgress, *, env: Mapping[str, str] | None = None) -> str:
    """Run a reporting command to its end and return its result.

    `on_progress` is called at least every 0.2 s with the newest report; what it raises ends the child and is raised
    here.

    Raises:
        SourceError: the child reported an error.
        ChildDied: the child ended without a result.
    """
    root = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    environment = {**os.environ, "PYTHONPATH": paths, **(env or {})}
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,  # Ctrl+C goes to the parent, which decides
        ) as child,
    ):
        try:
            result = _follow(child, on_progress)
            if result is None:
                raise ChildDied(_how_it_ended(child.wait(), errors))
            return result
        finally:
            _stop(child)


def _follow(child: subprocess.Popen[bytes], on_progress: OnProgress) -> str | None:
    """Pass reports on until the child closes its output; its result, or None."""
    assert child.stdout is not None
    latest, result, rest = Progress(0.0, 1.0, "starting"), None, b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(POLL_SECONDS):
                chunk = os.read(child.stdout.fileno(), 65536)
                if not chunk:
                    return result
                *lines, rest = (rest + chunk).split(b"\n")
                for report in map(json.loads, lines):
                    if "error" in report:
                        raise SourceError(report["error"])
                    if "result" in report:
                        result = report["result"]
                    else:
                        latest = Progress(float(report["done"]), float(report["total"]), report["note"])
            on_progress(latest)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the child: closing its input asks it to tidy up and leave, killing it makes sure."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _how_it_ended(code: int, errors: IO[bytes]) -> str:
    """In words: the last line of the child's error output, or the signal that ended it."""
    if code < 0:
        return f"the process was ended by signal {-code} (out of memory, or killed)"
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else f"the process ended with code {code}"


def start_reporting(before_leaving: Callable[[], Any] | None = None) -> Report:
    """In the child: keep standard output for reports, and leave when the parent goes away or asks.

    Returns:
        `report(done=, total=, note=)`, `report(result=)` or `report(error=)`; may be called from any thread.
    """
    channel = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print must not get between the reports

    def watch() -> None:
        while os.read(0, 1024):  # the raw descriptor: a buffered read would hold a lock at interpreter exit
            pass
        if before_leaving is not None:
            before_leaving()
        os._exit(3)

    def report(**fields: Any) -> None:
        os.write(channel, json.dumps(fields).encode() + b"\n")

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    return report
