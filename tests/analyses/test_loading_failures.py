"""Each way a model cannot be opened is one plain sentence, runs nothing of the model's files, and the open model stays.

What is done to a folder, and what must then be said, is the table in tests/damaged.py; the machine and the server come below,
memory in tests/analyses/test_weights.py, the hub in test_sources.py, a conversion that fails in test_conversion.py.
"""

import errno
import json
import pickle
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from analyses import load_model
from analyses._hub import explain
from analyses._opening import in_words
from analyses._steps import Cancelled
from analyses.sources import SourceError
from app.backend.client import RemoteBackend
from app.backend.protocol import Request, Who
from app.catalogue import load_catalogue
from tests.damaged import CODE, FAILURES, WEIGHTS, check_sentence, config
from tests.saved import save_tiny
from tests.tiny import PROMPT


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("whole") / "llama")


@pytest.fixture(scope="module")
def backend(whole, tmp_path_factory):
    """The app's backend with a whole model open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = RemoteBackend("thread", analyses="analyses:ANALYSES", source=str(whole))
        assert settled(made).error == ""
        yield made
        made.close()


@pytest.fixture
def copied(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def settled(backend):
    end = time.monotonic() + 120
    while (status := backend.status()).opening:
        assert time.monotonic() < end, "still opening"
        time.sleep(0.005)
    return status


def answer(backend, top_k):
    """Logits after the prompt; with a `top_k` that nobody asked for yet they are computed, not remembered."""
    found = backend.submit(Request("next_token", PROMPT, {"top_k": top_k}), Who("ann", "page")).result(60)
    assert len(found.ids) == top_k
    return found.logits


@pytest.mark.parametrize("failure", FAILURES)
def test_failure_is_one_sentence_and_the_open_model_stays(backend, whole, copied, failure):
    damage, words = FAILURES[failure]
    damage(copied)
    with pytest.raises(SourceError) as caught:
        load_model(str(copied), device="cpu")
    check_sentence(str(caught.value), words)
    fresh = 2 * list(FAILURES).index(failure) + 1
    before = answer(backend, fresh)
    backend.open(str(copied), device="cpu")
    status = settled(backend)
    assert status.error == str(caught.value)  # the page shows the same sentence
    assert status.model.config.name == str(whole)
    assert np.array_equal(answer(backend, fresh + 1), before)


def test_a_whole_model_opens_after_all_these(backend, copied):
    """The table's folders differ from this one by their damage alone."""
    backend.open(str(copied), device="cpu")
    status = settled(backend)
    assert (status.error, status.model.config.name) == ("", str(copied))


def test_other_libraries_errors_keep_their_first_line_only():
    for error, words in (
        (RuntimeError('first\n  File "x.py", line 3, in f\nlast'), "found this in m: first;"),
        (KeyError("gelu_9"), "KeyError 'gelu_9'"),
        (Exception("\x1b[31mred\x1b[0m " + "x" * 900), r"red x+\.\.\.;"),
        (AttributeError(), "found this in m: AttributeError;"),
        (ImportError("no module y"), "needs a library .* no module y; install it"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "needs more memory .*bfloat16"),
        (MemoryError(), "needs more memory"),
    ):
        with pytest.raises(SourceError) as caught, in_words("m", "the weights"):
            raise error
        check_sentence(str(caught.value), words)
        assert caught.value.__cause__ is error  # the log still has it all
    with pytest.raises(Cancelled), in_words("m", "the weights"):
        raise Cancelled


# ---- nothing of a repository is executed ----


class _Trap:
    """A pickle that makes a file when it is opened."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (Path(self.marker),))


def set_traps(folder, marker):
    trap = f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
    for name in (
        "modeling_x.py",
        "configuration_x.py",
        "tokenization_x.py",
        "__init__.py",
        "custom_generate/generate.py",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(trap)
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps(_Trap(str(marker))))
    for name in ("config.json", "tokenizer_config.json"):
        described = json.loads((folder / name).read_text())
        described["auto_map"] = {**CODE, "AutoTokenizer": ["tokenization_x.X", "tokenization_x.X"]}
        (folder / name).write_text(json.dumps(described))


def test_the_traps_of_the_next_test_work(tmp_path):
    marker = tmp_path / "executed"
    pickle.loads(pickle.dumps(_Trap(str(marker))))
    assert marker.exists()


def test_code_and_pickles_in_a_folder_are_never_run_whether_it_opens_or_not(copied, tmp_path):
    marker = tmp_path / "executed"
    set_traps(copied, marker)
    model = load_model(str(copied), device="cpu")  # transformers has the family itself: its own code is used
    assert type(model._bridge.original_model).__module__.startswith("transformers.models.llama")
    model.generate_ids(PROMPT, 2)
    assert not marker.exists()
    (copied / WEIGHTS).rename(copied / "elsewhere")
    with pytest.raises(SourceError, match=r"found only optimizer.pt and 1 more .* can run code when opened"):
        load_model(str(copied), device="cpu")
    (copied / "elsewhere").rename(copied / WEIGHTS)
    config(model_type="own_design")(copied)
    with pytest.raises(SourceError, match="that code is never run here"):
        load_model(str(copied), device="cpu")
    assert not marker.exists()


# ---- the machine ----


def test_device_and_number_format_that_are_not_there(whole):
    for options, words in (
        (dict(device="cuda:9"), "device of this machine"),
        (dict(dtype="int4"), "float32, bfloat16"),
    ):
        with pytest.raises(ValueError) as caught:
            load_model(str(whole), **options)
        check_sentence(str(caught.value), words)


def test_memory_that_runs_out_while_loading_is_said(whole, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("analyses._bridge.boot", full)
    with pytest.raises(SourceError) as caught:
        load_model(str(whole), device="cpu")
    check_sentence(str(caught.value), "needs more memory than is free")


def test_disk_that_fills_up_during_a_download_is_said():
    """During the conversion: tests/analyses/test_conversion.py."""
    sentence = explain(OSError(errno.ENOSPC, "No space left on device"), "owner/name", None)
    check_sentence(sentence, "needs to write in .*No space left on device; make room there")


# ---- what the server allows ----


@pytest.mark.parametrize(
    ("listed", "asked"), [("", "/etc"), ("", "owner/name"), ("any", "../../owner/name"), ("any", "~/x")]
)
def test_a_path_or_name_outside_the_list_is_refused(monkeypatch, whole, listed, asked):
    """More of these in tests/app/test_catalogue.py."""
    monkeypatch.setenv("STREAMSCOPE_MODELS", ",".join(filter(None, [str(whole), listed])))
    with pytest.raises(ValueError) as caught:
        load_catalogue().find(asked)
    check_sentence(str(caught.value), "needs one of: llama.*choose a model of this server's list")
