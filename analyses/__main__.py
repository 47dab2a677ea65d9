"""`python -m analyses [name]`: make a model ready on this machine (convert or download it once) and say where it lies."""

import sys

from analyses._steps import Progress
from analyses.sources import SourceError, fetch, resolve


def show(progress: Progress) -> None:
    """One line that is written over."""
    line = f"{progress.note} ({progress.done / max(progress.total, 1):.0%})"
    sys.stderr.write(f"\r{line:<78}")
    sys.stderr.flush()


def main(name: str | None = None) -> int:
    """Fetch a model; the embedded one without a name."""
    in_terminal = sys.stderr.isatty()
    try:
        folder = fetch(resolve(name), on_progress=show if in_terminal else None)
    except SourceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(("\n" if in_terminal else "") + f"Model: {folder}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:2]))
