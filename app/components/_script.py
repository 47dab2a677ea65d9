"""Scripts and styles of components as one string: every message that draws a component carries them."""

import re
from pathlib import Path

SHARED = Path(__file__).parent / "_shared.js"  # colours, numbers as text, tooltip, PNG: what the head pictures share


def source(*paths: Path) -> str:
    """Files one after the other, without comments, indentation and blank lines."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return re.sub(r"(?m)^\s*(//.*|/\*\*.*\*/)?\n|^ +", "", text)
