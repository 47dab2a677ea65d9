"""Deleting is leaving an addend out: by replay, by hooks, and by transformers with a shorter list of layers."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses import _variants
from analyses._config import _fingerprint
from analyses._damage import Yardstick, no_damage_yet
from analyses._steps import Cancelled, Profile
from analyses.layer_deletion import (
    cost_layer_deletion,
    deletion_hooks,
    layer_deletion_steps,
    run_layer_deletion,
)
from tests.tiny import FAMILIES, PROMPT

EVERY = pytest.mark.parametrize("family", FAMILIES)
IDS = torch.tensor([PROMPT])
# Nothing, a block, the first three, single addends, and both kinds together.
VARIANTS = [[], [1], [0, 1, 2], ["0.attention"], ["1.mlp"], ["0.mlp", (1, "attention"), 2]]
LAYERS = ("model.layers", "transformer.h", "gpt_neox.layers", "model.decoder.layers")


def shortened(plain, *gone):
    """A copy of a transformers model whose list of layers lacks some; masks are chosen by place in the list, so those too."""
    model = copy.deepcopy(plain)
    path = next(p for p in LAYERS if all(hasattr_path(model, p, end) for end in range(1, len(p.split(".")) + 1)))
    parent, _, name = path.rpartition(".")
    layers = model.get_submodule(path)
    kept = [i for i in range(len(layers)) if i not in gone]
    setattr(model.get_submodule(parent), name, torch.nn.ModuleList([layers[i] for i in kept]))
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [model.config.layer_types[i] for i in kept]
    model.config.num_hidden_layers = len(kept)
    return model


def hasattr_path(model, path, end):
    names = path.split(".")[:end]
    return all(hasattr(model.get_submodule(".".join(names[:i])), name) for i, name in enumerate(names))


def losses(logits):
    return -logits[:-1].log_softmax(-1).gather(-1, IDS[0, 1:, None])[:, 0]


def kl(whole, changed):
    p, q = whole.log_softmax(-1), changed.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


@EVERY
def test_replay_equals_one_hooked_forward_pass_per_variant(tiny, family):
    model = tiny(family).model
    replayed = run_layer_deletion(model, PROMPT, deleted=VARIANTS, method="replay", top_k=3)
    hooked = run_layer_deletion(model, PROMPT, deleted=VARIANTS, method="forward", top_k=3)
    for name in ("position_loss_nats", "loss_nats", "kl_nats", "top1_agreement", "top_log_probability"):
        np.testing.assert_allclose(getattr(replayed, name), getattr(hooked, name), atol=1e-4, err_msg=name)
    np.testing.assert_allclose(replayed.first_log_probability, hooked.first_log_probability, atol=1e-4)
    assert np.isfinite(replayed.position_loss_nats).all()
    assert (np.abs(replayed.position_loss_nats[1:] - replayed.baseline_position_loss_nats).max(1) > 1e-3).all()
    assert replayed.kl_nats[0] < 1e-6 and (replayed.kl_nats[1:] > 1e-4).all()


@EVERY
def test_a_deleted_block_is_transformers_with_a_shorter_list_of_layers(tiny, family):
    """First, last, several and all at once."""
    pair = tiny(family)
    deleted = [[0], [pair.model.config.n_layers - 1], [0, 2], list(range(pair.model.config.n_layers))]
    whole, found = pair.plain(IDS).logits[0], run_layer_deletion(pair.model, PROMPT, deleted=deleted, top_k=3)
    np.testing.assert_allclose(found.baseline_position_loss_nats, losses(whole), atol=1e-4)
    for index, gone in enumerate(deleted):
        logits = shortened(pair.plain, *gone)(IDS, use_cache=False).logits[0]
        np.testing.assert_allclose(found.position_loss_nats[index], losses(logits), atol=1e-4)
        assert found.kl_nats[index] == pytest.approx(kl(whole, logits)[:-1].mean().item(), abs=1e-4)
        agree = (whole.argmax(-1) == logits.argmax(-1))[:-1].float().mean().item()
        assert found.top1_agreement[index] == pytest.approx(agree, abs=1e-6)
        top = logits[-1].log_softmax(-1).topk(3)
        np.testing.assert_allclose(found.top_log_probability[index], top.values, atol=1e-4)
        assert found.top_ids[index].tolist() == top.indices.tolist()
        expected = logits[-1].log_softmax(-1)[whole[-1].topk(3).indices]
        np.testing.assert_allclose(found.first_log_probability[index], expected, atol=1e-4)


# How these families spell the matrices (and biases) that write attention and MLP into the stream.
OUTPUT = {
    "llama": ("self_attn.o_proj", "mlp.down_proj"),
    "gemma2": ("self_attn.o_proj", "mlp.down_proj"),  # a norm after each, which makes nothing of nothing
    "olmo2": ("self_attn.o_proj", "mlp.down_proj"),
    "gpt2": ("attn.c_proj", "mlp.c_proj"),
    "gptj": ("attn.out_proj", "mlp.fc_out"),  # side by side
    "gpt_neox": ("attention.dense", "mlp.dense_4h_to_h"),
    "opt": ("self_attn.out_proj", "fc2"),
}


@pytest.mark.parametrize("family", OUTPUT)
@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_a_deleted_part_is_transformers_with_its_output_matrix_at_zero(tiny, family, part):
    pair, plain = tiny(family), copy.deepcopy(tiny(family).plain)
    place = f".1.{OUTPUT[family][part == 'mlp']}."
    zeroed = [p.zero_() for name, p in plain.named_parameters() if place in name]
    assert zeroed
    found = run_layer_deletion(pair.model, PROMPT, deleted=[[f"1.{part}"]])
    np.testing.assert_allclose(found.position_loss_nats[0], losses(plain(IDS).logits[0]), atol=1e-4)


def test_both_parts_are_the_block_and_nothing_is_the_model(tiny):
    model = tiny("llama").model
    both = run_layer_deletion(model, PROMPT, deleted=[["1.attention", "1.mlp"], [2, 0]])
    assert both.deleted == ((1,), (0, 2))
    np.testing.assert_allclose(both.loss_nats[0], run_layer_deletion(model, PROMPT, deleted=[[1]]).loss_nats[0])
    nothing = run_layer_deletion(model, PROMPT, deleted=[[]])
    assert nothing.deleted == ((),) and nothing.top1_agreement[0] == 1
    assert nothing.loss_nats[0] == pytest.approx(nothing.baseline_loss_nats, abs=1e-6)
    np.testing.assert_allclose(nothing.top_log_probability[0], nothing.baseline_top_log_probability, atol=1e-5)


def test_as_a_pipeline_nothing_is_left_but_a_uniform_guess(tiny):
    """In Llama a stream of zeros stays zero: no biases, and norms only rescale. Leaving the addend out loses far less."""
    model = tiny("llama").model
    wrong = run_layer_deletion(model, PROMPT, deleted=[[0], [1], [2], [0, 2]], wrong=True)
    np.testing.assert_allclose(wrong.loss_nats, np.log(300), atol=1e-5)
    assert wrong.uniform_loss_nats == pytest.approx(np.log(300))
    assert wrong.wrong and wrong.to_frame()["deleted"].tolist() == ["0", "1", "2", "0 2"]
    right = run_layer_deletion(model, PROMPT)
    assert (np.abs(right.loss_nats - np.log(300)) > 1e-3).all()


@pytest.mark.parametrize("family", ["gpt2", "bloom", "gemma2", "gptj"])
def test_the_pipeline_contrast_is_the_same_by_hooks(tiny, family):
    model, variants = tiny(family).model, [[0], [2], [0, 1]]
    a, b = (run_layer_deletion(model, PROMPT, deleted=variants, wrong=True, method=m) for m in ("replay", "forward"))
    np.testing.assert_allclose(a.position_loss_nats, b.position_loss_nats, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gptj", "bloom"])
@pytest.mark.parametrize("deleted", [[1], ["0.attention", "2.mlp"]])
def test_generating_without_is_the_same_with_and_without_the_cache(tiny, family, deleted):
    """Tokens, and the logits behind them: tokens of a tiny model can agree by luck."""
    model = tiny(family).model
    with model.hooks(*deletion_hooks(model, deleted)):
        cached = model.generate_ids(PROMPT, 4)
        assert model.generate_ids(PROMPT, 4, use_cache=False) == cached
        first, cache = model.extend(PROMPT, last_only=False)
        second, _ = model.extend(cached, cache, last_only=False)
        whole = model.forward(PROMPT + cached)
    assert torch.allclose(torch.cat([first, second], dim=1), whole, atol=1e-4)
    assert (model.forward(PROMPT + cached) - whole).abs().max() > 0.01
    if deleted == [1]:
        plain = shortened(tiny(family).plain, 1)(torch.tensor([PROMPT + cached]), use_cache=False).logits
        assert torch.allclose(whole, plain, atol=1e-4)


def test_the_last_position_alone_has_no_loss_but_the_same_predictions(tiny):
    model = tiny("llama").model
    last = run_layer_deletion(model, PROMPT, deleted=[[1], [2]], positions="last", top_k=4)
    assert np.isnan(last.loss_nats).all() and np.isnan(last.baseline_loss_nats) and not last.position_loss_nats.size
    every = run_layer_deletion(model, PROMPT, deleted=[[1], [2]], top_k=4)
    assert last.top_ids.tolist() == every.top_ids.tolist()
    for index, gone in enumerate((1, 2)):
        logits = shortened(tiny("llama").plain, gone)(IDS, use_cache=False).logits[0, -1]
        assert last.kl_nats[index] == pytest.approx(kl(tiny("llama").plain(IDS).logits[0, -1], logits).item(), abs=1e-4)
    assert run_layer_deletion(model, PROMPT[:1], deleted=[[0]], positions="last").kl_nats[0] > 0


def test_without_the_comparison_loss_and_predictions_are_the_same(tiny):
    model = tiny("gemma2").model
    alone = run_layer_deletion(model, PROMPT, deleted=VARIANTS, compare=False, top_k=3)
    full = run_layer_deletion(model, PROMPT, deleted=VARIANTS, top_k=3)
    np.testing.assert_allclose(alone.position_loss_nats, full.position_loss_nats, atol=1e-4)
    np.testing.assert_allclose(alone.top_log_probability, full.top_log_probability, atol=1e-4)
    assert np.isnan(alone.kl_nats).all() and np.isnan(alone.baseline_loss_nats)
    last = run_layer_deletion(model, PROMPT, deleted=[[1]], compare=False, positions="last", top_k=3)
    np.testing.assert_allclose(last.top_log_probability[0], full.top_log_probability[1], atol=1e-4)


def test_batches_and_groups_do_not_change_the_numbers(tiny, monkeypatch):
    model = tiny("mistral").model
    at_once = run_layer_deletion(model, PROMPT, deleted=VARIANTS)
    for rows_of_a_batch, rows_of_a_group in ((1, 256), (2, 3), (2, 1)):
        monkeypatch.setattr(_variants, "GROUP_TOKENS", rows_of_a_batch * len(PROMPT))
        monkeypatch.setattr(_variants, "HELD_ROWS", rows_of_a_group)
        found = run_layer_deletion(model, PROMPT, deleted=VARIANTS)
        np.testing.assert_allclose(found.kl_nats, at_once.kl_nats, atol=1e-5)


def test_what_is_held_is_bounded_in_bytes_and_in_tokens():
    assert _variants.rows_at_once(16, 9, 576) == 512 // 16 and _variants.rows_in_group(16, 576) == 256
    long = _variants.rows_at_once(512, 9, 576)
    assert long == 1 and long * _variants.row_bytes(512, 9, 576) <= _variants.GROUP_BYTES
    assert _variants.rows_in_group(512, 576) * 512 * 576 * 4 <= _variants.HELD_BYTES
    assert _variants.rows_at_once(8192, 9, 576) == _variants.rows_in_group(8192, 4096) == 1


def test_where_single_blocks_cannot_be_replayed_every_variant_has_a_pass_of_its_own(tiny, monkeypatch):
    model = tiny("llama").model
    expected = run_layer_deletion(model, PROMPT, deleted=VARIANTS)
    monkeypatch.setattr(model, "capabilities", {**model.capabilities, "replay": "tried and off"})
    monkeypatch.setattr(model, "run_block", None)
    found = run_layer_deletion(model, PROMPT, deleted=VARIANTS)
    np.testing.assert_allclose(found.position_loss_nats, expected.position_loss_nats, atol=1e-4)
    with pytest.raises(ValueError, match="needs a model that offers `replay`; .*tried and off"):
        run_layer_deletion(model, PROMPT, method="replay")


def test_no_hook_is_open_between_steps_and_none_is_left_after_a_cancel(tiny):
    model = tiny("llama").model
    hf, before = model._bridge.original_model, model.forward(PROMPT)
    fingerprint = _fingerprint(hf, "model", None)
    for method in ("replay", "forward"):
        asked = 0
        for progress in layer_deletion_steps(model, PROMPT, deleted=VARIANTS, method=method):
            assert model.hook_count() == 0 and 0 <= progress.done <= progress.total
            asked += 1
        assert asked > 3
        asked = 0

        def stop():
            nonlocal asked
            asked += 1
            if asked == 6:
                raise Cancelled

        model.interrupt = stop
        try:
            with pytest.raises(Cancelled):
                run_layer_deletion(model, PROMPT, deleted=[["1.mlp"], ["1.attention"]], method=method)
        finally:
            model.interrupt = lambda: None
        assert model.hook_count() == 0
    assert torch.equal(model.forward(PROMPT), before) and _fingerprint(hf, "model", None) == fingerprint


def test_divergence_loss_and_agreement_worked_by_hand():
    """A vocabulary of three and a readout that does nothing: the streams are the logits."""
    stub = SimpleNamespace(config=SimpleNamespace(d_vocab=3), readout=lambda x: x, check=lambda: None)
    whole = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).log() + 7
    changed = torch.tensor([[[0.25, 0.25, 0.5], [0.1, 0.1, 0.8]]]).log() - 3
    yardstick, damage = Yardstick(stub, whole, (0, 1), "all", 2), no_damage_yet(1, 1, 2)
    yardstick.read(damage, [0], changed)
    assert yardstick.loss_nats == pytest.approx(np.log(4)) and damage.loss_nats[0] == pytest.approx(np.log(4))
    assert damage.kl_nats[0] == pytest.approx(0.25 * np.log(2), abs=1e-6) and damage.top1_agreement[0] == 0
    assert yardstick.top_ids[0] == 1 and damage.top_ids[0, 0] == 2
    np.testing.assert_allclose(np.exp(damage.first_log_probability[0, 0]), 0.1, rtol=1e-5)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"deleted": [[3]]}, "needs layers from 0 to 2; found 3; layers count"),
        ({"deleted": [[-1]]}, "needs layers from 0 to 2; found -1; layers count"),
        ({"deleted": [["1.norm"]]}, "needs layers, or names such as .*; found '1.norm'; correct"),
        ({"deleted": [["x.mlp"]]}, "needs layers, or names .*; found 'x.mlp'; correct"),
        ({"deleted": [[True]]}, "needs layers, or names .*; found True; correct"),
        ({"deleted": [[1.0]]}, "needs layers, or names .*; found 1.0; correct"),
        ({"deleted": [[1, 1]]}, "needs each addend once; found 1.attention twice; 1 alone"),
        ({"deleted": [[1, "1.mlp"]]}, "needs each addend once; found 1.mlp twice; 1 alone"),
        ({"deleted": [[1], ["1.mlp", "1.attention"]]}, r"needs each variant once; found \[1\] twice; leave"),
        ({"deleted": [1, 2]}, "needs a list of what to delete; found 1; write"),
        ({"deleted": "1"}, "needs a list of variants; found '1'; write"),
        ({"deleted": []}, "needs at least one variant; found none; write"),
        ({"deleted": [["1.mlp"]], "wrong": True}, "needs whole blocks for the pipeline contrast; found 1.mlp; name"),
        ({"positions": "first"}, "needs positions 'all' or 'last'; found 'first'; choose"),
        ({"method": "guess"}, "needs one of auto, replay, forward; found 'guess'; leave"),
        ({"top_k": 0}, "needs a top-k from 1 to 300; found 0; choose"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tiny, monkeypatch, params, sentence):
    model = tiny("llama").model
    monkeypatch.setattr(model, "capture_calls", None)
    with pytest.raises(ValueError, match=sentence):
        run_layer_deletion(model, PROMPT, **params)
    if "method" not in params and "top_k" not in params and "positions" not in params and not params.get("wrong"):
        with pytest.raises(ValueError, match=sentence):
            cost_layer_deletion(Profile(1.0, 1.0, 1.0, 1.0, 3, 1, 1, 9, 99), 9, params)
