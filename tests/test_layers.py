"""The tree keeps its shape: imports point down only, the server stays light, files stay small and clean.

Each check is a function from a folder to a list of complaints. It runs on the repository, where the list must be empty,
and on a made-up offender, where it must not: a check that cannot complain protects nothing.
"""

import ast
import functools
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COMPUTING = {"torch", "transformers", "transformer_lens"}
# What a folder may not import, anywhere in a file: pages -> app -> analyses -> transformer_lens.
FORBIDDEN = {
    "analyses": {"app", "pages", "streamlit", "plotly"},
    "app": {"pages", "transformer_lens"},
    "app/figures": {"streamlit", *COMPUTING},
    "pages": COMPUTING,
    "training": {"app", "pages", "streamlit", "plotly"},
}
# Not imported when the server starts: the first calls Streamlit's command line, the second is a script.
ENTRIES = {"app/__main__.py", "app/main.py"}
LONGEST = 300
CHECKED = ("analyses", "app", "pages", "training", "tests", "benchmarks", "docs", ".ci")
TEXT = {".py", ".js", ".css", ".html", ".md", ".toml", ".txt", ".json", ".yml", ".yaml", ""}
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")  # in two pieces, so that this file passes
MACHINE_PATH = re.compile(r"(?<![\w.~/])/(?:home|Users|root|tmp|private|mnt|work)/[\w.-]+")


def python_files(root: Path, *folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (root / folder).rglob("*.py"))


def text_files(root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of the files of ours: the known folders and what lies beside them."""
    found = [file for folder in CHECKED for file in (root / folder).rglob("*") if "__pycache__" not in file.parts]
    found += list(root.iterdir())
    for file in sorted(file for file in found if file.is_file() and file.suffix in TEXT):
        yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")


def imports(file: Path) -> Iterator[tuple[int, str, int]]:
    """Line, module and level (0 absolute, 1 `from .`, 2 `from ..`) of every import, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "", node.level
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value, 0


def arrows_up(root: Path) -> list[str]:
    complaints = set()
    for folder, forbidden in FORBIDDEN.items():
        for file in python_files(root, folder):
            where = file.relative_to(root).as_posix()
            for line, module, level in imports(file):
                if level == 0 and module.split(".")[0] in forbidden:
                    complaints.add(f"{where}:{line}: {folder}/ may not import {module}")
                if level > 1:
                    complaints.add(f"{where}:{line}: a relative import leaves its package; name the module in full")
    return sorted(complaints)


@functools.cache
def installed_packages() -> frozenset[str]:
    return frozenset(importlib.metadata.packages_distributions())


def borrowed_names(root: Path) -> list[str]:
    """Modules of app/ that hide others: Streamlit puts app/ first on sys.path."""
    installed = installed_packages()
    complaints = []
    for file in python_files(root, "app"):
        name = file.parent.name if file.name == "__init__.py" else file.stem
        if name in sys.stdlib_module_names:
            complaints.append(f"{file.relative_to(root).as_posix()}: {name} is a module of the standard library")
        if name in installed and (file.parent if file.name != "__init__.py" else file.parent.parent) == root / "app":
            complaints.append(f"{file.relative_to(root).as_posix()}: {name} is an installed package")
    return complaints


def heavy_imports(root: Path) -> list[str]:
    """Computing libraries that importing app/ and analyses/ brings into a process, and what does not import at all."""
    files = [f.relative_to(root).as_posix() for f in python_files(root, "analyses", "app")]
    names = [f.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for f in files if f not in ENTRIES]
    # One line for each library, naming the module whose import brought it.
    script = (
        "import importlib, sys\n"
        f"seen = set()\nfor name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    new = ({COMPUTING!r} & sys.modules.keys()) - seen\n"
        "    seen |= new\n"
        "    for heavy in sorted(new): print(f'importing {name} imports {heavy}')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=root, text=True, capture_output=True, timeout=300)
    return done.stdout.splitlines() + done.stderr.splitlines()[-1:] * (done.returncode != 0)


def long_files(root: Path) -> list[str]:
    return [
        f"{name}: {len(text.splitlines())} lines, at most {LONGEST}"
        for name, text in text_files(root)
        if name.endswith((".py", ".js", ".css")) and len(text.splitlines()) > LONGEST
    ]


def found(root: Path, pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {match.group()}"
        for name, text in text_files(root)
        for number, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
    ]


def unfinished(root: Path) -> list[str]:
    return found(root, UNFINISHED)


def machine_paths(root: Path) -> list[str]:
    return found(root, MACHINE_PATH)


CHECKS = [arrows_up, borrowed_names, heavy_imports, long_files, unfinished, machine_paths]


@pytest.mark.parametrize("check", CHECKS)
def test_the_repository(check):
    assert check(ROOT) == []


def test_the_checks_see_the_repository():
    seen = {name for name, _ in text_files(ROOT)}
    assert {"Makefile", "requirements.txt", "app/__main__.py", "analyses/_steps.py", ".ci/run"} <= seen
    assert python_files(ROOT, "app") and python_files(ROOT, "analyses")


@pytest.mark.parametrize(
    ("check", "file", "text", "complaint"),
    [
        (arrows_up, "analyses/x.py", "import streamlit as st", "analyses/x.py:1: analyses/ may not import streamlit"),
        (arrows_up, "analyses/x.py", "def f():\n    from app.ui import y", "analyses/ may not import app.ui"),
        (arrows_up, "analyses/x.py", "import plotly.express", "analyses/ may not import plotly.express"),
        (arrows_up, "app/x.py", "import importlib\nimportlib.import_module('pages.x')", "app/ may not import pages.x"),
        (arrows_up, "app/figures/x.py", "import numpy, torch", "app/figures/ may not import torch"),
        (arrows_up, "app/figures/x.py", "from streamlit import write", "app/figures/ may not import streamlit"),
        (arrows_up, "pages/x.py", "from transformer_lens import x", "pages/ may not import transformer_lens"),
        (arrows_up, "app/ui/x.py", "from ..figures import y", "app/ui/x.py:1: a relative import leaves its package"),
        (borrowed_names, "app/inspect.py", "", "inspect is a module of the standard library"),
        (borrowed_names, "app/queue/__init__.py", "", "queue is a module of the standard library"),
        (borrowed_names, "app/plotly.py", "", "plotly is an installed package"),
        (heavy_imports, "analyses/x.py", "import y_is_nowhere", "ModuleNotFoundError: No module named 'y_is_nowhere'"),
        (long_files, "pages/x.py", "1\n" * 301, "pages/x.py: 301 lines, at most 300"),
        (unfinished, "docs/x.md", "one\nTO" + "DO: two", "docs/x.md:2: TO" + "DO"),
        (unfinished, "app/x.js", "// FIX" + "ME", "app/x.js:1: FIX" + "ME"),
        (machine_paths, "README.md", "in `/ho" + "me/ada/x`", "README.md:1: /ho" + "me/ada"),
        (machine_paths, "tests/x.py", "open('/t" + "mp/x.json')", "tests/x.py:1: /t" + "mp/x.json"),
    ],
)
def test_a_check_complains_about_an_offender(tmp_path, check, file, text, complaint):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    (said,) = check(tmp_path)
    assert complaint in said


def test_a_heavy_import_is_traced_to_the_module_that_brings_it(tmp_path):
    for name, text in {
        "torch": "",
        "analyses/light": "",
        "analyses/quiet": "def f():\n    import torch",
        "app/x": "import torch",
    }.items():
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert heavy_imports(tmp_path) == ["importing app.x imports torch"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("analyses/x.py", "import numpy\nfrom analyses import y\nfrom . import z"),
        ("app/figures/x.py", "import plotly.graph_objects as go\nfrom analyses import y"),
        ("pages/x.py", "import streamlit as st\nfrom app.ui import run"),
        ("docs/x.md", "https://host.example/home/page, ~/.cache/x, ../work/y and /usr/bin/env"),
    ],
)
def test_what_is_allowed_passes(tmp_path, file, text):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert arrows_up(tmp_path) + machine_paths(tmp_path) == []
