"""Every family of tests/tiny.py against plain transformers, and its capabilities against the table."""

import pytest
import torch

from tests.tiny import FAMILIES, PROMPT

EVERY = pytest.mark.parametrize("family", FAMILIES)
IDS = torch.tensor([PROMPT])


@EVERY
def test_logits_are_those_of_plain_transformers(tiny, family):
    expected = tiny(family).plain(IDS).logits
    model = tiny(family).model
    assert torch.allclose(model.forward(PROMPT), expected, atol=1e-4)
    assert torch.allclose(
        model.forward(IDS.expand(2, -1), last_only=True), expected[:, -1:].expand(2, -1, -1), atol=1e-4
    )


@EVERY
def test_stream_before_each_block_is_that_of_plain_transformers(tiny, family):
    expected = tiny(family).plain(IDS, output_hidden_states=True).hidden_states[:-1]  # the last is after the norm
    resid = tiny(family).model.capture_calls(PROMPT).resid
    assert len(resid) == len(expected) + 1
    for depth, stream in enumerate(expected):
        assert torch.allclose(resid[depth], stream, atol=1e-4), depth


@EVERY
def test_each_block_only_adds(tiny, family):
    model, calls, parts = tiny(family).model, tiny(family).model.capture_calls(PROMPT), {}
    points = ("resid_mid", "attn_out", "mlp_out")
    names = {model.hook_name(p, i): (p, i) for p in points for i in range(model.config.n_layers)}
    names = {name: place for name, place in names.items() if model.has_hook(name)}
    with model.hooks(*((name, lambda t, hook, place=place: parts.update({place: t})) for name, place in names.items())):
        model.forward(PROMPT)
    for layer in range(model.config.n_layers):
        before, after = calls.resid[layer], calls.resid[layer + 1]
        attention, mlp = parts["attn_out", layer], parts["mlp_out", layer]
        assert torch.allclose(before + attention + mlp, after, atol=1e-5)
        assert attention.abs().max() > 0.01 and mlp.abs().max() > 0.01  # the sum would hold for zeros too
        if not model.capabilities["resid_mid"]:
            assert torch.allclose(parts["resid_mid", layer], before + attention, atol=1e-5)


@EVERY
def test_readout_of_the_last_stream_is_the_logits(tiny, family):
    model = tiny(family).model
    calls = model.capture_calls(PROMPT)
    assert torch.allclose(model.readout(calls.resid[-1]), tiny(family).plain(IDS).logits, atol=1e-4)
    one = model.readout(calls.resid[-1][0, 3])  # a single vector, as a lens cell or a steering vector is
    assert torch.allclose(one, calls.logits[0, 3], atol=1e-4)


def test_softcap_matters_in_this_table(tiny):
    """Without it, `readout` of the Gemma 2 row would be wrong by far more than the tolerance above."""
    model = tiny("gemma2").model
    stream = model.capture_calls(PROMPT).resid[-1]
    plain = tiny("gemma2").plain
    bare = plain.lm_head(plain.model.norm(stream))
    assert (bare - model.readout(stream)).abs().max() > 0.5
    assert torch.allclose(2.0 * torch.tanh(bare / 2.0), model.readout(stream), atol=1e-5)


@EVERY
@pytest.mark.parametrize("batch", [1, 3])
def test_replayed_blocks_give_the_model_output(tiny, family, batch):
    """Another stream in every row: rows must not mix, and row 0 is the model's own."""
    model = tiny(family).model
    calls = model.capture_calls(PROMPT)
    rows = torch.cat([calls.resid[0] * factor for factor in (1.0, 0.5, 2.0)[:batch]])
    for layer in range(model.config.n_layers):
        rows = model.run_block(layer, rows, calls)
    logits = model.readout(rows)
    assert torch.allclose(logits[:1], tiny(family).plain(IDS).logits, atol=1e-4)
    for row, factor in enumerate((1.0, 0.5, 2.0)[:batch]):
        name = model.hook_name("resid_pre", 0)
        with model.hooks((name, lambda t, hook, factor=factor: factor * t)):
            assert torch.allclose(logits[row], model.forward(PROMPT)[0], atol=1e-4), row


@EVERY
def test_cache_gives_the_same_logits(tiny, family):
    model = tiny(family).model
    expected = tiny(family).plain(IDS).logits
    logits, cache = model.extend(PROMPT[:7], last_only=False)
    pieces = [logits]
    for token in PROMPT[7:]:
        logits, cache = model.extend((token,), cache)
        pieces.append(logits)
    assert torch.allclose(torch.cat(pieces, dim=1), expected, atol=1e-4)


@EVERY
def test_capabilities_are_exactly_those_of_the_table(tiny, family):
    found = {name: reason for name, reason in tiny(family).model.capabilities.items() if reason}
    assert set(found) == set(FAMILIES[family].missing)
    for name, word in FAMILIES[family].missing.items():
        assert word in found[name]


@EVERY
def test_self_checks_pass(tiny, family):
    checks = tiny(family).model.checks
    assert [c.name for c in checks] == ["lens", "rows", "hook", "replay", "cache"]
    assert all(c.passed for c in checks), [c.sentence for c in checks if not c.passed]
    assert ("sink" in checks[1].sentence) == ("rows_sum_to_one" in FAMILIES[family].missing)


@EVERY
def test_config_says_what_the_model_is(tiny, family):
    pair = tiny(family)
    found = pair.model.config
    assert {name: getattr(found, name) for name in FAMILIES[family].facts} == FAMILIES[family].facts
    assert found.n_parameters == sum(p.numel() for p in pair.plain.parameters())
    assert (found.d_model, found.n_heads, found.d_vocab) == (32, 4, pair.plain.lm_head.weight.shape[0])
    assert found.tied == (pair.plain.lm_head.weight is pair.plain.get_input_embeddings().weight)


@EVERY
def test_a_real_edit_agrees_with_the_capability(tiny, family):
    """Zeroing every attention map by hook changes the logits exactly where the table says maps can be edited."""
    model = tiny(family).model
    pairs = [(model.hook_name("pattern", i), lambda t, hook: 0 * t) for i in range(model.config.n_layers)]
    before = model.forward(PROMPT)
    if "pattern_writable" in FAMILIES[family].missing:
        with model.hooks(*pairs), pytest.warns(UserWarning, match="discarded"):
            after = model.forward(PROMPT)
        assert torch.equal(before, after)
    else:
        with model.hooks(*pairs):
            after = model.forward(PROMPT)
        assert (before - after).abs().max() > 0.1
