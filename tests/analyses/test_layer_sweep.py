"""Sweeps are the single deletions put side by side; cheap scores and ranks are checked by hand; smol meets its reference."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from analyses._layer_scores import depth_change, spearman
from analyses._steps import Profile
from analyses.layer_deletion import cost_layer_deletion, run_layer_deletion
from analyses.layer_sweep import (
    SWEPT,
    cost_layer_runs,
    cost_layer_sweep,
    layer_runs_steps,
    layer_sweep_steps,
    run_layer_runs,
    run_layer_sweep,
)
from analyses.removal_order import cost_removal_order, removal_order_steps, run_removal_order
from tests.tiny import PROMPT

PROFILE = Profile(0.01, 1e-3, 1e-6, 1e-4, n_layers=30, n_heads=9, d_model=576, d_vocab=49152, n_ctx=8192)
MEASURES = ("loss_nats", "kl_nats", "top1_agreement")


@pytest.mark.parametrize("family", ["gptj", "olmo2"])
def test_a_sweep_is_the_single_deletions(tiny, family):
    model = tiny(family).model
    sweep = run_layer_sweep(model, PROMPT)
    for row, part in enumerate(sweep.parts):
        deleted = [[i if part == "block" else f"{i}.{part}"] for i in range(model.config.n_layers)]
        single = run_layer_deletion(model, PROMPT, deleted=deleted, method="forward")
        for name in MEASURES:
            np.testing.assert_allclose(getattr(sweep, name)[row], getattr(single, name), atol=1e-4)
        np.testing.assert_allclose(sweep.block_influence, single.block_influence)
    assert sweep.to_frame().query("part == 'mlp' and layer == 1")["loss_nats"].item() == sweep.loss_nats[2, 1]


def test_ranks_and_scores_are_those_of_pandas_and_of_the_streams(tiny):
    model = tiny("gpt_neo").model  # four layers
    sweep = run_layer_sweep(model, PROMPT, parts=("mlp", "block"))
    frame = pd.DataFrame({"harm": sweep.loss_nats[1], "angle": sweep.angular_distance, "bi": sweep.block_influence})
    ranks = frame.rank().corr()
    assert sweep.spearman_angular[1] == pytest.approx(ranks.loc["harm", "angle"])
    assert sweep.spearman_influence[1] == pytest.approx(ranks.loc["harm", "bi"])
    resid = torch.cat(model.capture_calls(PROMPT).resid)
    cosine = torch.cosine_similarity(resid[:-1], resid[1:], dim=-1)
    np.testing.assert_allclose(sweep.block_influence, 1 - cosine[:, 1:].mean(1), atol=1e-5)
    np.testing.assert_allclose(sweep.angular_distance, (cosine[:, 1:].acos() / np.pi).mean(1), atol=1e-4)
    np.testing.assert_allclose(sweep.angular_distance_last, cosine[:, -1].acos() / np.pi, atol=1e-4)


def test_every_run_of_layers_is_its_deletion(tiny):
    model = tiny("gpt_neo").model
    runs = run_layer_runs(model, PROMPT)
    where = [(n, start) for n in range(1, 5) for start in range(5 - n)]
    one_by_one = run_layer_deletion(model, PROMPT, deleted=[list(range(s, s + n)) for n, s in where], method="forward")
    for index, (n, start) in enumerate(where):
        for name in MEASURES:
            assert getattr(runs, name)[n - 1, start] == pytest.approx(getattr(one_by_one, name)[index], abs=1e-4)
    assert np.isnan(runs.loss_nats).sum() == 6 and len(runs.to_frame()) == 10
    resid = torch.cat(model.capture_calls(PROMPT).resid)
    angle = torch.cosine_similarity(resid[1], resid[4], dim=-1)[1:].acos().mean() / np.pi
    assert runs.angular_distance[2, 1] == pytest.approx(angle.item(), abs=1e-4)
    assert runs.best_start == tuple(np.nanargmin(runs.loss_nats, axis=1))
    assert run_layer_runs(model, PROMPT, max_n=2, positions="last").kl_nats.shape == (2, 4)


@pytest.mark.parametrize(("family", "method"), [("gpt_neo", "replay"), ("gpt_neo", "forward"), ("gemma2", "replay")])
def test_greedy_removes_what_hurts_least_each_time(tiny, family, method):
    """By trying every candidate set with a single deletion of its own."""
    model = tiny(family).model
    found, gone = run_removal_order(model, PROMPT, n_remove=model.config.n_layers, method=method), []
    for step, layer in enumerate(found.order.tolist()):
        left = [i for i in range(model.config.n_layers) if i not in gone]
        trial = run_layer_deletion(model, PROMPT, deleted=[[*gone, i] for i in left], method="forward")
        np.testing.assert_allclose(found.candidate_loss_nats[step, left], trial.loss_nats, atol=1e-4)
        best = int(trial.loss_nats.argmin())
        assert layer == left[best] and np.isnan(found.candidate_loss_nats[step, gone]).all()
        for name in MEASURES:
            assert getattr(found, name)[step] == pytest.approx(getattr(trial, name)[best], abs=1e-4)
        gone.append(layer)
    assert found.to_frame()["layer"].tolist() == gone


def test_what_is_finished_is_sent_on_the_way(tiny):
    model = tiny("llama").model
    for steps, name in (
        (layer_sweep_steps(model, PROMPT), "kl_nats"),
        (layer_runs_steps(model, PROMPT, method="forward"), "kl_nats"),
        (removal_order_steps(model, PROMPT, n_remove=2), "loss_nats"),
    ):
        seen, result = [], None
        while result is None:
            try:
                progress = next(steps)
                assert model.hook_count() == 0 and progress.done <= progress.total
                seen += [progress.partial] if progress.partial else []
            except StopIteration as stop:
                result = stop.value
        assert seen
        for partial in seen:
            known = partial[name]
            final = getattr(result, name)[: len(known)]
            assert ((known == final) | np.isnan(known)).all() and not np.isnan(known).all()


def test_directions_worked_by_hand():
    first, turned = (
        torch.tensor([[[5.0, 1.0], [1.0, 0.0], [2.0, 0.0]]]),
        torch.tensor([[[1.0, 5.0], [0.0, 3.0], [1.0, 1.0]]]),
    )
    change = depth_change([first, first, -first, turned])
    assert change.angular_distance[0, 1] == pytest.approx(0, abs=1e-6)
    assert change.angular_distance[0, 2] == pytest.approx(1, abs=1e-6)
    assert change.angular_distance[0, 3] == pytest.approx((0.5 + 0.25) / 2)  # position 0 is left out
    assert change.angular_distance_last[0, 3] == pytest.approx(0.25)
    np.testing.assert_allclose(change.block_influence, [0, 2, 1 + np.sqrt(0.5) / 2], atol=1e-6)
    only = depth_change([first[:, :1], turned[:, :1]], neighbours=True)
    assert only.block_influence[0] == pytest.approx(1 - 10 / 26)


def test_rank_correlation_worked_by_hand():
    up = np.array([1.0, 2.0, 3.0, 9.0])
    assert spearman(up, up**3) == pytest.approx(1) and spearman(up, -up) == pytest.approx(-1)
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([5.0, 6.0, 7.0])) == pytest.approx(np.sqrt(3) / 2)  # a tie
    assert spearman(np.append(up, np.nan), np.append(up, 0.0)) == pytest.approx(1)
    assert np.isnan(spearman(up, np.ones(4))) and np.isnan(spearman(up[:2], up[:2]))


@pytest.mark.parametrize(
    ("run", "params", "sentence"),
    [
        (run_layer_sweep, {"parts": ["norm"]}, "needs a list of block, attention, mlp.*; found .'norm'.; correct"),
        (run_layer_sweep, {"parts": "mlp"}, "needs a list of .*; found 'mlp'; correct"),
        (run_layer_sweep, {"parts": ["mlp", "mlp"]}, "needs a list of .* at most once; found"),
        (run_layer_runs, {"max_n": 4}, "needs runs of 1 to 3 layers; found 4; choose"),
        (run_removal_order, {"n_remove": 0}, "needs a number of layers to remove from 1 to 3; found 0; choose"),
        (run_removal_order, {"method": "x"}, "needs one of auto, replay, forward; found 'x'; leave"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tiny, monkeypatch, run, params, sentence):
    model = tiny("llama").model
    monkeypatch.setattr(model, "capture_calls", None)
    with pytest.raises(ValueError, match=sentence):
        run(model, PROMPT, **params)
    with pytest.raises(ValueError, match="needs at least 2 tokens; found 1"):
        run(model, PROMPT[:1])


def test_costs_count_the_blocks_that_run():
    one = PROFILE.forward_seconds(16) - PROFILE.base
    last, reading = {"positions": "last"}, PROFILE.per_readout
    swept = cost_layer_deletion(PROFILE, 16, last).seconds
    # The base run, 29 * 30 / 2 blocks of one row, 29 calls of a block, and the readings.
    assert swept == pytest.approx(PROFILE.base + one + one * 435 / 30 + PROFILE.base * 29 / 30 + reading * (16 + 30))
    forward = cost_layer_deletion(PROFILE, 16, {**last, "method": "forward"}).seconds
    assert forward == pytest.approx(31 * (one + PROFILE.base) + reading * (16 + 30))
    alone = cost_layer_deletion(PROFILE, 16, {"deleted": [[3]], "compare": False}).seconds
    assert alone == pytest.approx(one + PROFILE.base + 16 * reading)
    # 90 rows of 4 tokens are one batch; attention and MLP of a layer need that layer too.
    sweep, block = (cost_layer_sweep(PROFILE, 4, {**last, "parts": p}).seconds for p in (SWEPT, ("block",)))
    short = PROFILE.forward_seconds(4) - PROFILE.base
    assert sweep - block == pytest.approx(short * 2 * 465 / 30 + PROFILE.base / 30 + reading * 60)
    runs = cost_layer_runs(PROFILE, 16, last).seconds - PROFILE.base - one
    assert one * 4495 / 30 < runs < one * 4495 / 30 * 1.1 + PROFILE.base * 150
    steps = [cost_removal_order(PROFILE, 64, {"n_remove": n}).seconds for n in (1, 2, 30)]
    assert steps[0] < steps[1] < 2 * steps[0] and steps[2] < 12 * steps[0]
    assert cost_layer_deletion(PROFILE, 512, {}).peak_bytes < 800e6


# ---- the embedded model ----

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "deletion_smol.json").read_text("utf-8"))
CHECKED = {"block": (11, 29), "attention": (23,), "mlp": (28,)}


@pytest.fixture(scope="module")
def paragraphs(smol):
    deleted = [[i if part == "block" else f"{i}.{part}"] for part, layers in CHECKED.items() for i in layers]
    texts = [tuple(smol.tokenizer(p, add_special_tokens=False).input_ids) for p in REFERENCE["paragraphs"]]
    return [run_layer_deletion(smol, ids, deleted=[*deleted, list(range(13, 19))]) for ids in texts]


def mean(results, name):
    """Over all tokens of the paragraphs that follow another."""
    weights = [len(r.baseline_position_loss_nats) for r in results]
    return np.average([getattr(r, name) for r in results], axis=0, weights=weights)


@pytest.mark.embedded
def test_embedded_losses_are_those_of_plain_transformers(paragraphs):
    assert mean(paragraphs, "baseline_loss_nats") == pytest.approx(REFERENCE["baseline_loss_nats"], abs=0.005)
    change = mean(paragraphs, "loss_change_nats")
    expected = [REFERENCE["loss_change_nats"][part][i] for part, layers in CHECKED.items() for i in layers]
    np.testing.assert_allclose(change, [*expected, REFERENCE["loss_change_of_six_from"][13]], atol=0.02)
    blocks = list(CHECKED["block"])
    np.testing.assert_allclose(mean(paragraphs, "kl_nats")[:2], np.array(REFERENCE["kl_nats"])[blocks], atol=0.02)
    same = mean(paragraphs, "top1_agreement")[:2]
    np.testing.assert_allclose(same, np.array(REFERENCE["top1_agreement"])[blocks], atol=0.02)


@pytest.mark.embedded
def test_embedded_scores_are_those_of_plain_transformers_and_blind_to_layer_11(paragraphs):
    for name in ("angular_distance", "block_influence"):
        np.testing.assert_allclose(mean(paragraphs, name), REFERENCE[name], atol=0.002, err_msg=name)
    last = np.mean([r.angular_distance_last for r in paragraphs], axis=0)
    np.testing.assert_allclose(last, REFERENCE["angular_distance_last"], atol=0.002)
    harm = np.array(REFERENCE["loss_change_nats"]["block"])
    assert spearman(mean(paragraphs, "angular_distance"), harm) == pytest.approx(0.717, abs=0.02)
    assert spearman(last, harm) == pytest.approx(0.289, abs=0.03)
    assert (harm > harm[11]).sum() == 2 and (mean(paragraphs, "angular_distance") > 0.0855).sum() > 10
