"""What weight files hold is read from their headers, and what cannot fit in memory is refused before it is read or fetched."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from analyses import _weights, load_model
from analyses._weights import Stored, check_memory, expected, free_bytes, read_headers
from analyses.sources import SourceError, resolve
from tests.damaged import check_sentence
from tests.saved import save_tiny


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("whole") / "llama")


@pytest.mark.parametrize(
    ("free", "dtype", "words"),
    [
        # 42,464 parameters: 0.187 MB in float32 and 0.093 MB in bfloat16, with a tenth on top.
        (
            100_000,
            "float32",
            r'about 0\.2 MB on cpu .* in float32; found 0\.1 MB free; .*dtype="bfloat16", which takes 0\.1 MB',
        ),
        (10_000, "float32", "choose a model at most 11% its size"),
        (10_000, "bfloat16", "about 0.1 MB on cpu .* in bfloat16"),
    ],
)
def test_model_that_does_not_fit_is_refused_before_its_weights_are_read(whole, monkeypatch, free, dtype, words):
    monkeypatch.setattr(_weights, "free_bytes", lambda device: free)
    monkeypatch.setattr("analyses._bridge.boot", lambda *_, **__: pytest.fail("the weights were read"))
    with pytest.raises(SourceError) as caught:
        load_model(str(whole), device="cpu", dtype=dtype)
    check_sentence(str(caught.value), words)


def test_hub_model_that_does_not_fit_is_refused_before_it_is_downloaded(whole, monkeypatch):
    """By the size of its files and the dtype in its config: 16 bits become 32."""
    source = replace(resolve(str(whole)), kind="hub", dtype="bfloat16", n_bytes=2_000_000)
    monkeypatch.setattr("analyses.model.resolve", lambda *_, **__: source)
    monkeypatch.setattr("analyses._opening.fetch", lambda *_, **__: pytest.fail("it was downloaded"))
    monkeypatch.setattr(_weights, "free_bytes", lambda device: 4_300_000)
    with pytest.raises(SourceError, match=r"about 4\.4 MB on cpu .*; found 4\.3 MB free; load it with dtype=.bfloat16"):
        load_model("some/model", device="cpu")
    assert expected(replace(source, dtype="")).bytes_as("float32") == pytest.approx(1.1 * 2_000_000, rel=1e-3)


def test_estimate_is_what_the_loaded_model_holds(whole):
    model = load_model(str(whole), device="cpu", dtype="bfloat16")
    stored = read_headers(whole, "m")
    assert (stored.n_values, stored.n_other_bytes) == (model.config.n_parameters, 0)
    held = sum(p.numel() * p.element_size() for p in model._bridge.original_model.parameters())
    assert stored.bytes_as("bfloat16") == int(1.1 * held) and stored.bytes_as("float32") == int(2.2 * held)
    assert Stored(10, 7).bytes_as("float32") == int(1.1 * 47)  # packed numbers stay packed


def test_memory_of_a_gpu_is_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: {"cuda:1": (5_000, 9_000)}[device])
    with pytest.raises(SourceError, match="on cuda:1 for m in float16"):
        check_memory("m", Stored(3_000, 0), "float16", "cuda:1")
    check_memory("m", Stored(2_000, 0), "float16", "cuda:1")


def test_limit_of_a_container_counts(monkeypatch, tmp_path):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=9_000))
    for name, text in (
        ("memory.max", "5000\n"),
        ("memory.current", "3000\n"),
        ("memory.stat", "anon 2\ninactive_file 900\n"),
    ):
        (tmp_path / name).write_text(text)
    assert free_bytes("cpu", cgroup=tmp_path) == 2_900
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes("cpu", cgroup=tmp_path) == 9_000
    assert free_bytes("cpu", cgroup=tmp_path / "none") == 9_000
