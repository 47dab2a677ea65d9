"""A model at a training step: the weights are those of the file, nothing kept about one step is used at another."""

import pytest

from analyses import _readout
from analyses._checkpoints import SHIPPED, folder_of, revision_of, shipped_steps
from analyses._steer import reference_norms
from analyses.linear_lens import _path
from analyses.model import load_model
from analyses.training_log import load_training_log

NAME = "tiny-induction"
IDS = (0, 73, 319, 389, 278, 83, 300, 41)


@pytest.fixture(scope="module")
def model():
    return load_model(NAME, checkpoint=400)


@pytest.fixture(scope="module")
def plain():
    """`plain(step)`: logits by transformers alone, from the file of that step."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    hf_model = AutoModelForCausalLM.from_pretrained(folder_of(NAME), dtype=torch.float32, attn_implementation="eager")
    last = shipped_steps(NAME)[-1]

    def logits(step):
        file = folder_of(NAME) / ("model.safetensors" if step == last else f"step{step:05d}.safetensors")
        hf_model.load_state_dict(load_file(file), strict=False)  # the tied unembedding has no name of its own
        with torch.inference_mode():
            return hf_model(torch.tensor([IDS])).logits

    return logits


def test_every_step_computes_what_its_file_says(model, plain):
    assert (model.config.checkpoint, model.config.kind) == (400, "shipped")
    for step in (400, 0, shipped_steps(NAME)[-1], 400):
        model.at_checkpoint(step)
        assert model.config.checkpoint == step
        assert float((model.forward(IDS) - plain(step)).abs().max()) < 1e-5, step


def test_what_ships_is_what_the_log_says():
    for name in SHIPPED:
        assert shipped_steps(name) == load_training_log(name).checkpoints
    assert len(shipped_steps(NAME)) == 21 and shipped_steps(NAME)[-1] == 4500


def test_every_step_has_a_fingerprint_and_weights_of_its_own(model):
    model.at_checkpoint(400)
    before = model.config.fingerprint, model.weights
    model.at_checkpoint(700)
    assert model.config.fingerprint != before[0] and model.weights is not before[1]
    assert model.config.at(400).fingerprint == before[0]
    model.at_checkpoint(400)
    assert (model.config.fingerprint, model.weights) == before
    last = shipped_steps(NAME)[-1]
    assert model.config.at(last).fingerprint == before[0].partition("@")[0]


def test_what_is_kept_about_a_model_is_kept_per_step(model, monkeypatch):
    monkeypatch.setattr(_readout, "is_bfloat16_fast", lambda device: True)
    found = {}
    for step in (0, 1000, 0, 1000):
        model.at_checkpoint(step)
        kept = reference_norms(model), _readout.half_weight(model), _path(model.config.fingerprint, "fit")
        weight = model.linear_parts().weight
        assert float((kept[1].float() - weight).abs().max()) < 0.01 * float(weight.abs().max())
        assert all(a is b or a == b for a, b in zip(found.setdefault(step, kept), kept, strict=True))
    assert found[1000][0][1] > 1.5 * found[0][0][1], "the stream is longer after training"
    assert found[0][2] != found[1000][2], "a fitted lens lies in a folder of its own"


@pytest.mark.parametrize(("step", "nearest"), [(401, "400 or 700"), (9999, "4500"), (-1, "0")])
def test_a_step_that_was_not_kept_is_refused_with_the_nearest(model, step, nearest):
    with pytest.raises(ValueError, match=f"needs a training step that {NAME} was kept at; found .*: {nearest}."):
        model.at_checkpoint(step)


def test_a_model_without_checkpoints_says_so(tiny):
    with pytest.raises(ValueError, match="needs a model with published checkpoints.*llama, which has none"):
        tiny("llama").model.at_checkpoint(100)
    for source in (None, "openai-community/gpt2", "."):
        with pytest.raises(ValueError, match="which has none; choose tiny-induction"):
            load_model(source, checkpoint=100)


@pytest.mark.parametrize(
    ("source", "step", "revision"),
    [
        ("EleutherAI/pythia-70m", 1000, "step1000"),
        ("EleutherAI/pythia-70m-deduped", 512, "step512"),
        ("stanford-crfm/alias-gpt2-small-x21", 400_000, "checkpoint-400000"),
        (NAME, 0, None),
    ],
)
def test_a_checkpoint_of_the_hub_is_a_revision(source, step, revision):
    assert revision_of(source, None, step) == revision


def test_steps_that_the_hub_does_not_have_and_two_ways_at_once_are_refused():
    with pytest.raises(ValueError, match="found 7; the nearest: 4 or 8"):
        revision_of("EleutherAI/pythia-70m", None, 7)
    with pytest.raises(ValueError, match="needs a revision or a checkpoint; found 'main' and 8"):
        revision_of("EleutherAI/pythia-70m", "main", 8)
    with pytest.raises(ValueError, match=f"needs no revision for {NAME}; found 'main'"):
        load_model(NAME, revision="main")


def test_loading_passes_the_revision_on(monkeypatch):
    asked = []

    def resolve(name, revision):
        asked.append((name, revision))
        raise ValueError("far enough")

    monkeypatch.setattr("analyses.model.resolve", resolve)
    with pytest.raises(ValueError, match="far enough"):
        load_model("EleutherAI/pythia-70m", checkpoint=64)
    assert asked == [("EleutherAI/pythia-70m", "step64")]
