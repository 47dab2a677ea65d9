"""What a load finds out: the cache argument that one library renamed, and failures that must be said."""

from types import SimpleNamespace

import pytest
import torch

from analyses import _bridge
from analyses.capabilities import probe
from analyses.model import wrap_model
from tests.tiny import tiny_hf_model, tiny_tokenizer


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
