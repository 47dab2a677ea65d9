"""Each changed step against plain transformers with an attention function of our own registered in it."""

import numpy as np
import pytest
import torch

from analyses.attention import run_attention
from analyses.attention_steps import run_attention_steps, weights_at_scale
from tests.tiny import FAMILIES, PROMPT

IDS = torch.tensor([PROMPT])
EDITABLE = [family for family, row in FAMILIES.items() if "scores" not in row.missing]


def plain_logits(plain, kind, factor=1.0):
    """Llama with another attention in every layer, written from the definition."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attend(module, query, key, value, attention_mask, scaling, **rest):
        key, value = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (key, value))
        scores = (query @ key.transpose(2, 3)) * scaling * factor
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if kind in ("unchanged", "scale", "hard lookup"):
            weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        else:
            weights = scores.softmax(-1) * (1 if kind == "no mask" else seen)
        if kind == "mask after, rescaled":
            weights = weights / weights.sum(-1, keepdim=True)
        if kind == "hard lookup":
            weights = torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).float()
        return (weights @ value).transpose(1, 2).contiguous(), weights

    ALL_ATTENTION_FUNCTIONS.register("of_this_test", attend)
    before = plain.config._attn_implementation
    plain.config._attn_implementation = "of_this_test"
    try:
        return plain(IDS).logits[0]
    finally:
        plain.config._attn_implementation = before


def test_every_variant_is_plain_transformers_with_that_attention(tiny):
    plain = tiny("llama").plain
    result = run_attention_steps(tiny("llama").model, PROMPT, factors=(0.5, 3.0), top_k=4)
    assert result.variants[:3] == ("unchanged", "scale", "scale") and len(set(result.variants)) == 6
    base = plain_logits(plain, "unchanged")
    for row, (kind, factor) in enumerate(zip(result.variants, result.factor.tolist(), strict=True)):
        logits = plain_logits(plain, kind, factor)
        loss = -logits.log_softmax(-1)[:-1].gather(-1, IDS[0, 1:, None]).mean()
        assert result.loss_nats[row] == pytest.approx(float(loss), abs=1e-4), kind
        assert result.largest_logit_change[row] == pytest.approx(float((logits - base).abs().max()), abs=1e-4), kind
        assert result.top_ids[row].tolist() == logits[-1].topk(4).indices.tolist(), kind
    assert result.own_scale == pytest.approx(8**-0.5, rel=1e-5) and result.scale[2] == pytest.approx(
        3 * 8**-0.5, rel=1e-5
    )
    assert result.row_sum[result.variants.index("mask after")] < 0.95
    assert (
        result.largest_weight[-1] == 1
        and result.largest_weight[1] < result.largest_weight[0] < result.largest_weight[2]
    )


@pytest.mark.parametrize("family", EDITABLE)
def test_the_mask_afterwards_with_rescaled_rows_changes_nothing(tiny, family):
    """With windows, biases, soft caps and sinks too; without rescaling, and without a mask, something changes."""
    result = run_attention_steps(tiny(family).model, PROMPT, factors=(1.0,))
    change = dict(zip(result.variants, result.largest_logit_change.tolist(), strict=True))
    assert change["unchanged"] == 0 and change["scale"] < 1e-4
    assert change["mask after, rescaled"] < 2e-4
    assert min(change[kind] for kind in ("mask after", "no mask", "hard lookup")) > 0.01
    sums = dict(zip(result.variants, result.row_sum.tolist(), strict=True))
    assert (sums["unchanged"] < 0.95) == (family == "gpt_oss")
    assert sums["mask after, rescaled"] == pytest.approx(sums["unchanged"], abs=1e-4)


def test_one_head_alone_is_changed_and_the_others_are_not(tiny):
    """Against a hook that puts the wanted weights into that head's map and leaves the rest."""
    model = tiny("llama").model
    result = run_attention_steps(model, PROMPT, layer=1, head=2, factors=())
    opened = run_attention(model, PROMPT, layers=[], layer=1, head=2)
    np.testing.assert_allclose(result.weights[0], opened.exact, atol=1e-6)
    before = model.forward(PROMPT)
    for row, kind in enumerate(result.variants):

        def put(tensor, hook, row=row):
            changed = tensor.clone()
            changed[0, 2] = torch.from_numpy(result.weights[row])
            return changed

        with torch.inference_mode(), model.hooks((model.hook_name("pattern", 1), put)):
            logits = model.forward(PROMPT)
        assert result.largest_logit_change[row] == pytest.approx(float((logits - before).abs().max()), abs=1e-4), kind
        mask = kind if kind.startswith(("mask", "no")) else "before"
        if kind != "hard lookup":
            np.testing.assert_allclose(result.weights[row], weights_at_scale(opened.raw, opened.scale, mask), atol=1e-5)
    assert (result.weights[-1] == np.eye(12)[opened.exact.argmax(-1)]).all()


def test_rows_at_a_scale_by_hand():
    raw = np.array([[0, 5, 9], [0, 2, 9], [1, 1, 1]], dtype=np.float32)
    # e^10 = 22,026: at a scale of 5 a lead of 2 leaves 1 in 22,027 to the other.
    np.testing.assert_allclose(weights_at_scale(raw, 5.0)[1], [1 / 22027.466, 22026.466 / 22027.466, 0], rtol=1e-5)
    np.testing.assert_allclose(weights_at_scale(raw, 0.0)[2], [1 / 3] * 3, rtol=1e-6)
    assert weights_at_scale(raw, 1.0, "no mask")[0, 2] > 0.9 and weights_at_scale(raw, 1.0, "mask after")[0].sum() < 0.1
    np.testing.assert_allclose(weights_at_scale(raw, 1.0, window=2)[2], [0, 0.5, 0.5])
    with pytest.raises(ValueError, match="needs the mask before, .*; found 'later'"):
        weights_at_scale(raw, 1.0, "later")


def test_without_a_choice_the_last_factor_undoes_the_scale(tiny):
    result = run_attention_steps(tiny("llama").model, PROMPT[:3])
    assert result.scale[result.variants.index("scale") : 4].tolist() == pytest.approx(
        [0.5 * 8**-0.5, 2 * 8**-0.5, 1.0], rel=1e-5
    )
    assert list(result.to_frame()["variant"]) == list(result.variants)


@pytest.mark.parametrize(
    ("family", "params", "sentence"),
    [
        ("llama", {"head": 1}, "needs the layer of the head; found only head 1"),
        ("llama", {"layer": 3}, "needs a layer from 0 to 2; found 3"),
        ("llama", {"layer": 0, "head": 4}, "needs a head from L0H0 to L2H3; found L0H4"),
        ("llama", {"factors": [0.0]}, "needs at most 8 factors above 0"),
        ("llama", {"top_k": 301}, "needs a top-k from 1 to 300; found 301"),
        ("gpt_neo", {}, "needs a model that offers `scores`; .* already the attention map"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tiny, family, params, sentence, monkeypatch):
    model = tiny(family).model
    monkeypatch.setattr(model, "capture_calls", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    with pytest.raises(ValueError, match=sentence):
        run_attention_steps(model, PROMPT, **params)
