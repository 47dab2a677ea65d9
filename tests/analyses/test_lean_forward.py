"""What is spared in a forward pass changes no bit of it, and a hook that is set is still called."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import Module

from tests.tiny import PROMPT


@pytest.fixture
def as_it_comes(monkeypatch):
    """Puts TransformerLens' own functions back."""
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
    from transformer_lens.model_bridge.generalized_components.block import BlockBridge
    from transformer_lens.model_bridge.generalized_components.normalization import NormalizationBridge

    def restore():
        norm, call = NormalizationBridge._hf_autograd_forward_with_hooks, GeneralizedComponent.__call__
        monkeypatch.setattr(NormalizationBridge, "_hf_autograd_forward_with_hooks", norm.__wrapped__)
        monkeypatch.setattr(GeneralizedComponent, "__call__", call.__wrapped__)
        whole = BlockBridge._filter_kwargs_for_forward.__wrapped__
        monkeypatch.setattr(BlockBridge, "_filter_kwargs_for_forward", whole)
        monkeypatch.setattr(HookPoint, "__call__", Module.__call__)

    return restore


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "olmo2", "falcon"])
def test_the_logits_are_the_same_bits(tiny, as_it_comes, family):
    model = tiny(family).model
    with torch.inference_mode():
        lean, cache = model.extend(PROMPT, last_only=False)
        lean_next, _ = model.extend((5,), cache)
        as_it_comes()
        whole, cache = model.extend(PROMPT, last_only=False)
        whole_next, _ = model.extend((5,), cache)
    assert torch.equal(lean, whole)
    assert torch.equal(lean_next, whole_next)


def test_a_hook_inside_a_norm_is_still_called(tiny):
    model, seen = tiny("llama").model, {}

    def note(name):
        return lambda tensor, hook: seen.__setitem__(name, tensor.clone())

    with torch.inference_mode():
        pairs = [
            (f"blocks.1.{name}", note(name)) for name in ("hook_resid_pre", "ln1.hook_scale", "ln1.hook_normalized")
        ]
        with model.hooks(*pairs):
            model.forward(PROMPT)
    stream = seen["hook_resid_pre"]
    scale = (stream.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(seen["ln1.hook_scale"], scale)
    torch.testing.assert_close(seen["ln1.hook_normalized"], stream / scale)


def test_an_edit_inside_a_norm_still_changes_the_logits(tiny):
    model = tiny("llama").model
    with torch.inference_mode():
        before = model.forward(PROMPT)
        with model.hooks(("blocks.1.ln1.hook_normalized", lambda tensor, hook: 0 * tensor)), pytest.warns(UserWarning):
            changed = model.forward(PROMPT)
        assert not torch.equal(before, changed)
        assert torch.equal(before, model.forward(PROMPT))


class Takes(Module):
    def forward(self, hidden_states, position_ids=None):
        return hidden_states


class TakesAny(Module):
    def forward(self, hidden_states, **named):
        return hidden_states


@pytest.mark.parametrize(("kind", "kept"), [(Takes, {"position_ids": 1}), (TakesAny, {"position_ids": 1, "other": 2})])
def test_a_block_gets_the_arguments_it_takes(tiny, as_it_comes, kind, kept):
    from transformer_lens.model_bridge.generalized_components.block import BlockBridge

    tiny("llama")  # which lightens
    own = kind()
    block = SimpleNamespace(original_component=own, _modules={"_original_component": own})
    given = {"position_ids": 1, "other": 2}
    lean = BlockBridge._filter_kwargs_for_forward(block, dict(given), 1)
    as_it_comes()
    assert lean == kept == BlockBridge._filter_kwargs_for_forward(block, dict(given), 1)
