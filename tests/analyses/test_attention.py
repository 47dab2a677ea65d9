"""Maps, steps and labels against plain transformers with eager attention, on every family."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses._steps import Cancelled, Profile
from analyses.attention import block_size, cost_attention, pack, run_attention
from tests.tiny import FAMILIES, PROMPT, WINDOW

EVERY = pytest.mark.parametrize("family", FAMILIES)
IDS = torch.tensor([PROMPT])
HALF_A_STEP = 0.5 / 255 + 1e-6


@pytest.fixture(scope="module")
def plain_maps(tiny):
    """`plain_maps(family)`: [layer, head, query, key] by plain transformers."""
    found = {}

    def maps(family):
        if family not in found:
            layers = tiny(family).plain(IDS, output_attentions=True).attentions
            found[family] = torch.stack([layer[0] for layer in layers]).numpy()
        return found[family]

    return maps


@EVERY
def test_maps_are_those_of_plain_transformers(tiny, plain_maps, family):
    result, expected = run_attention(tiny(family).model, PROMPT), plain_maps(family)
    assert result.block == 1 and result.layers == tuple(range(len(expected)))
    assert np.abs(result.pattern / 255 - expected).max() <= HALF_A_STEP
    assert np.abs(result.least_row_sum - expected.sum(-1).min(-1)).max() < 1e-5  # never rescaled
    assert result.sinks == (family == "gpt_oss",) * len(expected) == tuple((expected.sum(-1) < 0.9).any((1, 2)))
    assert bool(result.rows_reason) == (family == "gpt_oss")


@EVERY
def test_a_layer_is_labelled_with_its_window_exactly_where_plain_maps_are_cut_off(tiny, plain_maps, family):
    distance = np.arange(len(PROMPT))[:, None] - np.arange(len(PROMPT))
    cut = [bool((layer[:, distance >= WINDOW] == 0).all()) for layer in plain_maps(family)]
    assert run_attention(tiny(family).model, PROMPT).window == tuple(WINDOW if layer else None for layer in cut)


@EVERY
def test_the_four_steps_of_a_head_make_the_models_own_map(tiny, plain_maps, family):
    model = tiny(family).model
    layer, head = model.config.n_layers - 1, 3
    opened = run_attention(model, PROMPT, layers=[], layer=layer, head=head)
    np.testing.assert_allclose(opened.exact, plain_maps(family)[layer, head], atol=1e-5)
    assert opened.packed.shape[0] == 0  # no maps were asked for
    if "scores" in FAMILIES[family].missing:
        assert "already the attention map" in opened.steps_reason and opened.raw is None and opened.error is None
        return
    assert opened.error < 1e-5 and not opened.steps_reason
    np.testing.assert_allclose(opened.softmax, plain_maps(family)[layer, head], atol=2e-5)
    later = np.triu(np.ones((len(PROMPT),) * 2, dtype=bool), 1)
    assert np.isinf(opened.masked[later]).all() and np.isfinite(opened.raw).all()
    # From one step to the next, by hand.
    scaled = opened.scale * opened.raw
    scaled = scaled if opened.softcap is None else opened.softcap * np.tanh(scaled / opened.softcap)
    np.testing.assert_allclose(opened.scaled, scaled, atol=1e-5)
    seen = np.isfinite(opened.masked)
    bias = opened.slope * np.broadcast_to(np.arange(len(PROMPT)), seen.shape)
    np.testing.assert_allclose(opened.masked[seen], (opened.scaled + bias)[seen], atol=1e-5)


@EVERY
def test_the_factor_is_the_familys_own(tiny, family):
    """Granite's is 1, Gemma 2 and 3 divide by a number of their config; the config is not what we read."""
    if "scores" in FAMILIES[family].missing:
        return
    opened = run_attention(tiny(family).model, PROMPT, layers=[], layer=1, head=1)
    config = tiny(family).plain.config
    d_head = getattr(config, "head_dim", None) or config.hidden_size // 4
    expected = (
        getattr(config, "attention_multiplier", None)
        or (getattr(config, "query_pre_attn_scalar", None) or d_head) ** -0.5
    )
    assert opened.scale == pytest.approx(expected, rel=1e-3 if family == "gemma2" else 1e-5)
    assert (opened.softcap is None) == (family != "gemma2") and (opened.slope != 0) == (family == "bloom")
    if family == "gemma2":
        assert opened.softcap == pytest.approx(config.attn_logit_softcapping, rel=0.02)


def test_raw_scores_by_hand_from_plain_projections(tiny):
    """Llama: rotate q and k with transformers' own function; GPT-2: nothing to rotate, one joint matrix."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    plain, layer, head = tiny("llama").plain, 1, 3
    block = plain.model.layers[layer]
    x = block.input_layernorm(plain(IDS, output_hidden_states=True).hidden_states[layer])
    q = block.self_attn.q_proj(x).view(1, -1, 4, 8).transpose(1, 2)
    k = block.self_attn.k_proj(x).view(1, -1, 2, 8).transpose(1, 2)
    q, k = apply_rotary_pos_emb(q, k, *plain.model.rotary_emb(x, torch.arange(len(PROMPT))[None]))
    opened = run_attention(tiny("llama").model, PROMPT, layers=[], layer=layer, head=head)
    assert opened.kv_head_of.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(opened.raw, (q[0, head] @ k[0, 1].T).numpy(), atol=1e-4)

    plain = tiny("gpt2").plain
    block = plain.transformer.h[layer]
    x = block.ln_1(plain(IDS, output_hidden_states=True).hidden_states[layer])
    q, k, _ = (part.view(-1, 4, 8)[:, head] for part in block.attn.c_attn(x)[0].split(32, dim=-1))
    opened = run_attention(tiny("gpt2").model, PROMPT, layers=[], layer=layer, head=head)
    np.testing.assert_allclose(opened.raw, (q @ k.T).numpy(), atol=1e-4)


def test_value_weighted_view_by_hand_from_plain_projections(tiny, plain_maps):
    layer, head = 1, 2
    plain = tiny("llama").plain
    block = plain.model.layers[layer]
    x = block.input_layernorm(plain(IDS, output_hidden_states=True).hidden_states[layer])
    value = block.self_attn.v_proj(x)[0].view(-1, 2, 8)[:, 1]  # heads 2 and 3 share key-value head 1
    written = value @ block.self_attn.o_proj.weight[:, 8 * head : 8 * head + 8].T
    opened = run_attention(tiny("llama").model, PROMPT, layers=[], layer=layer, head=head)
    np.testing.assert_allclose(opened.written, written.norm(dim=-1).numpy(), atol=1e-5)
    np.testing.assert_allclose(opened.weighted, plain_maps("llama")[layer, head] * opened.written, atol=1e-5)

    attention = tiny("gpt2").plain.transformer.h[layer].attn  # a joint matrix, stored the other way round, with biases
    x = (
        tiny("gpt2")
        .plain.transformer.h[layer]
        .ln_1(tiny("gpt2").plain(IDS, output_hidden_states=True).hidden_states[layer])
    )
    value = attention.c_attn(x)[0, :, 64 + 8 * head : 64 + 8 * head + 8]
    written = value @ attention.c_proj.weight[8 * head : 8 * head + 8]
    opened = run_attention(tiny("gpt2").model, PROMPT, layers=[], layer=layer, head=head)
    np.testing.assert_allclose(opened.written, written.norm(dim=-1).numpy(), atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "falcon", "gpt2"])
def test_a_key_value_head_serves_the_heads_that_it_is_said_to_serve(tiny, family):
    """Change the values of one key-value head: only the heads that read it change."""
    model = tiny(family).model
    kv_head_of = run_attention(model, PROMPT, layers=[]).kv_head_of
    found = []
    read = (model.hook_name("head_output", 1), lambda tensor, hook: found.append(tensor[0]))

    def change(tensor, hook):
        changed = tensor.clone()
        changed[:, :, 0] += 1
        return changed

    for hooks in ((read,), (read, (model.hook_name("value", 1), change))):
        with torch.inference_mode(), model.hooks(*hooks):
            model.forward(PROMPT)
    moved = (found[1] - found[0]).abs().amax((0, 2)) > 1e-3
    assert moved.tolist() == (kv_head_of == 0).tolist()


def test_packing_by_hand():
    maps = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]]])
    assert pack(maps, 1).tolist() == [[255, 128, 128, 51, 76, 128]]
    # Blocks of two: rows 0-1 and row 2; the largest weight of each block, not the mean.
    assert pack(maps, 2).tolist() == [[255, 76, 128]]


def test_a_sheet_is_the_largest_weight_of_each_block(tiny, monkeypatch):
    model, ids = tiny("llama").model, PROMPT * 4
    full = run_attention(model, ids, detail="full")
    monkeypatch.setattr("analyses.attention.BLOCKS", 10)
    sheet = run_attention(model, ids, detail="sheet")
    assert sheet.block == 5 and sheet.pattern.shape == (3, 4, 10, 10)  # 48 tokens, the last block has three
    padded = np.pad(full.pattern, ((0, 0), (0, 0), (0, 2), (0, 2)))
    assert (sheet.pattern == padded.reshape(3, 4, 10, 5, 10, 5).max((3, 5))).all()
    monkeypatch.setattr("analyses.attention.FULL_BYTES", full.packed.size - 1)
    assert run_attention(model, ids).block == 5  # too large for all heads at once
    one = run_attention(model, ids, layers=[2])
    assert one.block == 1 and (one.pattern[0] == full.pattern[2]).all() and one.layers == (2,)


def test_a_long_prompt_stays_within_the_limit_of_a_result():
    """SmolLM2 at 512 tokens: all heads as a sheet, every layer in full."""
    profile = Profile(1.0, 1.0, 1.0, 1.0, n_layers=30, n_heads=9, d_model=576, d_vocab=49152, n_ctx=8192)
    assert block_size(512, 270, "auto") == 8 and block_size(512, 9, "auto") == 1 and block_size(128, 270, "auto") == 1
    for params in ({}, {"layers": [3]}, {"layers": [], "layer": 3, "head": 1}):
        assert cost_attention(profile, 512, params).result_bytes < 8 << 20


@pytest.mark.parametrize("params", [{}, {"layers": [0]}, {"detail": "sheet"}, {"layers": [], "layer": 1, "head": 0}])
def test_a_result_is_as_large_as_was_said(tiny, params):
    model = tiny("llama").model
    profile = Profile(1.0, 1.0, 1.0, 1.0, n_layers=3, n_heads=4, d_model=32, d_vocab=300, n_ctx=64)
    result = run_attention(model, PROMPT, **params)
    size = sum(value.nbytes for value in vars(result).values() if isinstance(value, np.ndarray))
    assert size <= cost_attention(profile, len(PROMPT), params).result_bytes + 64


def test_tables(tiny):
    model = tiny("llama").model
    heads = run_attention(model, PROMPT, layers=[2, 1]).to_frame()
    assert heads["name"].tolist()[:5] == ["L2H0", "L2H1", "L2H2", "L2H3", "L1H0"] and heads["kv_head"][3] == 1
    opened = run_attention(model, PROMPT, layers=[], layer=1, head=0)
    row = opened.to_frame().query("query == 7 and key == 3").iloc[0]
    assert row["weight"] == opened.exact[7, 3] and row["raw"] == opened.raw[7, 3]


def test_one_token_looks_at_itself(tiny):
    result = run_attention(tiny("llama").model, PROMPT[:1], layer=0, head=0)
    assert (result.pattern == 255).all() and result.error == 0 and result.exact.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("tokens", "params", "sentence"),
    [
        ((), {}, "needs at least 1 token; found 0"),
        (PROMPT, {"layers": [3]}, "needs a layer from 0 to 2; found 3"),
        (PROMPT, {"layer": 1}, "needs a layer and a head, or neither; found 1 and None"),
        (PROMPT, {"layer": 1, "head": 4}, "needs a head from L0H0 to L2H3; found L1H4"),
        (PROMPT, {"detail": "fine"}, "needs the detail auto, full or sheet; found 'fine'"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tiny, tokens, params, sentence, monkeypatch):
    model = tiny("llama").model
    monkeypatch.setattr(model, "forward", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    monkeypatch.setattr(model, "capture_calls", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    with pytest.raises(ValueError, match=sentence):
        run_attention(model, tokens, **params)


def test_a_model_without_maps_says_why():
    def require(*names):
        raise ValueError("needs a model that offers `pattern`; found that this does not: mixers; choose another model.")

    model = SimpleNamespace(config=SimpleNamespace(d_vocab=300, n_ctx=64, n_layers=3, n_heads=4), require=require)
    with pytest.raises(ValueError, match="does not: mixers"):
        run_attention(model, PROMPT)


def test_stopped_in_the_middle_it_leaves_nothing(tiny, monkeypatch):
    model, calls = tiny("llama").model, []

    def interrupt():
        calls.append(1)
        if len(calls) == 2:
            raise Cancelled

    monkeypatch.setattr(model, "interrupt", interrupt)
    with pytest.raises(Cancelled):
        run_attention(model, PROMPT, layer=0, head=0)
    assert model.hook_count() == 0
