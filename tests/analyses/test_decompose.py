"""Shares of parts are those of the formula, worked out on plain transformers' own modules and weights."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from analyses import _decompose
from analyses.attribution import run_attribution
from tests.tiny import PROMPT

TARGET = 5


def inputs_and_outputs(plain, **modules):
    """name -> (first input, output) of modules at the last position, in one forward pass."""
    seen = {}

    def note(name):
        def hook(module, args, output):
            seen[name] = (args[0][0, -1], (output[0] if isinstance(output, tuple) else output)[0, -1])

        return hook

    with ExitStack() as stack, torch.no_grad():
        for name, module in modules.items():
            stack.callback(module.register_forward_hook(note(name)).remove)
        plain(torch.tensor([PROMPT]))
    return seen


def test_llama_by_hand(tiny):
    plain = tiny("llama").plain
    layer = plain.model.layers[1]
    seen = inputs_and_outputs(
        plain, norm=plain.model.norm, o=layer.self_attn.o_proj, mlp=layer.mlp, embed=plain.model.embed_tokens
    )
    end = seen["norm"][0]
    direction = plain.lm_head.weight[TARGET] * plain.model.norm.weight / (end.square().mean() + 1e-6).sqrt()
    heads = torch.einsum("hd,mhd->hm", seen["o"][0].view(4, 8), layer.self_attn.o_proj.weight.view(32, 4, 8))
    who = run_attribution(tiny("llama").model, PROMPT, target=TARGET)
    assert np.allclose(who.head[1], heads @ direction, atol=1e-5)
    assert who.mlp[1] == pytest.approx(float(seen["mlp"][1] @ direction), abs=1e-5)
    assert who.embedding == pytest.approx(float(seen["embed"][1] @ direction), abs=1e-5)
    assert who.bias == 0


def test_gpt2_by_hand_with_its_centring_and_all_its_biases(tiny):
    plain = tiny("gpt2").plain
    block, norm = plain.transformer.h[1], plain.transformer.ln_f
    seen = inputs_and_outputs(plain, norm=norm, o=block.attn.c_proj, mlp=block.mlp, drop=plain.transformer.drop)
    end = seen["norm"][0]
    direction = plain.lm_head.weight[TARGET] * norm.weight / (end.var(unbiased=False) + 1e-5).sqrt()

    def share(part):
        return float((part - part.mean()) @ direction)

    weight = block.attn.c_proj.weight.view(4, 8, 32)  # Conv1D: [in, out]
    heads = torch.einsum("hd,hdm->hm", seen["o"][0].view(4, 8), weight)
    who = run_attribution(tiny("gpt2").model, PROMPT, target=TARGET)
    assert np.allclose(who.head[1], [share(head) for head in heads], atol=1e-5)
    assert who.mlp[1] == pytest.approx(share(seen["mlp"][1]), abs=1e-5)
    assert who.embedding == pytest.approx(share(seen["drop"][1]), abs=1e-5)  # token and position
    assert np.allclose(who.attention_bias, [share(h.attn.c_proj.bias) for h in plain.transformer.h], atol=1e-5)
    assert who.output_bias == pytest.approx(float(plain.lm_head.weight[TARGET] @ norm.bias), abs=1e-5)


def test_gemma2_by_hand_with_the_norm_behind_attention(tiny):
    plain = tiny("gemma2").plain
    layer, norm = plain.model.layers[1], plain.model.norm
    seen = inputs_and_outputs(plain, norm=norm, o=layer.self_attn.o_proj)
    end, (mixed, whole) = seen["norm"][0], seen["o"]
    direction = plain.lm_head.weight[TARGET] * (1 + norm.weight) / (end.square().mean() + 1e-6).sqrt()
    gain = (1 + layer.post_attention_layernorm.weight) / (whole.square().mean() + 1e-6).sqrt()
    heads = torch.einsum("hd,mhd->hm", mixed.view(4, 16), layer.self_attn.o_proj.weight.view(32, 4, 16))
    who = run_attribution(tiny("gemma2").model, PROMPT, target=TARGET)
    assert np.allclose(who.head[1], (heads * gain) @ direction, atol=1e-5)


@pytest.mark.parametrize("centres", [True, False])
def test_a_norm_is_recognised_from_what_it_does(centres):
    norm = torch.nn.LayerNorm(3) if centres else torch.nn.RMSNorm(3, eps=1e-5)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([2.0, 0.0, -1.0]))
        if centres:
            norm.bias.copy_(torch.tensor([0.5, -3.0, 1.0]))
    found = _decompose.freeze(norm, torch.tensor([1.0, 2.0, 6.0]))
    # Mean 3, deviations -2, -1, 3 with mean square 14/3; without centring the mean square is 41/3.
    scale = (14 / 3 if centres else 41 / 3) ** -0.5
    assert found.centres is centres
    assert found.gain.tolist() == pytest.approx([2 * scale, 0, -scale], rel=1e-5, abs=1e-9)
    assert found.bias.tolist() == ([0.5, -3.0, 1.0] if centres else [0, 0, 0])
    # The gain times 1 is (2, 0, -1); a norm that centres also takes its mean, 1/3, off.
    expected = [5 / 3 * scale, -1 / 3 * scale, -4 / 3 * scale] if centres else [2 * scale, 0, -scale]
    assert found.pull_back(torch.ones(3).double()).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-9)
