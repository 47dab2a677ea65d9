"""A vector is added where, where not and as long as promised: by plain hooks on transformers, by hand, on the embedded model."""

import math

import numpy as np
import pytest
import torch

from analyses._steer import change_stream, read_steer, reference_norms, steer_hooks
from analyses._steps import Profile
from analyses.steering import cost_steering, run_steering, steering_steps
from analyses.steering_vector import SteeringVector, random_vector_like
from tests.tiny import PROMPT

D = 32  # width of the tiny models
UNIT = np.random.default_rng(5).standard_normal(D)
VECTOR = SteeringVector(UNIT.astype(np.float32), 1, "v")
BLOCKS = {"llama": "model.layers", "gpt2": "transformer.h", "falcon": "transformer.h", "gemma2": "model.layers"}


def plainly_steered(pair, family, ids, layer, added, positions):
    """Logits of transformers' own model with a pre-hook on one block that adds to some positions."""
    block = pair.plain.get_submodule(BLOCKS[family])[layer]

    def add(module, args, kwargs):
        stream = (args[0] if args else kwargs["hidden_states"]).clone()
        stream[:, positions] += torch.tensor(added, dtype=torch.float32)
        return ((stream, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": stream})

    handle = block.register_forward_pre_hook(add, with_kwargs=True)
    try:
        with torch.no_grad():
            return pair.plain(torch.tensor([ids])).logits[0]
    finally:
        handle.remove()


def steered(model, ids, start=0, n_prompt=None, **item):
    steer = read_steer(model, VECTOR.wire | item)
    with torch.inference_mode(), model.hooks(*steer_hooks(model, steer, start=start, n_prompt=n_prompt or len(ids))):
        return model.forward(ids)[0]


def plain(model, ids=PROMPT, *, last_only=False):
    with torch.inference_mode():
        return model.forward(ids, last_only=last_only)[0]


@pytest.mark.parametrize("family", BLOCKS)
def test_steering_is_a_plain_hook_on_the_input_of_the_block(tiny, family):
    pair, raw = tiny(family), 3.0 * UNIT / np.linalg.norm(UNIT)
    last = len(PROMPT) - 1
    for where, positions in (("both", slice(1, None)), ("prompt", slice(1, last)), ("new", slice(last, None))):
        expected = plainly_steered(pair, family, PROMPT, 2, raw, positions)
        np.testing.assert_allclose(
            steered(pair.model, PROMPT, layer=2, size=3.0, where=where), expected, atol=1e-4, err_msg=where
        )
    expected = plainly_steered(pair, family, PROMPT, 2, raw, slice(None))
    np.testing.assert_allclose(steered(pair.model, PROMPT, layer=2, size=3.0, first=True), expected, atol=1e-4)
    found = run_steering(pair.model, PROMPT, VECTOR, layer=2, size=3.0, first=True)
    np.testing.assert_allclose(found.logits[1], expected[-1], atol=1e-4)


# Plain transformers, SmolLM2-135M-Instruct dequantised, a forward hook on layers[9], [10] and [11] that adds c * v at every
# position; v = last token of "I love this" minus "I hate this" at the output of layers[10], so the input of block 11.
ORACLE = [
    (11, 2, 9.327, {" a": 0.112, " just": 0.108, " about": 0.1}),
    (11, 8, 26.610, {",": 0.859}),
    (10, 8, None, {",": 0.509}),
    (12, 8, None, {",": 0.672}),
]


def test_the_embedded_model_gives_the_numbers_of_transformers(smol):
    def ids(text):
        return tuple(smol.tokenizer(text, add_special_tokens=False).input_ids)

    with torch.inference_mode():
        love, hate = (smol.capture_calls(ids(f"I {verb} this")).resid[11][0, -1].numpy() for verb in ("love", "hate"))
    vector = SteeringVector(love - hate, 11, "love - hate")
    assert vector.norm == pytest.approx(27.513, abs=2e-3)
    prompt = ids("I think that this movie is")
    before = plain(smol, prompt)
    for layer, times, change, top in ORACLE:
        item = vector.intervention(size=times * vector.norm, layer=layer, first=True)["steer"]
        with torch.inference_mode(), smol.hooks(*steer_hooks(smol, read_steer(smol, item), start=0, n_prompt=6)):
            after = smol.forward(prompt)[0]
        if change is not None:
            assert float((after - before).abs().max()) == pytest.approx(change, abs=5e-3)
        for text, share in top.items():
            assert float(after[-1].softmax(-1)[ids(text)[0]]) == pytest.approx(share, abs=1e-3)


def test_back_to_zero_is_the_plain_model_bit_for_bit(tiny):
    model, before = tiny("llama").model, VECTOR.digest
    for coefficient in (0, 0.6, 0.0):
        found = run_steering(model, PROMPT, VECTOR, coefficient=coefficient, compare=False)
        same = np.array_equal(found.logits[0], plain(model, last_only=True)[-1].numpy())
        assert same == (coefficient == 0)
    assert VECTOR.digest == before and model.hook_count() == 0
    compared = run_steering(model, PROMPT, VECTOR, coefficient=0, targets=[5, 6])
    assert np.array_equal(compared.logits[0], compared.logits[1]) and np.array_equal(
        compared.logits[0], compared.logits[2]
    )
    assert compared.kl_nats.tolist() == compared.log_odds_change.tolist() == [0, 0, 0]
    assert compared.n_steered == 0


def test_adding_and_then_taking_away_is_nothing(tiny):
    model = tiny("gpt2").model
    pairs = [
        pair
        for sign in (1, -1)
        for pair in steer_hooks(
            model, read_steer(model, VECTOR.wire | {"coefficient": 0.5 * sign}), start=0, n_prompt=len(PROMPT)
        )
    ]
    with torch.inference_mode(), model.hooks(*pairs):
        np.testing.assert_allclose(model.forward(PROMPT)[0], plain(model), atol=1e-3)


def test_position_zero_stays_and_the_others_move_by_the_length_promised(tiny):
    model, seen = tiny("llama").model, []
    norms = reference_norms(model)
    name = model.hook_name("resid_pre", 2)
    for coefficient in (0.0, -0.4):
        steer = read_steer(model, VECTOR.wire | {"layer": 2, "coefficient": coefficient})
        pairs = steer_hooks(model, steer, start=0, n_prompt=len(PROMPT))
        with torch.inference_mode(), model.hooks(*pairs, (name, lambda stream, hook: seen.append(stream[0].clone()))):
            model.forward(PROMPT)
    moved = seen[1] - seen[0]
    assert bool((moved[0] == 0).all())
    np.testing.assert_allclose(moved[1:].norm(dim=-1), 0.4 * norms[2], rtol=1e-4)
    np.testing.assert_allclose(
        moved[1:] @ torch.tensor(UNIT, dtype=torch.float32), -0.4 * norms[2] * np.linalg.norm(UNIT), rtol=1e-4
    )


def test_the_reference_lengths_are_means_over_positions_from_one_and_measured_once(tiny, monkeypatch):
    from analyses import _steer
    from analyses.tokenization import run_tokenization

    pair = tiny("mistral")
    norms = reference_norms(pair.model)
    ids = run_tokenization(pair.model, _steer.REFERENCE_TEXT, keep="start").ids
    with torch.no_grad():
        states = pair.plain(torch.tensor([ids]), output_hidden_states=True).hidden_states  # the last one is normed
    for layer in range(pair.model.config.n_layers):
        assert norms[layer] == pytest.approx(float(states[layer][0, 1:].norm(dim=-1).mean()), rel=1e-4)
    monkeypatch.setattr(_steer, "_measure_norms", lambda model: pytest.fail("measured twice"))
    assert reference_norms(pair.model) is norms
    with pytest.raises(ValueError, match="read-only"):
        norms[0] = 1


def test_a_run_in_two_pieces_with_a_cache_is_the_whole_run(tiny):
    model = tiny("llama").model
    for where in ("prompt", "new", "both"):
        whole = steered(model, PROMPT, n_prompt=8, coefficient=0.5, where=where)
        steer = read_steer(model, VECTOR.wire | {"coefficient": 0.5, "where": where})
        cache, rows = None, []
        for start, end in ((0, 6), (6, 9), (9, 10), (10, 12)):  # the prompt's end, 8, lies inside a piece
            with torch.inference_mode(), model.hooks(*steer_hooks(model, steer, start=start, n_prompt=8)):
                logits, cache = model.extend(PROMPT[start:end], cache, last_only=False)
            rows.append(logits[0])
        np.testing.assert_allclose(torch.cat(rows), whole, atol=1e-4)


@pytest.mark.parametrize(
    ("where", "first", "start", "columns", "touched"),
    [
        ("both", False, 0, 5, [1, 2, 3, 4]),
        ("both", True, 0, 5, [0, 1, 2, 3, 4]),
        ("prompt", False, 0, 4, [1, 2]),
        ("prompt", False, 2, 3, [2]),
        ("prompt", False, 4, 3, []),
        ("new", False, 0, 4, [3]),
        ("new", False, 2, 4, [3, 4, 5]),
        ("new", False, 7, 1, [7]),
        ("new", True, 0, 2, []),
    ],
)
def test_which_positions_of_a_prompt_of_four_are_changed(tiny, where, first, start, columns, touched):
    steer = read_steer(tiny("llama").model, VECTOR.wire | {"coefficient": 1, "where": where, "first": first})
    at = steer.span(start, columns, 4)
    assert list(range(start, start + columns))[at] == touched


def test_the_only_token_of_a_prompt_is_left_alone(tiny):
    steer = read_steer(tiny("llama").model, VECTOR.wire | {"coefficient": 1})
    assert (steer.span(0, 1, 1), steer.span(1, 1, 1)) == (slice(1, 1), slice(0, 1))
    found = run_steering(tiny("llama").model, (7,), VECTOR, coefficient=0.6)
    assert found.n_steered == 0 and np.array_equal(found.logits[0], found.logits[1])


def test_projecting_out_leaves_no_component_and_nothing_else_changes():
    stream = torch.randn(3, 5, D, generator=torch.Generator().manual_seed(1))
    unit = torch.tensor(UNIT / np.linalg.norm(UNIT), dtype=torch.float32)
    left = change_stream(stream, unit, 1.0, "project_out")
    np.testing.assert_allclose(left @ unit, 0, atol=1e-6)
    np.testing.assert_allclose(left + (stream @ unit)[..., None] * unit, stream, atol=1e-6)
    np.testing.assert_allclose(
        change_stream(stream, unit, 0.25, "project_out") @ unit, 0.75 * (stream @ unit), atol=1e-6
    )
    half = change_stream(stream.half(), unit, 200.0, "add")
    assert half.dtype == torch.float16 and bool(half.isfinite().all())


def test_projecting_out_in_a_run_empties_the_direction_there(tiny):
    found = run_steering(tiny("llama").model, PROMPT, VECTOR, layer=[1, 2], mode="project_out")
    assert abs(found.projection[0, 1:3]).min() > 1e-2  # it was there
    np.testing.assert_allclose(found.projection[1, 1:3], 0, atol=1e-4)
    assert np.isnan(found.added).all() and found.coefficient == 1


def test_the_comparison_is_three_plain_runs_and_their_numbers_are_worked_out_from_the_logits(tiny):
    pair, words, others = tiny("llama"), (5, 9, 200), (41, 11)
    found = run_steering(pair.model, PROMPT, VECTOR, coefficient=0.4, targets=words, against=others, top_k=4, seed=3)
    assert found.runs == ("baseline", "steered", "random")
    size = 0.4 * float(reference_norms(pair.model)[1])
    control = random_vector_like(VECTOR, 3).direction
    for run, direction in ((0, 0 * UNIT), (1, UNIT), (2, control)):
        added = size * direction / max(1e-9, np.linalg.norm(direction))
        logits = plainly_steered(pair, "llama", PROMPT, 1, added, slice(1, None))[-1].double()
        shares = logits.softmax(-1)
        np.testing.assert_allclose(found.logits[run], logits, atol=1e-4)
        odds = math.log(float(shares[list(words)].sum()) / float(shares[list(others)].sum()))
        assert found.log_odds[run] == pytest.approx(odds, abs=1e-4)
        assert found.top_ids[run].tolist() == logits.topk(4).indices.tolist()
        np.testing.assert_allclose(found.target_log_probability[run], shares[list(words)].log(), atol=1e-4)
        plain_shares = torch.tensor(found.logits[0]).double().log_softmax(-1)
        divergence = float((plain_shares.exp() * (plain_shares - shares.log())).sum())
        assert found.kl_nats[run] == pytest.approx(divergence, abs=1e-4)
    assert found.added[0] == pytest.approx(size) and found.added_relative[0] == pytest.approx(0.4)
    assert found.projection[1, 1] - found.projection[0, 1] == pytest.approx(size, rel=1e-3)
    assert found.projection[0, 0] == found.projection[1, 0]  # nothing is changed before the layer
    up, down = found.raised(k=3)
    change = torch.tensor(found.logits[1]).softmax(-1) - torch.tensor(found.logits[0]).softmax(-1)
    assert up[0] == int(change.argmax()) and down[0] == int(change.argmin())
    assert found.to_frame().query("run == 'random' and rank == 0")["id"].item() == found.top_ids[2, 0]


def test_two_people_with_two_vectors_do_not_mix(tiny):
    model = tiny("gemma2").model
    other = random_vector_like(VECTOR, 9)
    alone = [run_steering(model, PROMPT, vector, coefficient=0.5).logits for vector in (VECTOR, other)]
    running = [steering_steps(model, PROMPT, vector=vector, coefficient=0.5) for vector in (VECTOR, other)]
    results = [None, None]
    while any(result is None for result in results):
        for index, steps in enumerate(running):
            if results[index] is None:
                try:
                    with torch.inference_mode():
                        next(steps)
                    assert model.hook_count() == 0
                    assert not torch.is_inference_mode_enabled()
                except StopIteration as stop:
                    results[index] = stop.value.logits
    assert not np.array_equal(*alone)
    for found, expected in zip(results, alone, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_no_hook_is_left_after_a_stop_in_the_middle_of_a_pass(tiny):
    model, calls = tiny("llama").model, []

    def stop():
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    before = plain(model)
    reference_norms(model)
    model.interrupt = stop
    try:
        with pytest.raises(KeyboardInterrupt):
            run_steering(model, PROMPT, VECTOR, coefficient=0.5, compare=False)
    finally:
        del model.interrupt
        model.interrupt = lambda: None
    assert model.hook_count() == 0
    np.testing.assert_array_equal(plain(model), before)


def test_the_wire_form_and_the_intervention_mean_the_same(tiny):
    model = tiny("llama").model
    expected = run_steering(model, PROMPT, VECTOR, coefficient=0.4, compare=False).logits
    for form in (VECTOR.wire, VECTOR.intervention(size=3), VECTOR.intervention(coefficient=1, where="both")):
        found = run_steering(model, PROMPT, form, coefficient=0.4, compare=False)
        np.testing.assert_array_equal(found.logits, expected)
        assert found.runs == ("steered",) and np.isnan(found.kl_nats).all() and np.isnan(found.log_odds_change).all()


def test_a_slider_costs_one_pass_and_a_comparison_three():
    profile = Profile(0.01, 1e-3, 1e-6, 1e-4, n_layers=30, n_heads=9, d_model=576, d_vocab=49152, n_ctx=8192)
    one, three = (cost_steering(profile, 10, {"compare": compare}).seconds for compare in (False, True))
    assert one == pytest.approx(0.01 + 0.01 + 1e-4 + 1e-4) and three == pytest.approx(3 * one)
