"""What the documents say is there: pages, analyses, links, and the worked example, which is run.

A page or an analysis that is missing from the README's table, the navigation or the glossary fails here.
"""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def navigation(source):
    """File name and title of every `st.Page(...)` call in app/main.py."""
    pages = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "st.Page":
            texts = [n.value for n in ast.walk(node.args[0]) if isinstance(n, ast.Constant)]
            (name,) = [Path(text).name for text in texts if text.endswith(".py")]
            (pages[name],) = [k.value.value for k in node.keywords if k.arg == "title"]
    return pages


def table_rows(markdown):
    """The rows of the tables of a Markdown text, without their headings and rules."""
    rows = re.findall(r"^\|.*\|[ \t]*$", markdown, re.M)
    return [row for row in rows if not set(row) <= set("|-: ")]


def without_row(names, markdown):
    return [
        name for name in names if not any(re.search(rf"\b{re.escape(name)}\b", row) for row in table_rows(markdown))
    ]


def terms(markdown):
    return re.findall(r"^\*\*(.+?)\*\*: \S", markdown, re.M)


def broken_links(file):
    """Relative links of a Markdown file that lead nowhere."""
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text())
    return [link for link in links if "://" not in link and not (file.parent / link).exists()]


def examples(markdown):
    """File name -> code of every block of Python that begins with a comment that names its file."""
    return dict(re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", markdown, re.M | re.S))


def test_every_page_is_in_the_navigation_and_nothing_else():
    there = {file.name for file in (ROOT / "pages").glob("*.py")}
    assert set(navigation((ROOT / "app" / "main.py").read_text())) == there
    assert there


def test_every_page_has_a_row_in_the_readme():
    titles = navigation((ROOT / "app" / "main.py").read_text()).values()
    assert without_row(titles, (ROOT / "README.md").read_text()) == []


def test_every_analysis_has_a_row_in_the_readme_and_an_entry_in_the_glossary():
    from analyses import ANALYSES

    assert without_row(ANALYSES, (ROOT / "README.md").read_text()) == []
    assert set(ANALYSES) - set(terms((ROOT / "docs" / "glossary.md").read_text())) == set()


def test_the_glossary_is_in_order_and_explains_each_term_once():
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    found = terms(glossary)
    assert len(found) == glossary.count("\n**") > 40  # no entry without its explanation
    assert [term.lower() for term in found] == sorted({term.lower() for term in found})


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_links_lead_somewhere(file):
    assert broken_links(file) == []


def test_the_checks_of_this_file_can_fail(tmp_path):
    assert navigation("st.Page(ROOT / 'pages' / 'x.py', title='X y')") == {"x.py": "X y"}
    assert without_row(["Tokens", "Lens"], "Lens\n\n| a | b |\n|---|---|\n| Tokens | what |\n") == ["Lens"]
    assert terms("**a**: b\n**c**:\n") == ["a"]
    (tmp_path / "x.md").write_text("[a](x.md#part) [b](no.md) [c](https://host.example/no.md)")
    assert broken_links(tmp_path / "x.md") == ["no.md"]


@pytest.fixture
def example(monkeypatch):
    """The worked example of docs/adding_an_analysis.md, run as if its files were there: file name -> module."""
    modules = {}
    for name, code in examples((ROOT / "docs" / "adding_an_analysis.md").read_text()).items():
        if name != "analyses/__init__.py":  # one line of a mapping
            module = ModuleType(name.removesuffix(".py").replace("/", "."))
            monkeypatch.setitem(sys.modules, module.__name__, module)
            exec(compile(code, name, "exec"), module.__dict__)
            modules[name] = module
    return modules


def test_the_tests_of_the_worked_example_pass(example):
    module = example["tests/analyses/test_accuracy.py"]
    cases = [value for name, value in vars(module).items() if name.startswith("test_")]
    for case in cases:
        case()
    assert len(cases) == 3


def test_the_cost_and_the_figure_of_the_worked_example(example):
    from analyses._steps import Analysis, Profile

    analysis = example["analyses/accuracy.py"]
    result = analysis.Accuracy(np.array([1, 1], np.int32), np.array([1, 2], np.int32), 0.5)
    figure = example["app/figures/accuracy.py"].accuracy_figure(result, ["the", "the"])
    assert list(figure.data[0].y) == [1, 0]
    assert list(figure.layout.xaxis.ticktext) == ["the", "the"]
    assert result.to_frame().values.tolist() == [[0, 1, 1], [1, 1, 2]]
    profile = Profile(1.0, 0.1, 0.0, 0.01, n_layers=2, n_heads=2, d_model=8, d_vocab=10, n_ctx=64)
    assert analysis.cost_accuracy(profile, 10, {}).seconds == pytest.approx(1 + 10 * 0.1 + 10 * 0.01)
    line = examples((ROOT / "docs" / "adding_an_analysis.md").read_text())["analyses/__init__.py"]
    entry = eval("{" + line.strip() + "}", vars(analysis) | {"Analysis": Analysis})["accuracy"]
    assert (entry.steps, entry.result) == (analysis.accuracy_steps, analysis.Accuracy)
