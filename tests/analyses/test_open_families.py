"""Every family of tests/tiny.py the way a person opens it: a folder, through `load_model` and through the app's backend."""

import time

import numpy as np
import pytest
import torch

from analyses import load_model, run_next_token
from app.backend.client import RemoteBackend
from app.backend.protocol import Request, Who
from tests.saved import save_tiny
from tests.tiny import FAMILIES, PROMPT, TEXT, tiny_hf_model, tiny_tokenizer


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """`saved(family)`: a folder with its config, safetensors and tokenizer, written once."""
    root = tmp_path_factory.mktemp("families")

    def folder(family):
        return str(root / family if (root / family).is_dir() else save_tiny(family, root / family))

    return folder


def expected_logits(family, ids):
    """Of the last token, by plain transformers on the weights that were saved."""
    with torch.no_grad():
        return tiny_hf_model(family)(torch.tensor([ids])).logits[0, -1]


@pytest.mark.parametrize("family", FAMILIES)
def test_folder_opens_with_its_weights_its_tokenizer_and_all_its_capabilities(saved, family):
    model = load_model(saved(family), device="cpu")
    logits = expected_logits(family, PROMPT)
    after = run_next_token(model, PROMPT, top_k=5)
    assert np.allclose(after.logits, logits.numpy(), atol=1e-4)
    assert np.allclose(after.probability, logits.softmax(-1).topk(5).values.numpy(), atol=1e-5)
    assert model.tokenizer(TEXT)["input_ids"] == tiny_tokenizer()(TEXT)["input_ids"]
    # A folder takes another way into the bridge than a model in memory: it must not cost a capability.
    assert {name for name, reason in model.capabilities.items() if reason} == set(FAMILIES[family].missing)
    assert all(check.passed for check in model.checks), [c.sentence for c in model.checks if not c.passed]
    assert (model.config.kind, model.config.name) == ("local", saved(family))
    assert {name: getattr(model.config, name) for name in FAMILIES[family].facts} == FAMILIES[family].facts


def test_families_follow_one_another_in_the_app(saved, tmp_path, monkeypatch):
    """The same answers through the backend, each model opened beside the one before."""
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path))
    first = next(iter(FAMILIES))
    backend = RemoteBackend("thread", analyses="analyses:ANALYSES", source=saved(first))
    try:
        for family in FAMILIES:
            if family != first:
                backend.open(saved(family))
            end = time.monotonic() + 120
            while (status := backend.status()).opening:
                assert time.monotonic() < end, f"still opening {family}"
                time.sleep(0.01)
            assert status.error == "" and status.model.config.name == saved(family)
            ids = tuple(backend.tokenize(TEXT).ids)
            assert ids == tuple(tiny_tokenizer()(TEXT)["input_ids"])
            found = backend.submit(Request("next_token", ids[:20], {"top_k": 3}), Who("ann", "page")).result(60)
            assert np.allclose(found.logits, expected_logits(family, ids[:20]).numpy(), atol=1e-4), family
    finally:
        backend.close()
