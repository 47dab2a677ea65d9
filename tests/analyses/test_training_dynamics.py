"""The numbers of the training's story: the same from plain transformers, the same as the shipped log, and causes that hold."""

import numpy as np
import pytest

from analyses import run_training_causes, run_training_dynamics, run_training_view
from analyses._checkpoints import folder_of
from analyses._steps import Cancelled
from analyses._tiny import held_out_windows, open_tiny, repeated_rows
from analyses.training_causes import PATHS
from analyses.training_dynamics import MOST_WINDOWS, paired_difference, training_dynamics_steps
from analyses.training_log import LOGS, load_training_log

N = 127  # tokens of one copy
TEXT = "frob(zork, 1)\nfrob(zork"


@pytest.fixture(scope="module")
def log():
    return load_training_log()


@pytest.fixture(scope="module")
def causes():
    return run_training_causes()


@pytest.fixture(scope="module")
def plain():
    """The last checkpoint by transformers alone."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = folder_of("tiny-induction")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def plain_losses(model, ids):
    import torch
    from torch.nn.functional import cross_entropy

    with torch.inference_mode():
        logits = model(ids).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)


def second_copy(model):
    return float(plain_losses(model, repeated_rows().ids)[:, N + 1 :].mean())


@pytest.fixture
def hooked():
    """Handles that are removed at the end."""
    handles = []
    yield handles
    for handle in handles:
        handle.remove()


def zero_head(model, layer, head, handles):
    """Take a head out of the plain model: zeros before the output matrix."""

    def before(module, arguments):
        z = arguments[0].clone()
        z[..., 32 * head : 32 * (head + 1)] = 0
        return (z,)

    handles.append(model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(before))


def test_a_checkpoint_measures_what_plain_transformers_measures(plain):
    import torch

    found = run_training_dynamics(n_windows=8)
    windows = torch.from_numpy(held_out_windows()[np.linspace(0, 383, 8).round().astype(int)].astype(np.int64))
    losses = plain_losses(plain, windows).numpy()
    assert found.held_out_loss_nats == pytest.approx(losses.mean(), abs=1e-4)
    assert found.position_loss_nats == pytest.approx(losses.mean(0), abs=1e-3)
    icl = losses[:, 199:].mean(1) - losses[:, 39:60].mean(1)  # tokens 200 to 255, and 40 to 60
    assert found.icl_windows_nats == pytest.approx(icl, abs=1e-3)
    assert found.icl_error_nats == pytest.approx(icl.std(ddof=1) / 8**0.5, abs=1e-3)
    ids = repeated_rows().ids
    with torch.inference_mode():
        maps = torch.stack(plain(ids, output_attentions=True).attentions)
    induction = maps[..., N + 1 :, :].diagonal(offset=2, dim1=-2, dim2=-1).mean((1, -1))  # query i looks at i - (N - 1)
    previous = maps.diagonal(offset=-1, dim1=-2, dim2=-1).mean((1, -1))
    assert found.induction == pytest.approx(induction.numpy(), abs=1e-4)
    assert found.previous_token == pytest.approx(previous.numpy(), abs=1e-4)
    assert found.second_copy_loss_nats == pytest.approx(second_copy(plain), abs=1e-3)
    assert open_tiny("tiny-induction").hook_count() == 0


@pytest.mark.parametrize("step", [400, 1900])
@pytest.mark.parametrize("name", LOGS[:2])
def test_the_shipped_log_is_about_the_shipped_weights(name, step):
    log = load_training_log(name)
    mark = log.mark_of(step)
    found = run_training_dynamics(name=name, step=step, n_windows=16)
    chosen = np.linspace(0, MOST_WINDOWS - 1, 16).round().astype(int)
    assert found.icl_windows_nats == pytest.approx(log.icl_windows_nats[mark][chosen], abs=2e-3)
    assert found.induction == pytest.approx(log.induction[mark], abs=1e-3)
    assert found.previous_token == pytest.approx(log.previous_token[mark], abs=1e-3)
    assert found.second_copy_loss_nats == pytest.approx(log.second_copy_loss_nats[mark], abs=5e-3)


def test_the_course_of_the_training(log):
    """Two layers: a phase change, with both seeds. One layer: none."""
    second = load_training_log(LOGS[2])
    for two in (log, second):
        best = two.induction[:, 1].max(1)
        assert best[two.mark_of(1000)] < 0.1 and best[-1] > 0.4
        assert two.second_copy_loss_nats[-1] < two.first_copy_loss_nats[-1] - 3
        change, error = two.icl_change(4500, 1000)
        assert change < -0.1 and change < -4 * error
    one = load_training_log(LOGS[1])
    assert one.induction.max() < 0.05 and (one.second_copy_loss_nats > one.first_copy_loss_nats - 0.1).all()
    assert abs(one.icl_change(4500, 1000)[0]) < 0.06
    steps, slope = log.loss_slope()
    assert 1000 < steps[steps > 300][slope[steps > 300].argmin()] < 3000, "the training loss dips in the transition"
    assert one.loss_slope()[1][steps > 1000].min() > slope[steps > 1000].min() + 0.2


def test_the_slope_of_a_loss_that_falls_with_the_logarithm_is_constant(log):
    from dataclasses import replace

    steps, slope = replace(
        log, training_loss_nats=(7 - 0.5 * np.log1p(np.arange(4500))).astype(np.float32)
    ).loss_slope()
    assert slope[4:] == pytest.approx(np.full(len(slope) - 4, -0.5), abs=0.01)
    where, means = replace(log, training_loss_nats=np.arange(300, dtype=np.float32)).smooth_loss(101)
    assert means == pytest.approx(where) and (where[0], where[-1]) == (50, 249)


def test_the_causes_hold(log, causes):
    """Nothing is copied without the induction heads, nor when their keys do not hear from the previous-token head."""
    layer, numbers, (_, previous) = causes.induction_layer, list(causes.induction_heads), log.previous_head
    second = causes.ablated_second_copy_loss_nats
    assert [(layer, number) for number in numbers] == list(log.induction_heads)
    assert causes.second_copy_loss_nats < 3 and causes.induction > 0.5
    assert causes.together_second_copy_loss_nats > 9, "without its induction heads it copies nothing"
    assert second[layer, numbers].min() > causes.second_copy_loss_nats + 2, "each of them is needed"
    assert causes.others_second_copy_loss_nats < 3 and np.delete(second[layer], numbers).max() < 3, "the others are not"
    assert causes.ablated_induction[0, previous] < 0.05 and second[0, previous] > 9
    key = PATHS.index("key")
    assert causes.path_induction[key, previous] < 0.05 and causes.path_second_copy_loss_nats[key, previous] > 9
    assert np.delete(causes.path_induction[key], previous).min() > 0.5, "no other head's write into the keys is needed"
    assert causes.path_induction[PATHS.index("value")] == pytest.approx(np.full(4, causes.induction), abs=1e-6)
    assert causes.repatched_error < 1e-5
    assert causes.copying[numbers].min() > 0.9
    mark = log.mark_of(causes.step)
    for field in ("ablated_second_copy_loss_nats", "path_second_copy_loss_nats", "together_second_copy_loss_nats"):
        assert getattr(causes, field) == pytest.approx(getattr(log, field)[mark], abs=5e-3), field


def test_heads_taken_out_are_heads_taken_out_of_plain_transformers(plain, causes, log, hooked):
    (layer, head), *_ = log.induction_heads
    zero_head(plain, layer, head, hooked)
    expected = second_copy(plain)
    assert causes.ablated_second_copy_loss_nats[layer, head] == pytest.approx(expected, abs=1e-3)
    zero_head(plain, 0, 3, hooked)
    found = run_training_dynamics(ablate=[[0, 3], [layer, head]], n_windows=2)
    assert (
        found.second_copy_loss_nats == pytest.approx(second_copy(plain), abs=1e-3) != pytest.approx(expected, abs=0.1)
    )
    assert found.ablated == f"L0H3 L{layer}H{head}"


def test_a_path_is_cut_as_in_plain_transformers(plain, causes, log, hooked):
    """The keys of the induction heads computed by hand from the stream without the other head's write."""
    import torch
    from torch.nn.functional import linear

    previous = log.previous_head[1]
    below, above = plain.model.layers
    columns, seen = slice(32 * previous, 32 * (previous + 1)), {}
    hooked.append(
        below.self_attn.o_proj.register_forward_pre_hook(lambda module, arguments: seen.update(z=arguments[0]))
    )
    hooked.append(below.register_forward_hook(lambda module, arguments, output: seen.update(resid=output)))

    def cut(module, arguments, output):
        write = seen["z"][..., columns] @ below.self_attn.o_proj.weight[:, columns].T
        resid = seen["resid"][0] if isinstance(seen["resid"], tuple) else seen["resid"]
        less = linear(above.input_layernorm(resid - write), module.weight, module.bias)
        changed = output.clone()
        for _, head in log.induction_heads:
            changed[..., 32 * head : 32 * (head + 1)] = less[..., 32 * head : 32 * (head + 1)]
        return changed

    with torch.inference_mode():
        hooked.append(above.self_attn.k_proj.register_forward_hook(cut))
        expected = second_copy(plain)
    assert causes.path_second_copy_loss_nats[PATHS.index("key"), previous] == pytest.approx(expected, abs=1e-3)


def test_copying_is_what_the_weights_say(plain, causes, log):
    import torch

    layer, head = log.induction_head
    tokens = torch.arange(257, 512)
    with torch.inference_mode():
        texts = torch.stack([torch.zeros_like(tokens), tokens], 1)
        stream = plain(texts, output_hidden_states=True).hidden_states[layer][:, 1]
        block, own = plain.model.layers[layer], slice(32 * head, 32 * (head + 1))
        value = block.self_attn.v_proj(block.input_layernorm(stream))[:, own]
        written = value @ block.self_attn.o_proj.weight[:, own].T
        first = (written * plain.model.norm.weight @ plain.lm_head.weight.T).argmax(-1)
    assert causes.copying[head] == pytest.approx(float((first == tokens).float().mean()))


def test_two_steps_that_take_turns_do_not_mix():
    alone = [run_training_dynamics(step=step, n_windows=18) for step in (200, 1900)]
    running = {step: training_dynamics_steps(step=step, n_windows=18) for step in (200, 1900)}
    done = {}
    while running:
        for step, steps in list(running.items()):
            try:
                next(steps)
            except StopIteration as stop:
                done[step] = stop.value
                del running[step]
    for expected in alone:
        found = done[expected.step]
        assert found.icl_windows_nats.tolist() == expected.icl_windows_nats.tolist()
        assert found.second_copy_loss_nats == expected.second_copy_loss_nats


def test_whoever_asks_can_stop_it():
    class Asker:
        def interrupt(self):
            raise Cancelled

    with pytest.raises(Cancelled):
        run_training_dynamics(Asker(), n_windows=2)
    assert run_training_view(text="a").ids, "and the next request is not stopped"
    assert open_tiny("tiny-induction").hook_count() == 0


def test_a_paired_difference_by_hand():
    after, before = np.array([1.0, 2.0, 6.0], np.float32), np.array([0.0, 2.0, 4.0], np.float32)
    assert paired_difference(after, before) == pytest.approx((1.0, 1 / 3**0.5))
    with pytest.raises(ValueError, match="needs the same windows"):
        paired_difference(after, before[:2])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: run_training_dynamics(name="gpt2"), "needs tiny-induction or tiny-induction-1-layer; found 'gpt2'"),
        (lambda: run_training_dynamics(step=7), "found 7; the nearest: 0 or 50"),
        (lambda: run_training_dynamics(ablate=[2, 0]), "needs a head from L0H0 to L1H3; found L2H0"),
        (lambda: run_training_dynamics(ablate="L1H2"), "needs a head as .layer, head."),
        (lambda: run_training_dynamics(ablate=[1, 2, 3]), "needs a head as .layer, head."),
        (lambda: run_training_dynamics(ablate=[[1, 2], [1, 2]]), "needs each head once; found L1H2 twice"),
        (lambda: run_training_dynamics(n_windows=1), "needs 2 to 384 windows; found 1"),
        (lambda: run_training_causes(step=7), "the nearest: 0 or 50"),
        (lambda: run_training_view(text="x" * 600), "needs at most 256 tokens of the tiny tokenizer .*; found 601"),
        (lambda: run_training_view(text="x" * 5000), "needs a text of at most 4,000 characters; found 5,000"),
        (lambda: run_training_view(text="x", top_k=0), "needs a top-k from 1 to 512; found 0"),
        (lambda: load_training_log("gpt2"), "needs one of tiny-induction"),
        (lambda: load_training_log().mark_of(77), "needs a step that was measured; found 77; the nearest is 100"),
    ],
)
def test_what_cannot_be_asked_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_one_layer_has_no_paths_from_below():
    found = run_training_causes(name=LOGS[1], step=400)
    assert found.path_induction.size == 0 and len(found.to_frame()) == 4 + 2
    log = load_training_log(LOGS[1])
    expected = log.ablated_second_copy_loss_nats[log.mark_of(400)]
    assert found.ablated_second_copy_loss_nats == pytest.approx(expected, abs=5e-3)
