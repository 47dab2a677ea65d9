"""The lens in pieces, at some positions, in bfloat16; that it can be stopped, and what it must refuse."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses import _lens, _lens_run, _readout
from analyses._addends import deletion_hooks
from analyses._positions import choose_positions
from analyses._steps import Cancelled, Profile
from analyses.logit_lens import LogitLens, cost_logit_lens, logit_lens_steps, run_logit_lens
from analyses.model import wrap_model
from tests.tiny import FAMILIES, PROMPT, tiny_hf_model, tiny_tokenizer

IDS = torch.tensor([PROMPT])
EVERY = pytest.mark.parametrize("family", FAMILIES)
ARRAYS = ("top_log_probability", "entropy_nats", "kl_nats", "next_loss_nats", "target_log_probability")


@pytest.fixture(autouse=True)
def one_thread():
    """Other work on the machine: small matrices on two threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---- pieces, positions ----


def assert_same(result, expected, cells=slice(None)):
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name)[:, cells], atol=2e-5, err_msg=name)
    for name in ("top_ids", "target_rank"):
        np.testing.assert_array_equal(getattr(result, name), getattr(expected, name)[:, cells])


@pytest.mark.parametrize("family", ["llama", "gemma2", "cohere", "phi"])
@pytest.mark.parametrize("how", ["columns", "rows", "bytes", "whole readout"])
def test_pieces_of_any_size_give_the_same_numbers(tiny, monkeypatch, family, how):
    model = tiny(family).model
    expected = run_logit_lens(model, PROMPT, positions=[0, 6, 11])
    if how == "columns":
        monkeypatch.setattr(_lens, "COLUMNS", 7)
    elif how == "rows":
        monkeypatch.setattr(_lens, "ROWS", 2)  # fewer than there are streams
    else:
        monkeypatch.setattr(_readout, "CHUNK_BYTES", 1200)  # one position, 33 columns of its three rows
    if how == "whole readout":  # a family whose readout cannot be taken apart
        monkeypatch.setattr(_readout, "unembedding_of", lambda model: None)
    assert_same(run_logit_lens(model, PROMPT, positions=[0, 6, 11]), expected)


def test_a_readout_that_mixes_tokens_is_not_taken_apart(tiny):
    model = tiny("llama").model
    assert _readout.unembedding_of(model) is not None
    adapter = SimpleNamespace(apply_output_logits_transform=lambda z: z - z.mean(-1, keepdim=True))
    bridge = SimpleNamespace(unembed=model._bridge.unembed, ln_final=model._bridge.ln_final, adapter=adapter)
    other = Other(model.config, bridge)
    assert _readout.unembedding_of(other) is None


class Other:
    """A model with a readout of its own."""

    def __init__(self, config, bridge):
        self.config, self._bridge = config, bridge

    def readout(self, resid):
        return self._bridge.adapter.apply_output_logits_transform(self._bridge.unembed(self._bridge.ln_final(resid)))


@EVERY
def test_some_positions_are_those_of_all(tiny, family):
    """Only the rows that are asked for are kept and unembedded; also where a family reshapes its output."""
    model, text = tiny(family).model, PROMPT * 4
    everywhere = run_logit_lens(model, text, positions="all")
    assert_same(run_logit_lens(model, text), everywhere, slice(16, 48))
    assert_same(run_logit_lens(model, text, positions="last"), everywhere, [47])
    assert_same(run_logit_lens(model, text, positions=[-2, 0, 9]), everywhere, [0, 9, 46])


def test_one_token_is_a_text(tiny):
    result = run_logit_lens(tiny("gpt2").model, (7,), mid=True)
    assert result.positions.tolist() == [0] and np.isnan(result.next_loss_nats).all()
    alone = tiny("gpt2").plain(torch.tensor([[7]])).logits[0, 0].log_softmax(-1)
    np.testing.assert_allclose(result.top_log_probability[-1, 0], alone.topk(10).values, atol=1e-4)


# ---- bfloat16 ----


@EVERY
def test_fast_path_keeps_softcap_scale_and_bias(tiny, monkeypatch, family):
    model = tiny(family).model
    expected = run_logit_lens(model, PROMPT, positions="all", distractor=9)
    assert run_logit_lens(model, PROMPT, exact=False).exact == (not _readout.is_bfloat16_fast("cpu"))
    monkeypatch.setattr(_readout, "is_bfloat16_fast", lambda device: True)
    result = run_logit_lens(model, PROMPT, positions="all", exact=False, distractor=9)
    assert not result.exact
    np.testing.assert_array_equal(result.top_ids, expected.top_ids)
    for name in (*ARRAYS, "distractor_log_probability"):
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name), atol=0.05, err_msg=name)
        np.testing.assert_array_equal(getattr(result, name)[-1], getattr(expected, name)[-1])
    assert not np.array_equal(result.entropy_nats, expected.entropy_nats)  # it did multiply in bfloat16
    assert (result.kl_nats >= -1e-6).all()
    np.testing.assert_array_equal(result.target_rank[-1], 0)


def test_a_model_in_bfloat16_gives_a_token_one_probability():
    """However it is reached: as one of the most probable ones, or as the target."""
    model = wrap_model(tiny_hf_model("llama").bfloat16(), tiny_tokenizer())
    result = run_logit_lens(model, PROMPT, positions="all", top_k=300)
    listed = (result.top_ids == result.target_ids[:, None]).argmax(-1)[..., None]
    log_probability = np.take_along_axis(result.top_log_probability, listed, axis=-1)[..., 0]
    # One step of bfloat16 at the size of these logits; a sum in bfloat16 would be off by several.
    step = 2.0**-7 * np.abs(model.forward(PROMPT).float().numpy()).max()
    np.testing.assert_allclose(result.target_log_probability, log_probability, atol=step)
    assert run_logit_lens(model, PROMPT, positions="last", exact=False).exact  # nothing to gain: it is bfloat16 already


# ---- steps and refusals ----


def test_nothing_is_left_on_the_model_between_steps_or_after_a_stop(tiny, monkeypatch):
    model = tiny("llama").model
    monkeypatch.setattr(_lens, "TICK", 1)
    monkeypatch.setattr(_lens, "COLUMNS", 100)
    done = []
    steps = logit_lens_steps(model, PROMPT, mid=True)
    for progress in steps:
        assert model.hook_count() == 0 and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        done.append(progress.done / progress.total)
    assert done[0] == 0 and done[-1] == 1 and done == sorted(done) and len(done) > 6
    calls = 0

    def stop():
        nonlocal calls
        calls += 1
        if calls == at:
            raise Cancelled

    monkeypatch.setattr(model, "interrupt", stop)
    for at in (2, 5, 11):  # in a block, before a norm, before a part of the vocabulary
        calls = 0
        with pytest.raises(Cancelled):
            run_logit_lens(model, PROMPT)
        assert model.hook_count() == 0 and calls == at
    monkeypatch.undo()
    assert torch.allclose(model.forward(PROMPT), tiny("llama").plain(IDS).logits, atol=1e-4)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"positions": "some"}, '"window", "all", "last" or a list of positions; found .some.; choose'),
        ({"positions": []}, "or a list of positions; found \\[\\]; choose"),
        ({"positions": [12]}, "positions from 0 to 11; found 12; choose"),
        ({"positions": [0, -13]}, "positions from 0 to 11; found -13; choose"),
        ({"positions": [3, 11, -1]}, "each position once; found 11 twice; name"),
        ({"top_k": 0}, "top-k from 1 to 300; found 0; choose"),
        ({"top_k": 301}, "top-k from 1 to 300; found 301; choose"),
        ({"target": 300}, "needs a target id from 0 to 299; found 300"),
        ({"target": "!?"}, "needs a target that is one token; found .*!"),
        ({"distractor": "!?"}, "needs a distractor that is one token; found"),
        ({"lens": "tuned"}, "a lens .*; found 'tuned'; choose"),
        ({"lens": "own:../../x"}, "a lens .*; found 'own:../../x'; choose"),
        ({"lens": "linear", "mid": True}, "plain lens for the stream after attention; found 'linear'"),
    ],
)
def test_refused_before_anything_is_computed(tiny, monkeypatch, params, sentence):
    model = tiny("llama").model
    monkeypatch.setattr(model, "interrupt", lambda: pytest.fail("a block ran"))
    with pytest.raises(ValueError, match=sentence):
        run_logit_lens(model, PROMPT, **params)


@pytest.mark.parametrize("odd", [[0.5], [True], 3, None, ["0"]])
def test_positions_that_are_no_numbers_are_refused(odd):
    with pytest.raises(ValueError, match='needs "window", "all", "last" or a list of positions; found'):
        choose_positions(odd, 5)


def test_positions_are_ascending_whatever_their_order():
    assert choose_positions([-1, 0, 2], 5) == (0, 2, 4)
    assert choose_positions(np.array([3, 1]), 5) == (1, 3)
    assert choose_positions("window", 40) == tuple(range(8, 40)) and choose_positions("window", 2) == (0, 1)


def test_a_linear_lens_maps_every_depth_but_the_last(tiny, monkeypatch):
    """Maps that turn each stream into another one known: the lens must read that one."""
    from types import ModuleType

    model = tiny("llama").model
    final = model.capture_calls(PROMPT).resid[-1][0]
    module = ModuleType("analyses.linear_lens")
    asked = []

    def apply(depth, rows):
        asked.append(depth)
        return final[: len(rows)] if depth == 1 else 2 * rows

    module.load_maps = lambda model, name: SimpleNamespace(apply=apply)
    monkeypatch.setitem(sys.modules, "analyses.linear_lens", module)
    result, plain = (
        run_logit_lens(model, PROMPT, positions="all", lens="linear"),
        run_logit_lens(model, PROMPT, positions="all"),
    )
    assert asked == [0, 1, 2] and result.lens == "linear"
    np.testing.assert_allclose(result.kl_nats[1], 0, atol=1e-5)
    np.testing.assert_allclose(result.entropy_nats[0], plain.entropy_nats[0], atol=1e-3)  # the norm undoes a factor
    np.testing.assert_array_equal(result.top_log_probability[-1], plain.top_log_probability[-1])


def test_cost_counts_the_readouts_of_the_positions_asked_for():
    profile = Profile(1.0, 0.1, 0.0, 0.5, n_layers=3, n_heads=1, d_model=1, d_vocab=100, n_ctx=99)
    for positions, n in (("last", 1), ("all", 50), ("window", 32), ([1, 2], 2)):
        cost = cost_logit_lens(profile, 50, {"positions": positions})
        assert cost.seconds == pytest.approx(1 + 5 + 0.5 * n * (1 + 0.6 * 3))
        assert cost_logit_lens(profile, 50, {"positions": positions, "mid": True}).seconds == pytest.approx(
            1 + 5 + 0.5 * n * (1 + 0.6 * 6)
        )
    assert cost_logit_lens(profile, 5, {}).seconds == pytest.approx(1 + 0.5 + 0.5 * 5 * (1 + 0.6 * 3))


@pytest.mark.parametrize("family", ["llama", "gpt2", "gptj", "gemma2"])
def test_a_damaged_run_is_read_like_the_model_with_a_shorter_list_of_layers(tiny, family):
    model = tiny(family).model
    found = run_logit_lens(model, PROMPT, positions="all", deleted=[1])
    with model.hooks(*deletion_hooks(model, [1])):
        logits = model.forward(PROMPT)[0].float().log_softmax(-1)
    assert found.top_log_probability[-1, :, 0] == pytest.approx(logits.max(-1).values.numpy(), abs=1e-4)
    # Nothing is added between the depths before and after the layer that is left out.
    assert found.top_log_probability[2] == pytest.approx(found.top_log_probability[1], abs=1e-5)
    assert np.abs(run_logit_lens(model, PROMPT, positions="all").entropy_nats[2] - found.entropy_nats[2]).max() > 1e-4
    assert model.hook_count() == 0


# ---- parts ----


def test_what_is_finished_first_is_already_right(tiny, monkeypatch):
    """A part is the result of its positions alone, the last ones; each holds the one before."""
    monkeypatch.setattr(_lens_run, "SOON", 5)
    monkeypatch.setattr(_lens, "ROWS", 9)  # three positions at three streams
    model = tiny("llama").model
    steps, parts = logit_lens_steps(model, PROMPT, positions="all", distractor=7), []
    while True:
        try:
            progress = next(steps)
        except StopIteration as stop:
            whole = stop.value
            break
        parts += [LogitLens(**progress.partial)] if progress.partial else []
    starts = [int(part.positions[0]) for part in parts]
    assert starts == sorted(starts, reverse=True) and len(set(starts)) == len(starts) > 2
    for part in parts:
        assert_same(part, whole, slice(int(part.positions[0]), None))
        np.testing.assert_array_equal(part.distractor_rank, whole.distractor_rank[:, part.positions])
        assert part.positions[-1] == len(PROMPT) - 1 and np.isnan(part.next_loss_nats[:, -1]).all()


def test_the_last_positions_come_first_and_none_twice():
    for n, at_most in (1, 9), (32, 40), (33, 40), (133, 66), (100, 7):
        slices = list(_lens_run.from_the_end(n, at_most))
        covered = [list(range(n))[each] for each in slices]
        assert sum(reversed(covered), []) == list(range(n))
        assert max(map(len, covered)) <= at_most and len(covered[0]) == min(n, at_most, 32)
