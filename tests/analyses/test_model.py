"""The door to the model: what it refuses, that it leaves nothing behind, the embedded model against transformers."""

import threading
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import torch

from analyses import _bridge
from analyses._device import check_same_as_cpu, choose_device, choose_dtype
from analyses._steps import Cancelled
from analyses.capabilities import probe
from analyses.model import load_model, wrap_model
from tests.tiny import PROMPT, tiny_hf_model, tiny_tokenizer

PARIS = (504, 3575, 282, 4649, 314)  # "The capital of France is", no BOS


@pytest.fixture
def llama(tiny):
    model = tiny("llama").model
    yield model
    assert model.hook_count() == 0


# ---- the embedded model ----


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


# ---- what goes in ----


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ((), "at least 1 token"),
        ("text", "found text"),
        ((3, 300), "found 300"),
        ((1,) * 65, "at most 64"),
        (torch.tensor([[3, -1]]), "found -1"),
        (torch.tensor([3, 4]), r"\[batch, pos\]"),
        (torch.tensor([[0.5]]), "int64"),
        (torch.zeros(0, 3, dtype=torch.int64), "at least one text"),
        (torch.zeros(2, 0, dtype=torch.int64), "at least 1 token"),
        (torch.zeros(2, 65, dtype=torch.int64), "at most 64"),
    ],
)
def test_wrong_ids_are_refused_before_anything_is_computed(llama, monkeypatch, ids, words):
    monkeypatch.setattr(llama, "interrupt", lambda: pytest.fail("a block ran"))
    with pytest.raises(ValueError, match=words):
        llama.forward(ids)


def test_tokens_objects_lists_and_tensors_are_ids_too(llama):
    expected = llama.forward(PROMPT)
    for ids in (list(PROMPT), SimpleNamespace(ids=PROMPT), torch.tensor([PROMPT])):
        assert torch.equal(llama.forward(ids), expected)


def test_generation_must_fit_the_context(llama):
    with pytest.raises(ValueError, match=r"context of 64; found 12 \+ 53"):
        llama.generate_ids(PROMPT, 53)
    assert len(llama.generate_ids(PROMPT, 52)) == 52


def test_greedy_generation_is_the_argmax_of_plain_transformers(tiny, llama):
    text = list(PROMPT)
    for _ in range(6):
        text.append(int(tiny("llama").plain(torch.tensor([text])).logits[0, -1].argmax()))
    assert llama.generate_ids(PROMPT, 6) == tuple(text[12:])
    assert llama.generate_ids(PROMPT, 6, use_cache=False) == tuple(text[12:])
    assert llama.generate_ids(PROMPT, 0) == ()


def test_only_one_text_is_captured(llama):
    with pytest.raises(ValueError, match="one text; found 2"):
        llama.capture_calls(torch.tensor([PROMPT, PROMPT]))


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


# ---- hooks ----


def test_a_misspelt_hook_is_refused_with_the_nearest_name(llama):
    with pytest.raises(ValueError, match=r"found 'blocks.1.hook_resid_prr'.*mean 'blocks.\d.hook_resid_pre'"):
        with llama.hooks(("blocks.0.hook_resid_pre", lambda t, hook: 0 * t), ("blocks.1.hook_resid_prr", print)):
            pass
    with pytest.raises(ValueError, match=r"did you mean 'pattern'\?"):
        llama.hook_name("patern", 0)
    with pytest.raises(ValueError, match="layer from 0 to 2; found 3"):
        llama.hook_name("pattern", 3)


def test_hooks_are_counted_and_gone_after_an_error(llama):
    expected = llama.forward(PROMPT)
    with pytest.raises(ZeroDivisionError):
        with llama.hooks(*((llama.hook_name("mlp_out", i), lambda t, hook: 0 * t) for i in range(3))):
            assert llama.hook_count() == 3
            assert not torch.allclose(llama.forward(PROMPT), expected, atol=0.1)
            raise ZeroDivisionError
    assert llama.hook_count() == 0
    assert torch.equal(llama.forward(PROMPT), expected)


def test_a_hook_steers_as_adding_to_the_stream_does_in_plain_transformers(tiny, llama):
    vector = torch.linspace(-1, 1, 32)
    plain = tiny("llama").plain
    handle = plain.model.layers[1].register_forward_pre_hook(lambda m, args: (args[0] + vector, *args[1:]))
    expected = plain(torch.tensor([PROMPT])).logits
    handle.remove()
    with llama.hooks((llama.hook_name("resid_pre", 1), lambda t, hook: t + vector)):
        assert torch.allclose(llama.forward(PROMPT), expected, atol=1e-4)
    assert not torch.allclose(llama.forward(PROMPT), expected, atol=0.1)


# ---- stopping ----


@pytest.mark.parametrize("compute", ["forward", "capture_calls"])
def test_an_interrupt_stops_at_the_next_block_and_leaves_nothing(llama, monkeypatch, compute):
    expected, calls = llama.forward(PROMPT), 0

    def stop():
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    ran = []
    with pytest.raises(Cancelled):
        with llama.hooks(*((llama.hook_name("resid_post", i), lambda t, hook, i=i: ran.append(i)) for i in range(3))):
            getattr(llama, compute)(PROMPT)
    assert ran == [0]  # blocks 1 and 2 never ran
    assert llama.hook_count() == 0
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    monkeypatch.undo()
    assert torch.equal(llama.forward(PROMPT), expected)
    assert torch.equal(llama.capture_calls(PROMPT).logits, expected)


def test_replayed_blocks_and_loops_are_interrupted_too(llama, monkeypatch):
    calls = llama.capture_calls(PROMPT)

    def stop():
        raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    with pytest.raises(Cancelled):
        llama.run_block(1, calls.resid[1], calls)
    with pytest.raises(Cancelled):
        llama.check()


def test_cancelling_during_the_probe_is_not_taken_for_a_missing_capability(llama, monkeypatch):
    def stop():
        raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    with pytest.raises(Cancelled):
        probe(llama)


# ---- gradients ----


def test_no_thread_builds_a_graph(llama):
    """Grad mode is per thread and on in every new one: 1.4 GB at 512 tokens on the embedded model."""
    found = []
    thread = threading.Thread(target=lambda: found.append((torch.is_grad_enabled(), llama.forward(PROMPT))))
    thread.start()
    thread.join()
    enabled, logits = found[0]
    assert enabled and not logits.requires_grad
    assert torch.equal(logits, llama.forward(PROMPT))


def test_gradients_can_still_be_asked_for(tiny, llama):
    """The probe ran under inference mode; a table it left behind would make this fail."""
    streams = []

    def track(tensor, hook):
        streams.append(tensor.detach().requires_grad_(True))
        return streams[0]

    with llama.hooks((llama.hook_name("resid_pre", 1), track)):
        llama.forward(PROMPT)[0, -1, 7].backward()
    plain, kept = tiny("llama").plain, []
    handle = plain.model.layers[1].register_forward_pre_hook(
        lambda m, args: (kept.append(args[0].detach().requires_grad_(True)), (kept[0], *args[1:]))[1]
    )
    plain(torch.tensor([PROMPT])).logits[0, -1, 7].backward()
    handle.remove()
    assert kept[0].grad.abs().max() > 0.01
    assert torch.allclose(streams[0].grad, kept[0].grad, atol=1e-5)


# ---- the renamed cache argument ----


def test_guard_lets_attention_find_a_cache_under_its_new_name():
    from transformer_lens.model_bridge.generalized_components.attention import AttentionBridge
    from transformers import DynamicCache

    _bridge.guard_cache_argument()
    _bridge.guard_cache_argument()  # idempotent: one wrapper, not two
    guarded = AttentionBridge._update_kv_cache
    unguarded = guarded.__wrapped__
    assert not hasattr(unguarded, "__wrapped__")
    attention = SimpleNamespace(_layer_idx=0, name="attn")
    keys = [torch.full((1, 2, 1, 4), float(i)) for i in range(3)]

    def lengths(update, name):
        cache = DynamicCache()
        return [update(attention, k, k, **{name: cache})[0].shape[2] for k in keys], cache.get_seq_length()

    # What is guarded against; when TransformerLens reads the new name itself, this fails and the guard can go.
    assert lengths(unguarded, "cache") == ([1, 1, 1], 0)
    for name in ("cache", "past_key_values", "layer_past"):
        assert lengths(guarded, name) == ([1, 2, 3], 3), name
    assert [k.shape[2] for k in guarded(attention, keys[0], keys[0])] == [1, 1]  # no cache, nothing to keep


def test_the_broken_pair_is_found_out_at_load_and_the_guard_mends_it(monkeypatch):
    """transformers 5.24 as TransformerLens 4.3 sees it: attention gets its cache under the new name."""
    from transformer_lens.model_bridge.generalized_components.attention import AttentionBridge

    model = wrap_model(tiny_hf_model("llama"), tiny_tokenizer())
    guarded = AttentionBridge._update_kv_cache

    def renamed(update):
        def call(self, k, v, *, past_key_values=None, **named):
            return update(self, k, v, cache=past_key_values, **named)

        return call

    monkeypatch.setattr(AttentionBridge, "_update_kv_cache", renamed(guarded))
    capabilities, checks = probe(model)
    assert capabilities["kv_cache"] == "" and checks[4].passed
    monkeypatch.setattr(AttentionBridge, "_update_kv_cache", renamed(guarded.__wrapped__))
    capabilities, checks = probe(model)
    assert "logits differ" in capabilities["kv_cache"]
    assert not checks[4].passed and checks[4].value > 0.1
    assert capabilities["replay"] == ""


# ---- what fails is said ----


def test_a_wrong_readout_is_reported_and_nothing_else(monkeypatch):
    model = wrap_model(tiny_hf_model("gemma2"), tiny_tokenizer())
    monkeypatch.setattr(model._bridge.adapter, "apply_output_logits_transform", lambda logits: logits)  # no softcap
    capabilities, checks = probe(model)
    missing = {name for name, reason in capabilities.items() if reason}
    assert missing == {"readout", "replay"}  # replay is compared through the readout
    assert [c.name for c in checks if not c.passed] == ["lens", "replay"]
    model.capabilities = capabilities
    with pytest.raises(ValueError, match="needs a model that offers `readout`; found .* logits differ .*; choose"):
        model.require("pattern", "readout")


def test_an_error_inside_one_probe_is_a_reason_and_the_others_go_on(monkeypatch):
    model = wrap_model(tiny_hf_model("llama"), tiny_tokenizer())

    def refuse(*args, **named):
        raise NotImplementedError("this family keeps no cache")

    monkeypatch.setattr(model, "extend", refuse)
    capabilities, checks = probe(model)
    assert capabilities["kv_cache"] == "trying it failed: NotImplementedError: this family keeps no cache"
    assert checks[4].value is None and not checks[4].passed and "keeps no cache" in checks[4].sentence
    assert all(not reason for name, reason in capabilities.items() if name != "kv_cache")


def test_numbers_that_are_not_finite_pass_no_check():
    hf_model = tiny_hf_model("llama")
    with torch.no_grad():
        hf_model.model.layers[1].self_attn.q_proj.weight.fill_(float("inf"))
    model = wrap_model(hf_model, tiny_tokenizer())
    assert [c.name for c in model.checks if c.passed] == []
    assert model.capabilities["rows_sum_to_one"] and model.capabilities["scores"] and model.capabilities["attn_out"]


# ---- identity ----


def test_config_is_plain_values_and_the_fingerprint_follows_what_decides_the_numbers(tiny):
    config = tiny("llama").model.config
    assert all(isinstance(v, str | int | float | bool | None) for v in asdict(config).values())

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
