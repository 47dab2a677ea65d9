"""Cache, operations and bounds: measured on small models of transformers, and worked by hand."""

import pytest

from analyses import kv_cache_bytes
from analyses._architecture_costs import (
    CARDS,
    GIB,
    causal_prefill_flops,
    decode_bound,
    decode_flops,
    intensity,
    multi_head_cache_bytes,
    prefill_flops,
    read_per_step_bytes,
    ridge,
    users_that_fit,
    weight_bytes,
)
from analyses._architecture_known import known_architectures
from tests.analyses.architectures import CASES, hf_config

KNOWN = known_architectures()
SMOL, LLAMA_70B, LLAMA_8B = (KNOWN[name].config for name in ("SmolLM2-135M", "Llama 3 70B", "Llama 3 8B"))
H100 = CARDS["NVIDIA H100 SXM"]
WINDOWED = CASES["gemma3"] | dict(sliding_window=5, num_hidden_layers=4, sliding_window_pattern=2, head_dim=16)


def build(config):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(hf_config(config, attn_implementation="eager")).eval()


def held(cache):
    """Bytes of the keys and values in a cache of transformers."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


@pytest.mark.parametrize("case", ["llama odd", "gpt2", "bloom", "mixtral odd", "qwen3"])
def test_the_cache_is_as_large_as_that_of_transformers(case):
    import torch

    with torch.no_grad():
        cache = build(CASES[case])(torch.ones(2, 12, dtype=torch.long), use_cache=True).past_key_values
    assert held(cache) == kv_cache_bytes(CASES[case], n_tokens=12, users=2, bytes_per_value=4)


def test_a_layer_with_a_window_keeps_its_window():
    import torch
    from transformers import StaticCache

    model = build(WINDOWED)
    for n_tokens in (3, 12):  # shorter and longer than the window of 5 in layers 0 and 2
        cache = StaticCache(config=model.config, max_cache_len=n_tokens)
        with torch.no_grad():
            model(torch.ones(1, n_tokens, dtype=torch.long), past_key_values=cache, use_cache=True)
        expected = 2 * 2 * 16 * 4 * (2 * min(n_tokens, 5) + 2 * n_tokens)
        assert held(cache) == expected == kv_cache_bytes(WINDOWED, n_tokens, bytes_per_value=4)


@pytest.mark.parametrize("case", ["llama odd", "gpt2", "opt untied"])
def test_operations_equal_torchs_count(case):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model = build(CASES[case])
    with torch.no_grad(), FlopCounterMode(display=False) as prefill:
        cache = model(torch.ones(1, 16, dtype=torch.long), use_cache=True).past_key_values
    with torch.no_grad(), FlopCounterMode(display=False) as decode:
        model(torch.ones(1, 1, dtype=torch.long), past_key_values=cache, use_cache=True)
    assert prefill.get_total_flops() == prefill_flops(CASES[case], 16)
    assert decode.get_total_flops() == decode_flops(CASES[case], 17)


def test_operations_of_smollm2_as_torch_counted_them():
    """Measured once with FlopCounterMode on SmolLM2-135M-Instruct, transformers 5.24, eager attention."""
    assert [prefill_flops(SMOL, n) for n in (16, 64, 128)] == [4_321_050_624, 17_496_539_136, 35_559_309_312]
    assert decode_flops(SMOL, 65) == 273_452_544


def test_operations_with_experts_and_windows_by_hand():
    config = CASES["qwen3 moe"]  # 3 layers, 4 heads of 128, 2 KV heads; 5 experts, 2 used; readout 100
    block = 32 * 128 * (4 + 2 + 2 + 4) + 2 * 3 * 32 * 20 + 5 * 32
    attends = 4 * 4 * 8  # per pair and layer: heads of 8, two products of two operations each
    block = block - 32 * 128 * 12 + 32 * 8 * 12
    assert decode_flops(config, 7) == 2 * (3 * block + 100 * 32) + 3 * attends * 7
    one = decode_flops(WINDOWED, 5)
    assert decode_flops(WINDOWED, 12) - one == 4 * 4 * 16 * 2 * 7  # only the two full layers see more


def test_the_least_prefill_is_the_sum_of_its_decode_steps():
    steps = sum(decode_flops(WINDOWED, seen) for seen in range(1, 13))
    assert causal_prefill_flops(WINDOWED, 12) == steps - 11 * 2 * 100 * 32  # eleven readouts fewer


def test_llama_3_70b():
    assert kv_cache_bytes(LLAMA_70B, 1) == 327_680 == 320 * 1024
    assert kv_cache_bytes(LLAMA_70B, 131_072) == 40 * GIB == 42_949_672_960
    assert multi_head_cache_bytes(LLAMA_70B, 131_072) == 320 * GIB
    assert weight_bytes(LLAMA_70B) == 141_107_412_992
    assert kv_cache_bytes(LLAMA_70B, 131_072, users=3, bytes_per_value=1) == 60 * GIB


def test_bytes_of_weights():
    assert [weight_bytes(SMOL, stored) for stored in ("float32", "bfloat16", "int8", "4 bits")] == [
        538_060_032,
        269_030_016,
        134_515_008,
        67_257_504,
    ]


def test_users_on_a_card_by_hand():
    room = 0.9 * 80 * GIB - 16_060_522_496
    assert users_that_fit(LLAMA_8B, card_gib=80, n_tokens=8192) == int(room // (8192 * 131_072)) == 57
    assert users_that_fit(LLAMA_70B, card_gib=80, n_tokens=10) == 0


def test_bounds_of_llama_3_8b_on_an_h100():
    assert ridge(H100) == pytest.approx(295, abs=0.5)
    # Read for a token: all weights but the embedding table, of which a token needs one row. The table is not tied here.
    read = 16_060_522_496 - 2 * 128_256 * 4096
    assert read_per_step_bytes(LLAMA_8B) == read
    assert decode_bound(LLAMA_8B, H100, context=8192) == pytest.approx(3.35e12 / (read + 8192 * 131_072))
    eight = decode_bound(LLAMA_8B, H100, context=8192, users=8)
    assert eight == pytest.approx(8 * 3.35e12 / (read + 8 * 8192 * 131_072))
    assert causal_prefill_flops(LLAMA_8B, 8192) / H100.flops_per_second == pytest.approx(0.133, abs=0.001)
    assert read_per_step_bytes(SMOL) == weight_bytes(SMOL)  # tied: the table is read to give the logits


def test_many_users_meet_the_limit_of_arithmetic():
    users = 4096
    assert intensity(SMOL, context=1, users=users) > ridge(H100)
    expected = H100.flops_per_second / decode_flops(SMOL, 1)
    assert decode_bound(SMOL, H100, context=1, users=users) == pytest.approx(expected)
    assert intensity(SMOL, context=1) == pytest.approx(1, rel=0.01)  # two operations per weight of two bytes


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "7", 10**13])
def test_a_number_of_tokens_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="needs n_tokens to be a whole number above zero; found"):
        kv_cache_bytes(SMOL, wrong)


def test_wrong_formats_and_cards():
    with pytest.raises(ValueError, match="needs a number format of float32, bfloat16, int8, 4 bits; found 'fp4'"):
        weight_bytes(SMOL, "fp4")
    for card in (0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="needs a card of 1 to 1,000,000 GiB"):
            users_that_fit(SMOL, card_gib=card, n_tokens=10)
