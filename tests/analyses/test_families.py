"""Every family of tests/tiny.py against plain transformers, and its capabilities against the table."""

import pytest
import torch

from tests.tiny import CAPABILITIES, FAMILIES, PROMPT, Family

EVERY = pytest.mark.parametrize("family", FAMILIES)
IDS = torch.tensor([PROMPT])
PROMISED = (  # the families the README may count on
    "gpt2 gpt_neox gpt_neo gptj opt bloom llama mistral mixtral qwen2 qwen3 gemma gemma2 gemma3 phi olmo2 falcon "
    "gpt_oss granite cohere"
).split()


def reported(model, point):
    """What a place of every layer reports on the prompt, by layer; layers that report nothing are left out."""
    found = {}
    names = {model.hook_name(point, i): i for i in range(model.config.n_layers)}
    pairs = [(n, lambda t, hook, i=i: found.update({i: t})) for n, i in names.items() if model.has_hook(n)]
    with model.hooks(*pairs):
        model.forward(PROMPT)
    return found


def test_no_family_was_dropped_from_the_table():
    assert set(PROMISED) <= set(FAMILIES)
    assert all(set(row.missing) <= set(CAPABILITIES) for row in FAMILIES.values())


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


@EVERY
def test_softcap_and_scale_are_part_of_the_readout_where_the_family_has_one(tiny, family):
    """Against the unembedded, normed stream of plain transformers, changed by the formula in the table."""
    model, plain = tiny(family).model, tiny(family).plain
    normed = plain(IDS, output_hidden_states=True).hidden_states[-1]  # of transformers' streams only the last is normed
    bare = plain.get_output_embeddings()(normed)
    read = model.readout(model.capture_calls(PROMPT).resid[-1])
    assert torch.allclose(FAMILIES[family].output(bare), read, atol=1e-4)
    changed = FAMILIES[family].output is not Family.output
    assert changed == (family in {"gemma2", "granite", "cohere"})
    assert ((bare - read).abs().max() > 0.5) == changed  # far above the tolerance: a forgotten cap would be seen


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
    capabilities = tiny(family).model.capabilities
    assert set(capabilities) == set(CAPABILITIES)  # not even asked for is lost as well
    found = {name: reason for name, reason in capabilities.items() if reason}
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
    assert (found.d_model, found.n_heads, found.d_vocab) == (32, 4, pair.plain.get_output_embeddings().weight.shape[0])
    assert found.tied == (pair.plain.get_output_embeddings().weight is pair.plain.get_input_embeddings().weight)


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


# Each capability below is shown by something the probe does not compute.


@EVERY
def test_attention_maps_are_those_of_plain_transformers(tiny, family):
    expected = tiny(family).plain(IDS, output_attentions=True).attentions
    found = reported(tiny(family).model, "pattern")
    assert len(found) == len(expected)
    for layer, pattern in enumerate(expected):
        assert torch.allclose(found[layer], pattern, atol=1e-5), layer


@EVERY
def test_rows_sum_to_one_exactly_where_there_are_no_sinks(tiny, family):
    sums = torch.stack([p.sum(-1) for p in reported(tiny(family).model, "pattern").values()])
    if "rows_sum_to_one" in FAMILIES[family].missing:
        assert (sums < 0.95).any() and (sums < 1 + 1e-5).all()
    else:
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)


@EVERY
def test_half_way_stream_exists_exactly_where_attention_comes_before_the_mlp(tiny, family):
    """The MLP of a family whose two parts stand side by side does not see what attention adds."""
    model = tiny(family).model
    before = reported(model, "mlp_out")[0]
    with model.hooks((model.hook_name("attn_out", 0), lambda t, hook: t + torch.linspace(-1, 1, 32))):
        moved = (reported(model, "mlp_out")[0] - before).abs().max()
    assert (moved > 0.01) == ("resid_mid" not in FAMILIES[family].missing)
    assert bool(reported(model, "resid_mid")) == ("resid_mid" not in FAMILIES[family].missing)


@EVERY
def test_rotated_queries_and_keys_make_the_scores_exactly_where_they_are_offered(tiny, family):
    """Score = rotated query times rotated key, times one factor per model (and a soft cap of 50 in Gemma 2)."""
    model = tiny(family).model
    queries, keys = reported(model, "rotated_query"), reported(model, "rotated_key")
    if "rotary" in FAMILIES[family].missing:
        assert not queries and not keys
        return
    scores = reported(model, "scores")
    for layer in range(model.config.n_layers):
        shared = model.config.n_heads // model.config.n_kv_heads
        wide = keys[layer].repeat_interleave(shared, dim=2)
        products = torch.einsum("bqhd,bkhd->bhqk", queries[layer], wide)
        seen = scores[layer] > -1e30  # the rest is masked
        factor = (products[seen] * scores[layer][seen]).sum() / products[seen].square().sum()
        assert torch.allclose(factor * products[seen], scores[layer][seen], atol=0.01 * scores[layer][seen].abs().max())


@EVERY
def test_head_outputs_are_what_the_output_matrix_reads(tiny, family):
    """With every head silent, attention adds the same to all positions: nothing, or its bias."""
    model = tiny(family).model
    pairs = [(model.hook_name("head_output", i), lambda t, hook: 0 * t) for i in range(model.config.n_layers)]
    with model.hooks(*pairs):
        added = reported(model, "attn_out")
    assert len(added) == model.config.n_layers
    for layer, output in added.items():
        assert torch.allclose(output, output[:, :1].expand_as(output), atol=1e-6), layer
