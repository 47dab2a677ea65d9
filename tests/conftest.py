"""Models for the tests: the embedded one, loaded once, and tiny ones built in memory."""

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# Before torch is imported: waiting OpenMP threads must not spin while other tests need the cores
# (app/backend/transports.py).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


# The files that take minutes begin first, so that two workers end together: at the end they would leave one of them idle.
LONG = (
    "browser/test_app.py",
    "browser/test_read_pages.py",
    "app/backend/test_contract_failures.py",
    "browser/",
    "app/backend/test_contract.py",
    "app/test_server_process.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by file, the longest first; inside a file the order stays."""

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((i for i, start in enumerate(LONG) if path.startswith(start)), len(LONG))

    items.sort(key=place)


@dataclass(frozen=True)
class Pair:
    """A wrapped model and the plain transformers model it was made from, with equal weights."""

    model: Any
    plain: Any


@pytest.fixture(scope="session")
def smol_dir() -> Path:
    from analyses.sources import fetch, resolve

    return fetch(resolve(None))


@pytest.fixture(scope="session")
def smol(smol_dir) -> Any:
    from analyses.model import load_model

    return load_model()


@pytest.fixture(scope="session")
def smol_hf(smol_dir) -> tuple[Any, Any]:
    """The embedded model by transformers alone: (model, tokenizer)."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(smol_dir, attn_implementation="eager").eval()
    return model.requires_grad_(False), AutoTokenizer.from_pretrained(smol_dir)


@pytest.fixture(scope="session")
def tiny() -> Callable[[str], Pair]:
    """`tiny(family)`: a tiny random model of a row of tests/tiny.py, built once. Leave no hooks or changes on it."""
    from analyses.model import wrap_model
    from tests.tiny import tiny_hf_model, tiny_tokenizer

    @cache
    def build(family: str) -> Pair:
        hf_model = tiny_hf_model(family)
        plain = copy.deepcopy(hf_model).requires_grad_(False)
        return Pair(wrap_model(hf_model, tiny_tokenizer(), family), plain)

    return build
