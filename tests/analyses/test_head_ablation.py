"""The sweep and the check against one forward pass per head, by our hooks and by plain transformers' own."""

import copy

import numpy as np
import pytest
import torch

from analyses._repeated import repeated_tokens
from analyses._steps import Cancelled
from analyses.head_ablation import mean_outputs, run_head_ablation, silencing
from analyses.head_check import draw_controls, run_head_check, without_on_copies
from tests.tiny import FAMILIES, PROMPT

EVERY = pytest.mark.parametrize("family", FAMILIES)
IDS = torch.tensor([PROMPT])
INDUCTION = ["L18H6", "L17H3", "L17H4", "L17H5"]


def losses(logits, ids=IDS):
    return -logits.float().log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0]


def plain_logits(pair, heads, ids=IDS, value=0.0):
    """Plain transformers with heads [(layer, head), ...] of width 8 silenced, by a hook of torch's on the output matrix."""
    handles = []
    for layer, head in heads:

        def silence(module, args, head=head):
            z = args[0].clone()
            z[..., 8 * head : 8 * head + 8] = value
            return (z, *args[1:])

        block = (
            pair.plain.transformer.h[layer] if hasattr(pair.plain, "transformer") else pair.plain.model.layers[layer]
        )
        module = block.attn.c_proj if hasattr(block, "attn") else block.self_attn.o_proj
        handles.append(module.register_forward_pre_hook(silence))
    try:
        return pair.plain(ids).logits
    finally:
        for handle in handles:
            handle.remove()


@EVERY
def test_a_cell_is_one_forward_pass_with_that_head_silenced(tiny, family):
    model = tiny(family).model
    hooks = model.hook_count()  # OPT's blocks carry some of their own
    result = run_head_ablation(model, PROMPT, target=41)
    assert result.replayed and result.logit_change.shape == (model.config.n_layers, model.config.n_heads)
    assert result.baseline_loss_nats == pytest.approx(float(losses(tiny(family).plain(IDS).logits).mean()), abs=1e-4)
    for layer in range(model.config.n_layers):
        head = (layer + 1) % 4
        with torch.inference_mode(), model.hooks(*silencing(model, {layer: {None: head}})):
            logits = model.forward(PROMPT)
        change = float(losses(logits).mean()) - result.baseline_loss_nats
        assert result.loss_change_nats[layer, head] == pytest.approx(change, abs=1e-5)
        change = float(logits[0, -1, 41]) - result.baseline_logit
        assert result.logit_change[layer, head] == pytest.approx(change, abs=1e-5)
    assert np.abs(result.loss_change_nats).max() > 1e-3 and model.hook_count() == hooks


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_cells_are_those_of_plain_transformers(tiny, family):
    pair = tiny(family)
    result = run_head_ablation(pair.model, PROMPT)
    base = pair.plain(IDS).logits
    assert result.target_id == int(base[0, -1].argmax()) and result.baseline_logit == pytest.approx(
        float(base.max(-1)[0][0, -1]), abs=1e-5
    )
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        logits = plain_logits(pair, [(layer, head)])
        change = float(losses(logits).mean() - losses(base).mean())
        assert result.loss_change_nats[layer, head] == pytest.approx(change, abs=1e-5)
        probability = (logits.log_softmax(-1) - base.log_softmax(-1))[0, -1, result.target_id]
        assert result.log_probability_change[layer, head] == pytest.approx(float(probability), abs=1e-5)


def test_mean_is_the_heads_mean_over_the_repeated_tokens(tiny):
    """By plain transformers: the mean of what the output matrix reads, without the first position."""
    pair, seen = tiny("llama"), []
    text = repeated_tokens(pair.model).ids
    handle = pair.plain.model.layers[1].self_attn.o_proj.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    pair.plain(text)
    handle.remove()
    mean = seen[0][:, 1:].mean((0, 1))[16:24]
    with torch.inference_mode():
        assert torch.allclose(mean_outputs(pair.model)[1, 2], mean, atol=1e-6)
    result = run_head_ablation(pair.model, PROMPT, how="mean")
    change = losses(plain_logits(pair, [(1, 2)], value=mean)).mean() - losses(pair.plain(IDS).logits).mean()
    assert result.loss_change_nats[1, 2] == pytest.approx(float(change), abs=1e-5)


def test_groups_and_whole_forward_passes_give_the_same_numbers(tiny, monkeypatch):
    model = tiny("llama").model
    expected = run_head_ablation(model, PROMPT, how="mean")
    monkeypatch.setattr("analyses._variants.GROUP_TOKENS", 3 * len(PROMPT))
    without = copy.copy(model)
    without.capabilities = model.capabilities | {"replay": "not here"}
    for result in (run_head_ablation(model, PROMPT, how="mean"), run_head_ablation(without, PROMPT, how="mean")):
        np.testing.assert_allclose(result.loss_change_nats, expected.loss_change_nats, atol=1e-5)
        np.testing.assert_allclose(result.logit_change, expected.logit_change, atol=1e-5)
    assert not result.replayed


def test_the_last_position_alone_gives_the_same_logits_and_no_loss(tiny):
    model = tiny("llama").model
    everything, last = run_head_ablation(model, PROMPT), run_head_ablation(model, PROMPT, positions="last")
    np.testing.assert_allclose(last.logit_change, everything.logit_change, atol=1e-6)
    assert last.loss_change_nats is None and last.baseline_loss_nats is None
    assert "loss_change_nats" not in last.to_frame() and everything.to_frame()["name"].tolist()[5] == "L1H1"
    assert run_head_ablation(model, PROMPT[:1], positions="last").logit_change.shape == (3, 4)


@pytest.mark.parametrize(
    ("tokens", "params", "sentence"),
    [
        (PROMPT[:1], {}, "needs at least 2 tokens; found 1"),
        (PROMPT, {"how": "noise"}, "needs zero or mean; found 'noise'"),
        (PROMPT, {"positions": "first"}, "needs all or last; found 'first'"),
        (PROMPT, {"target": 300}, "needs a target id from 0 to 299; found 300"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tiny, tokens, params, sentence, monkeypatch):
    model = tiny("llama").model
    monkeypatch.setattr(model, "capture_calls", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    with pytest.raises(ValueError, match=sentence):
        run_head_ablation(model, tokens, **params)


def test_stopped_in_the_middle_it_leaves_nothing(tiny, monkeypatch):
    model, calls = tiny("llama").model, []

    def interrupt():
        calls.append(1)
        if len(calls) == 5:  # in the sweep: the base pass takes three
            raise Cancelled

    before = model.forward(PROMPT)
    monkeypatch.setattr(model, "interrupt", interrupt)
    with pytest.raises(Cancelled):
        run_head_ablation(model, PROMPT)
    monkeypatch.undo()
    assert model.hook_count() == 0 and torch.equal(model.forward(PROMPT), before)


# ---- several heads together, against controls ----


def test_figures_of_the_check_are_those_of_plain_transformers(tiny):
    pair = tiny("llama")
    heads = [(1, 2), (2, 0), (1, 0)]
    result = run_head_check(pair.model, PROMPT, heads=["L1H2", [2, 0], "L1H0"], draws=2, seed=3, top_k=3)
    assert result.heads == ("L1H2", "L2H0", "L1H0")
    text = repeated_tokens(pair.model, seed=3)
    groups = [[], heads, *([tuple(map(int, name[1:].split("H"))) for name in draw] for draw in result.controls)]
    found = [result.baseline_second_copy, result.second_copy, *result.control_second_copy]
    prompts = [result.baseline_prompt, result.prompt, *result.control_prompt]
    for group, second, prompt in zip(groups, found, prompts, strict=True):
        expected = losses(plain_logits(pair, group, text.ids), text.ids)
        assert second == pytest.approx(float(expected[:, text.second :].mean()), abs=1e-4)
        assert prompt == pytest.approx(float(losses(plain_logits(pair, group)).mean()), abs=1e-4)
    after = plain_logits(pair, heads)[0, -1].log_softmax(-1)
    assert result.top_ids.tolist() == after.topk(3).indices.tolist()
    np.testing.assert_allclose(result.top_log_probability, after.topk(3).values.numpy(), atol=1e-4)
    assert result.baseline_top_ids[0] == result.target_id
    frame = result.to_frame()
    assert (
        frame["kind"].tolist() == ["baseline", "chosen", "control", "control"]
        and frame["silenced"][1] == "L1H2 L2H0 L1H0"
    )


def test_controls_are_other_heads_of_the_same_layers():
    chosen = ((4, 0), (4, 1), (7, 3))
    draws, reason = draw_controls(chosen, frozenset({(7, 2)}), 9, 5, seed=0)
    assert len(set(draws)) == 5 and not reason
    for draw in draws:
        assert [layer for layer, _ in draw] == [4, 4, 7] and len(set(draw)) == 3
        assert not {*draw} & {*chosen, (7, 2)}
    assert draws == draw_controls(chosen, frozenset({(7, 2)}), 9, 5, seed=0)[0]
    few, reason = draw_controls(((0, 0),), frozenset(), 3, 4, seed=0)
    assert sorted(few) == [((0, 1),), ((0, 2),)] and "only 2 different groups" in reason
    none, reason = draw_controls(((0, 0), (0, 1)), frozenset(), 3, 4, seed=0)
    assert none == [] and reason == "layer 0 has 1 other heads and 2 are needed"


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"heads": []}, "needs at least one head; found none"),
        ({"heads": "L0H1"}, "needs a list of heads; found the text 'L0H1'"),
        ({"heads": ["0.1"]}, "needs heads such as L18H6 or .18, 6.; found '0.1'"),
        ({"heads": ["L0H4"]}, "needs a head from L0H0 to L2H3; found L0H4"),
        ({"heads": ["L0H1", [0, 1]]}, "needs each head once; found L0H1 twice"),
        ({"heads": ["L0H1"], "draws": 21}, "needs 0 to 20 draws; found 21"),
        ({"heads": ["L0H1"], "how": "half"}, "needs zero or mean; found 'half'"),
        ({"heads": ["L0H1"], "top_k": 0}, "needs a top-k from 1 to 300; found 0"),
    ],
)
def test_a_check_is_refused_before_a_forward_pass_is_paid_for(tiny, params, sentence, monkeypatch):
    model = tiny("llama").model
    monkeypatch.setattr(model, "forward", lambda *a, **k: pytest.fail("a forward pass was paid for"))
    with pytest.raises(ValueError, match=sentence):
        run_head_check(model, PROMPT, **params)


@pytest.mark.embedded
def test_induction_heads_of_the_embedded_model_matter_and_random_ones_do_not(smol):
    """Plain transformers, SmolLM2-135M-Instruct dequantised: the second copy without the heads; the first stays at 14.2."""
    result = run_head_check(smol, (504, 3575, 282), heads=INDUCTION, draws=1, exclude=["L18H7"])
    assert result.baseline_second_copy == pytest.approx(2.387, abs=0.02)
    assert result.second_copy == pytest.approx(8.125, abs=0.02)
    assert result.first_copy == pytest.approx(14.214, abs=0.02)
    assert (result.control_second_copy < 3.5).all()
    # The previous-token head that feeds them costs more, alone, than the best of them (4.247).
    with torch.inference_mode():
        _, second = without_on_copies(smol, repeated_tokens(smol), ((16, 0),))
    assert second == pytest.approx(8.373, abs=0.02)
