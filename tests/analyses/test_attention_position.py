"""Permutation and distance, against the same computed with plain transformers' own modules."""

import numpy as np
import pytest
import torch

from analyses.attention_position import run_attention_position
from tests.tiny import FAMILIES, PROMPT

IDS = torch.tensor([PROMPT])
ROTARY = [
    family
    for family, row in FAMILIES.items()
    if "scores" not in row.missing and family not in ("gpt2", "opt", "gpt_neo", "bloom")
]


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_only_shuffles_along_without_positions_and_mask(tiny, family):
    model = tiny(family).model
    result = run_attention_position(model, PROMPT, layer=1, shifts=())
    gaps = result.permutation_gap
    assert sorted(result.permutation) == list(range(12)) and result.output_size > 0.1
    if family == "gpt_neo":  # its mask is inside attention
        assert (
            np.isnan(gaps).tolist() == [[True, True], [True, False]] and "mask is inside" in result.permutation_reason
        )
    elif model.config.positions == "learned":
        assert (
            np.isnan(gaps[0]).all() and gaps[1, 0] < 1e-5 < 0.01 < gaps[1, 1] and "stream" in result.permutation_reason
        )
    else:
        assert gaps[0, 0] < 1e-5 and min(gaps[0, 1], gaps[1, 0], gaps[1, 1]) > 0.01 and not result.permutation_reason


@pytest.mark.parametrize("family", ROTARY)
def test_a_score_depends_on_the_distance_only(tiny, family):
    result = run_attention_position(tiny(family).model, PROMPT, layer=1, query=5, key=2, shifts=(1, 40))
    assert result.shifted_gap.max() < 1e-4 and np.abs(result.shifted_score - result.score).max() < 1e-4
    assert abs(result.moved_key_score - result.score) > 1e-3 and result.shifts == (1, 40)


def test_scores_of_a_pair_by_hand(tiny):
    """The two vectors by plain projections, rotated to any two places by transformers' own table."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    plain, layer, head = tiny("llama").plain, 1, 2
    block = plain.model.layers[layer]
    x = block.input_layernorm(plain(IDS, output_hidden_states=True).hidden_states[layer])
    q = block.self_attn.q_proj(x)[0].view(-1, 4, 8)[7, head]
    k = block.self_attn.k_proj(x)[0].view(-1, 2, 8)[3, 1]

    def score(query, key):
        turned = []
        for vector, place in ((q, query), (k, key)):
            cos, sin = plain.model.rotary_emb(x, torch.tensor([[place]]))
            turned.append(
                apply_rotary_pos_emb(vector[None, None, None], vector[None, None, None], cos, sin)[0].flatten()
            )
        return float(turned[0] @ turned[1]) / 8**0.5

    result = run_attention_position(tiny("llama").model, PROMPT, layer=layer, head=head, query=7, key=3, shifts=(30,))
    assert result.score == pytest.approx(score(7, 3), abs=1e-5)
    assert result.shifted_score[0] == pytest.approx(score(37, 33), abs=1e-5)
    assert result.moved_key_score == pytest.approx(score(7, 4), abs=1e-5)
    frame = result.to_frame()
    assert len(frame) == 7 and frame["value"].iloc[-1] == pytest.approx(result.moved_key_score)


def test_models_without_rotation_say_why_the_second_experiment_is_missing(tiny):
    for family, word in (("gpt2", "learned"), ("bloom", "alibi"), ("gptj", "already the attention map")):
        result = run_attention_position(tiny(family).model, PROMPT)
        assert result.score is None and word in result.distance_reason and result.shifts == ()
    far = run_attention_position(tiny("mistral").model, PROMPT, query=9, key=1)
    assert far.score is None and "window" in far.distance_reason


def test_shifts_without_a_choice_stay_within_the_context(tiny):
    assert run_attention_position(tiny("llama").model, PROMPT).shifts == (10,)  # 64 tokens of context


@pytest.mark.parametrize(
    ("tokens", "params", "sentence"),
    [
        (PROMPT[:2], {}, "needs at least 3 tokens; found 2"),
        (PROMPT, {"layer": 3}, "needs a head from L0H0 to L2H3; found L3H0"),
        (PROMPT, {"query": 4, "key": 3}, "needs a key two or more tokens before its query"),
        (PROMPT, {"query": 12}, "needs a key two or more tokens before its query"),
        (PROMPT, {"shifts": [53]}, "needs at most 6 shifts from 1 to 52"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tiny, tokens, params, sentence, monkeypatch):
    model = tiny("llama").model
    monkeypatch.setattr(model, "capture_calls", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    with pytest.raises(ValueError, match=sentence):
        run_attention_position(model, tokens, **params)
