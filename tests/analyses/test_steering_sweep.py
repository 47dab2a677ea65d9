"""A sweep is its cells one by one, damage is what transformers measures, repetition is counted by hand; examples still work."""

import math

import numpy as np
import pytest
import torch

from analyses._steer import reference_norms
from analyses._steer_words import log_odds
from analyses._steps import Profile
from analyses.repetition import distinct, repetition
from analyses.steering import run_steering
from analyses.steering_damage import run_steering_damage
from analyses.steering_sweep import SteeringSweep, cost_steering_sweep, run_steering_sweep, steering_sweep_steps
from analyses.steering_vector import random_vector_like
from tests.analyses.test_steering import UNIT, VECTOR, plainly_steered
from tests.tiny import PROMPT

TEXTS = [PROMPT[:8], (12, 13, 250, 7, 41, 9)]
WORDS = {"targets": [5, 9], "against": [41]}
LAYERS, COEFFICIENTS = (0, 2), (0, 0.4)


@pytest.mark.parametrize(("family", "replay"), [("llama", True), ("gpt2", True), ("falcon", True), ("gpt2", False)])
def test_a_sweep_is_its_cells_one_by_one(tiny, monkeypatch, family, replay):
    model, prompts = tiny(family).model, (PROMPT, PROMPT[4:9])
    if not replay:
        monkeypatch.setattr(model, "capabilities", {**model.capabilities, "replay": "switched off"})
        monkeypatch.setattr(type(model), "run_block", lambda *_: pytest.fail("replayed"))
    how = {"layers": LAYERS, "coefficients": COEFFICIENTS, "texts": TEXTS, "prompts": prompts[1:], "where": "new"}
    found = run_steering_sweep(model, PROMPT, VECTOR, **how, **WORDS, seed=4)

    def odds(vector, **one):
        runs = [run_steering(model, ids, vector, where="new", compare=False, **one, **WORDS) for ids in prompts]
        return np.mean([run.log_odds[0] for run in runs])

    assert found.baseline_log_odds == pytest.approx(odds(VECTOR, coefficient=0), abs=1e-4)
    control = random_vector_like(VECTOR, 4)
    for vector, layer, effect, kl, change in [
        (VECTOR, 0, found.effect[0], found.kl_nats[0], found.loss_change_nats[0]),
        (VECTOR, 2, found.effect[1], found.kl_nats[1], found.loss_change_nats[1]),
        (control, 1, found.random_effect, found.random_kl_nats, found.random_loss_change_nats),
    ]:
        damage = run_steering_damage(model, vector, texts=TEXTS, coefficient=0.4, layer=layer)
        rise = odds(vector, coefficient=0.4, layer=layer) - found.baseline_log_odds
        np.testing.assert_allclose(effect, [0, rise], atol=2e-4)
        np.testing.assert_allclose(kl, [0, damage.mean_kl_nats[1]], atol=1e-4)
        np.testing.assert_allclose(change, [0, damage.loss_change_nats[1]], atol=1e-4)
        assert abs(rise) > 1e-3


def test_without_words_the_effect_is_how_far_the_last_stream_moves(tiny):
    model = tiny("llama").model
    found = run_steering_sweep(model, PROMPT, VECTOR, layers=[1], coefficients=[0.4], texts=TEXTS)
    one = run_steering(model, PROMPT, VECTOR, coefficient=0.4)
    moved = (one.projection[1, -1] - one.projection[0, -1]) / reference_norms(model)[-1]
    assert found.effect[0, 0] == pytest.approx(moved, abs=1e-4) and math.isnan(found.baseline_log_odds)
    assert found.unit == "lengths of the stream"


def test_cells_fill_up_while_it_runs_and_no_hook_waits_with_it(tiny):
    model, seen = tiny("llama").model, []
    steps = steering_sweep_steps(model, PROMPT, vector=VECTOR, layers=[0, 1], coefficients=[0.3], texts=TEXTS, **WORDS)
    with torch.inference_mode():
        try:
            while True:
                progress = next(steps)
                assert 0 <= progress.done <= progress.total and model.hook_count() == 0
                if progress.partial:
                    seen.append(progress.partial)
        except StopIteration as stop:
            result = stop.value
    assert np.isnan(seen[0]["effect"]).all()
    assert any(np.isfinite(part["effect"]).all() and np.isnan(part["kl_nats"]).all() for part in seen)
    for name in ("effect", "kl_nats", "random_loss_change_nats"):
        np.testing.assert_array_equal(seen[-1][name], getattr(result, name))


def test_damage_is_what_transformers_measures(tiny):
    pair = tiny("gpt2")
    found = run_steering_damage(pair.model, VECTOR, coefficient=0.5, texts=TEXTS, seed=2, top_k=5)
    size = 0.5 * float(reference_norms(pair.model)[1])
    shares = [[], []]
    for text, ids in enumerate(TEXTS):
        logits = []
        for direction in (0 * UNIT, UNIT, random_vector_like(VECTOR, 2).direction):
            added = size * direction / max(1e-9, np.linalg.norm(direction))
            logits.append(plainly_steered(pair, "gpt2", ids, 1, added, slice(1, None))[:-1].double())
        for run, row in enumerate(logits):
            loss = torch.nn.functional.cross_entropy(row, torch.tensor(ids[1:]))
            kl = torch.nn.functional.kl_div(row.log_softmax(-1), logits[0].softmax(-1), reduction="batchmean")
            assert found.loss_nats[run, text] == pytest.approx(float(loss), abs=1e-4)
            assert found.kl_nats[run, text] == pytest.approx(float(kl), abs=1e-4)
            same = (row.argmax(-1) == logits[0].argmax(-1)).double().mean()
            assert found.agreement[run, text] == pytest.approx(float(same))
        for run in (0, 1):
            shares[run].append(logits[run].softmax(-1))
    before, after = (torch.cat(rows).mean(0) for rows in shares)
    factor = torch.where(torch.maximum(before, after) >= 2e-4, (after / before).log(), 0.0)
    assert found.raised_ids.tolist() == factor.topk(5).indices.tolist()
    np.testing.assert_allclose(found.raised_change, factor.topk(5).values, atol=1e-3)
    assert found.lowered_ids[0] == int(factor.argmin()) and found.lowered_change[0] < 0
    assert found.to_frame().query("run == 'random' and text == 1")["kl_nats"].item() == found.kl_nats[2, 1]


def test_nothing_added_costs_exactly_nothing(tiny):
    found = run_steering_damage(tiny("llama").model, VECTOR, coefficient=0, texts=TEXTS)
    assert found.loss_change_nats.tolist() == found.mean_kl_nats.tolist() == [0, 0, 0]
    assert (found.agreement == 1).all() and not len(found.raised_ids) and not len(found.lowered_ids)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"layers": [3]}, "layers from 0 to 2"),
        ({"layers": []}, "needs a list of layers"),
        ({"layers": [1, 1]}, "all different"),
        ({"coefficients": [0.1, math.nan]}, "finite and all different"),
        ({"coefficients": "0.3"}, "needs a list of coefficients"),
        ({"coefficients": [200]}, "coefficients from -100 to 100"),
        ({"coefficients": [i / 400 for i in range(1, 300)]}, "at most 600 cells with the random row; found 1196"),
        ({"targets": [5], "against": [5]}, "in both"),
        ({"texts": [(5,)]}, "2 tokens in every neutral text"),
        ({"prompts": ["", "b"]}, "prompt text 0|1 tokens in every prompt text"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(tiny, how, words):
    with pytest.raises(ValueError, match=words):
        run_steering_sweep(tiny("llama").model, PROMPT, VECTOR, **{"layers": [0, 1, 2]} | how)


def test_the_best_cell_is_the_largest_effect_that_does_not_break():
    effect = np.array([[1, 9], [3, 2]], np.float32)
    loss = np.array([[0.1, 2.5], [0.2, np.nan]], np.float32)
    row = np.zeros(2, np.float32)
    sweep = SteeringSweep(
        np.array([4, 8], np.int32), np.array([0.25, 1], np.float32), "u", effect, loss, loss, 4, row, row, row, 0.0, row
    )
    assert sweep.breaks.tolist() == [[False, True], [False, False]]
    assert sweep.best == (8, 0.25)
    frame = sweep.to_frame()
    assert frame.query("layer == 8 and coefficient == 1.0 and direction == 'vector'")["effect"].item() == 2
    assert (frame["direction"] == "random").sum() == 2


def test_the_cost_of_a_sweep_is_below_one_pass_per_cell():
    profile = Profile(0.01, 1e-3, 0.0, 0.0, n_layers=30, n_heads=9, d_model=576, d_vocab=49152, n_ctx=8192)
    params = {"vector": VECTOR.wire, "layers": list(range(0, 30, 3)), "coefficients": [0.3, 0.6], "texts": [PROMPT]}
    one_by_one = 2 * 22 * profile.forward_seconds(12)
    assert 0.3 * one_by_one < cost_steering_sweep(profile, 12, params).seconds < 0.8 * one_by_one


def test_repetition_is_counted_by_hand():
    assert distinct((1, 2, 1, 2, 1), 1) == 2 / 5
    assert distinct((1, 2, 1, 2, 1), 2) == 2 / 4
    assert repetition((1, 2, 3, 4, 1, 2, 3, 4), 4) == 1 - 4 / 5  # only the first comes again
    assert repetition((7,) * 20) == 1 - 1 / 17 and repetition(range(20)) == 0
    assert math.isnan(distinct((1,), 2)) and math.isnan(repetition((1, 2, 3)))
    assert distinct(np.array([1, 1]), 1) == 0.5
    with pytest.raises(ValueError, match="token ids; found text"):
        distinct("a text")
    with pytest.raises(ValueError, match="at least one token"):
        distinct((1, 2), 0)


def test_log_odds_without_opposites_are_those_of_the_words_together():
    log_p = np.log(np.array([[0.5, 0.25, 0.125, 0.125]]))
    assert log_odds(log_p, [0, 1], [])[0] == pytest.approx(math.log(3))
    assert log_odds(log_p, [0], [2, 3])[0] == pytest.approx(math.log(2))
    assert np.isnan(log_odds(log_p, [], [])).all()
