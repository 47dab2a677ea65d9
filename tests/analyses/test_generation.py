"""Greedy continuations: the same with and without the cache, with and without deletions, and as transformers writes them."""

import numpy as np
import pytest

from analyses.generation import complete_text, run_generation
from tests.tiny import FAMILIES, PROMPT

CUT = [{"delete": [1, "2.mlp"]}]


@pytest.fixture(autouse=True)
def no_end_token(monkeypatch):
    monkeypatch.setattr("analyses.generation._end_ids", lambda model: frozenset())


@pytest.mark.parametrize("interventions", [[], CUT], ids=["whole", "cut"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_cache_changes_nothing(tiny, family, interventions):
    model = tiny(family).model
    before = model.hook_count()  # transformers keeps hooks of its own on some families once it has recorded outputs
    found = [
        run_generation(model, PROMPT, max_new_tokens=5, interventions=interventions, use_cache=cache)
        for cache in (True, False)
    ]
    assert found[0].ids.tolist() == found[1].ids.tolist()
    assert found[0].log_probability == pytest.approx(found[1].log_probability, abs=1e-3)
    assert model.hook_count() == before


def test_without_interventions_it_is_transformers_own_greedy_text(tiny):
    import torch

    pair = tiny("llama")
    expected = pair.plain.generate(
        torch.tensor([PROMPT]), max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, len(PROMPT) :]
    assert run_generation(pair.model, PROMPT, max_new_tokens=6).ids.tolist() == expected.tolist()


def test_a_deleted_block_is_a_model_with_a_shorter_list_of_layers(tiny):
    import copy

    import torch

    pair = tiny("llama")
    shorter = copy.deepcopy(pair.plain)
    shorter.model.layers = torch.nn.ModuleList([shorter.model.layers[i] for i in (0, 2)])
    ids = list(PROMPT)
    with torch.inference_mode():
        for _ in range(6):
            ids.append(int(shorter(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    found = run_generation(pair.model, PROMPT, max_new_tokens=6, interventions=[{"delete": [1]}])
    assert found.ids.tolist() == ids[len(PROMPT) :]


def test_it_stops_at_an_end_token_and_keeps_it(tiny, monkeypatch):
    model = tiny("llama").model
    ids = run_generation(model, PROMPT, max_new_tokens=5).ids.tolist()
    assert len(ids) == 5
    end = ids[2]
    monkeypatch.setattr("analyses.generation._end_ids", lambda model: frozenset({end}))
    found = run_generation(model, PROMPT, max_new_tokens=5)
    assert found.ids.tolist() == ids[: ids.index(end) + 1]
    assert found.ended


def test_the_probability_is_that_of_the_chosen_token(tiny):
    model = tiny("llama").model
    found = run_generation(model, PROMPT, max_new_tokens=1)
    logits = model.forward(PROMPT)[0, -1].double()
    assert found.ids[0] == int(logits.argmax())
    assert found.log_probability[0] == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-5)
    assert np.isfinite(found.to_frame()["log_probability_nats"]).all()


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"max_new_tokens": 53}, "needs 1 to 52 new tokens after a prompt of 12, within the context of 64; found 53"),
        ({"max_new_tokens": 0}, "found 0"),
        ({"interventions": [{"steer": 1}]}, "needs interventions such as"),
        ({"interventions": [[1]]}, "needs interventions such as"),
        ({"interventions": [{"delete": [9]}]}, "needs layers from 0 to 2; found 9"),
    ],
)
def test_refusals(tiny, params, sentence):
    with pytest.raises(ValueError, match=sentence):
        run_generation(tiny("llama").model, PROMPT, **params)


def test_an_unfinished_character_is_not_text():
    assert complete_text("caf\ufffd") == "caf"
