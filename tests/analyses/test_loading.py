"""Loading: the embedded model against transformers, local folders, devices, and what a model says it is."""

from dataclasses import asdict, replace

import pytest
import torch

from analyses._device import check_same_as_cpu, choose_device, choose_dtype
from analyses._steps import Cancelled
from analyses.model import load_model, wrap_model
from tests.tiny import PROMPT, tiny_hf_model, tiny_tokenizer

PARIS = (504, 3575, 282, 4649, 314)  # "The capital of France is", no BOS


@pytest.mark.embedded
def test_embedded_model_is_the_one_transformers_loads(smol, smol_hf):
    plain, tokenizer = smol_hf
    assert smol.tokenizer("The capital of France is")["input_ids"] == list(PARIS)
    expected = plain(torch.tensor([PARIS])).logits
    assert torch.allclose(smol.forward(PARIS), expected, atol=1e-3)
    probability = smol.forward(PARIS, last_only=True)[0, -1].softmax(-1)
    assert float(probability[tokenizer.convert_tokens_to_ids("ĠParis")]) == pytest.approx(0.7725, abs=5e-4)
    expected_ids = plain.generate(torch.tensor([PARIS]), max_new_tokens=8, do_sample=False)[0, 5:].tolist()
    assert smol.generate_ids(PARIS, 8) == smol.generate_ids(PARIS, 8, use_cache=False) == tuple(expected_ids)


@pytest.mark.embedded
def test_embedded_model_is_described_and_can_do_everything(smol):
    assert smol.config.n_parameters == 134_515_008
    assert (smol.config.kind, smol.config.family, smol.config.tied, smol.config.n_ctx) == (
        "embedded",
        "llama",
        True,
        8192,
    )
    assert (smol.config.n_layers, smol.config.n_heads, smol.config.n_kv_heads) == (30, 9, 3)
    assert "4 bits" in smol.config.note
    assert {name: reason for name, reason in smol.capabilities.items() if reason} == {}
    assert [c.passed for c in smol.checks] == [True] * 5


@pytest.mark.embedded
def test_bfloat16_is_close_and_says_so(smol, smol_dir):
    half = load_model(str(smol_dir), dtype="bfloat16")
    assert (half.config.dtype, half.config.kind) == ("bfloat16", "local")
    assert [c.passed for c in half.checks] == [True] * 5, [c.sentence for c in half.checks]
    assert half.config.fingerprint != smol.config.fingerprint
    expected, found = smol.forward(PARIS, last_only=True)[0, -1], half.forward(PARIS, last_only=True)[0, -1]
    assert found.dtype == torch.bfloat16
    assert float((expected.softmax(-1) - found.float().softmax(-1)).abs().max()) < 0.05


def test_a_local_folder_is_loaded_with_its_own_tokenizer_and_progress(tmp_path):
    """The bridge would put a BOS before every text; the tokenizer we keep is the one transformers loads."""
    hf_model, tokenizer = tiny_hf_model("llama"), tiny_tokenizer()
    tokenizer.bos_token = "<|end|>"
    hf_model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    seen = []
    model = load_model(str(tmp_path), device="cpu", on_progress=seen.append)
    assert torch.allclose(model.forward(PROMPT), hf_model(torch.tensor([PROMPT])).logits, atol=1e-4)
    assert model.tokenizer("The cat")["input_ids"] == tiny_tokenizer()("The cat")["input_ids"]
    assert (model.config.kind, model.config.device, model.config.dtype) == ("local", "cpu", "float32")
    assert [(p.done, p.total) for p in seen if p.note == "loading the model"] == [(0, 1), (1, 1)]

    def stop(progress):
        raise Cancelled

    with pytest.raises(Cancelled):
        load_model(str(tmp_path), on_progress=stop)


def test_a_model_in_memory_gets_attention_maps_whatever_it_was_built_with():
    hf_model = tiny_hf_model("gpt_neo")
    hf_model.set_attn_implementation("sdpa")
    assert wrap_model(hf_model, tiny_tokenizer()).capabilities["pattern"] == ""


def test_a_model_untied_by_hand_is_not_called_tied():
    hf_model = tiny_hf_model("gpt2")
    tied = sum(p.numel() for p in hf_model.parameters())
    hf_model.lm_head.weight = torch.nn.Parameter(hf_model.lm_head.weight.detach().clone())
    config = wrap_model(hf_model, tiny_tokenizer()).config
    assert (config.tied, config.n_parameters) == (False, tied + 300 * 32)


def test_families_that_cannot_be_opened_are_refused_in_words():
    from transformers import BioGptConfig, BioGptForCausalLM, MambaConfig, MambaForCausalLM

    small = dict(vocab_size=300, hidden_size=32, num_hidden_layers=1)
    biogpt = BioGptForCausalLM(BioGptConfig(**small, num_attention_heads=2, intermediate_size=32))
    with pytest.raises(ValueError, match="needs a family .*; found biogpt; choose"):
        wrap_model(biogpt, tiny_tokenizer())
    with pytest.raises(ValueError, match="blocks with attention; found the family mamba; choose"):
        wrap_model(MambaForCausalLM(MambaConfig(**small, state_size=4)), tiny_tokenizer())


@pytest.mark.parametrize("device", ["cuda:77", "tpu", "mps"])
def test_absent_devices_are_refused(device):
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has mps")
    with pytest.raises(ValueError, match=rf"needs a device of this machine \(cpu.*\); found '{device}'; leave"):
        choose_device(device)


def test_unknown_dtype_is_refused_before_the_model_is_looked_for(monkeypatch):
    monkeypatch.setattr("analyses.model.resolve", lambda *_, **__: pytest.fail("the source was resolved"))
    with pytest.raises(ValueError, match="found 'int8'"):
        load_model(dtype="int8")
    assert choose_dtype("bfloat16") is torch.bfloat16 and choose_dtype(None) is torch.float32


def test_a_device_that_computes_something_else_is_refused():
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    check_same_as_cpu(logits, logits + 1e-4, "mps")
    check_same_as_cpu(logits, logits + 5, "mps")  # the same distribution
    with pytest.raises(ValueError, match='found mps off by .* use device="cpu"'):
        check_same_as_cpu(logits, logits.flip(0), "mps")
    with pytest.raises(ValueError, match="off by nan"):
        check_same_as_cpu(logits, logits * float("nan"), "mps")


def test_config_is_plain_values_and_the_fingerprint_follows_what_decides_the_numbers(tiny):
    config = tiny("llama").model.config
    assert all(isinstance(v, str | int | float | bool | None | tuple) for v in asdict(config).values())

    def fingerprint(name="llama", seed=0, dtype=torch.float32, **fields):
        hf_model = tiny_hf_model("llama", seed=seed).to(dtype)
        for field, value in fields.items():
            setattr(hf_model.config, field, value)
        return wrap_model(hf_model, tiny_tokenizer(), name).config.fingerprint

    assert fingerprint() == config.fingerprint
    others = [fingerprint(name="other"), fingerprint(seed=1), fingerprint(dtype=torch.bfloat16)]
    others.append(fingerprint(rms_norm_eps=1e-3))
    assert len({config.fingerprint, *others}) == 5
    assert replace(config, name="x") != config
