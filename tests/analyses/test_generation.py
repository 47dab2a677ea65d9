"""Continuations: the same with and without the cache, alone and in a batch, whoever draws, and as transformers writes them."""

import base64
import copy
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses import _bridge
from analyses._steps import Profile
from analyses.generation import cost_generation, generation_steps, run_generation
from tests.tiny import FAMILIES, PROMPT

CUT = [{"delete": [1, "2.mlp"]}]
WHERE = ("prompt", "new", "both")


@pytest.fixture
def endless(tiny, monkeypatch):
    """A tiny family whose texts never end by themselves."""

    def build(family="llama"):
        monkeypatch.setattr(tiny(family).model, "end_ids", frozenset())
        return tiny(family)

    return build


def steering(where="both", size=3.0, layer=1):
    values = np.random.default_rng(5).normal(size=32).astype("<f4")
    return {
        "steer": {"values": base64.b64encode(values.tobytes()).decode(), "layer": layer, "size": size, "where": where}
    }


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_cache_and_the_batch_change_nothing(endless, family):
    model = endless(family).model
    before = model.hook_count()  # transformers keeps hooks of its own on some families once it has recorded outputs
    changed = [*CUT, {"ablate_heads": ["L0H1", [2, 3]]}, steering("prompt", layer=[0, 1]), steering("new")]
    same = {"max_new_tokens": 4, "temperature": 1.0}
    found = [
        run_generation(model, PROMPT, samples=2, variants=[[], changed], use_cache=cache, **same)
        for cache in (True, False)
    ]
    assert found[0].row_ids.tolist() == found[1].row_ids.tolist()
    assert found[0].row_log_probability == pytest.approx(found[1].row_log_probability, abs=1e-3)
    assert (found[0].cached, found[1].cached) == (not model.capabilities["kv_cache"], False)
    alone = [run_generation(model, PROMPT, interventions=each, seed=1, **same) for each in ([], changed)]
    for row, single in zip((1, 3), alone, strict=True):
        assert found[0].row_ids[row].tolist() == single.ids.tolist()
        assert found[0].row_log_probability[row] == pytest.approx(single.log_probability, abs=1e-3)
    assert np.abs(alone[0].row_entropy_nats[0, 0] - alone[1].row_entropy_nats[0, 0]) > 1e-3, "the change is seen"
    assert model.hook_count() == before


def test_without_interventions_it_is_transformers_own_greedy_text(endless):
    pair = endless()
    expected = pair.plain.generate(
        torch.tensor([PROMPT]), max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, len(PROMPT) :]
    assert run_generation(pair.model, PROMPT, max_new_tokens=6).ids.tolist() == expected.tolist()


def greedy(plain, n_new):
    """The most probable continuation, everything read again at each step."""
    ids = list(PROMPT)
    with torch.inference_mode():
        for _ in range(n_new):
            ids.append(int(plain(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(PROMPT) :]


def test_a_deleted_block_is_a_model_with_a_shorter_list_of_layers(endless):
    pair = endless()
    shorter = copy.deepcopy(pair.plain)
    shorter.model.layers = torch.nn.ModuleList([shorter.model.layers[i] for i in (0, 2)])
    found = run_generation(pair.model, PROMPT, max_new_tokens=6, interventions=[{"delete": [1]}])
    assert found.ids.tolist() == greedy(shorter, 6)


def test_an_ablated_head_is_a_model_whose_output_matrix_has_no_columns_for_it(endless):
    pair = endless()
    without = copy.deepcopy(pair.plain)
    with torch.no_grad():
        without.model.layers[1].self_attn.o_proj.weight[:, 16:24] = 0  # head 2, 8 numbers wide
    found = run_generation(pair.model, PROMPT, max_new_tokens=6, interventions=[{"ablate_heads": [[1, 2]]}])
    assert found.ids.tolist() == greedy(without, 6) != greedy(pair.plain, 6)


@pytest.mark.parametrize("where", WHERE)
def test_a_steered_text_is_that_of_a_plain_hook_which_knows_every_position(endless, where):
    pair = endless()
    direction = np.random.default_rng(5).normal(size=32)
    push = torch.tensor(3.0 * direction / np.linalg.norm(direction), dtype=torch.float32)
    last = len(PROMPT) - 1

    def steer(module, args):
        (stream,) = args
        position = torch.arange(stream.shape[1])
        at = {"prompt": position < last, "new": position >= last, "both": position >= 0}[where] & (position > 0)
        return (stream + at[:, None] * push,)

    handle = pair.plain.model.layers[1].register_forward_pre_hook(steer)
    try:
        expected = greedy(pair.plain, 6)
    finally:
        handle.remove()
    found = run_generation(pair.model, PROMPT, max_new_tokens=6, interventions=[steering(where)])
    assert found.ids.tolist() == expected != greedy(pair.plain, 6)


def test_a_row_that_ends_keeps_its_place_and_the_others_go_on(endless, monkeypatch):
    model = endless().model
    free = run_generation(model, PROMPT, max_new_tokens=5, variants=[[], CUT])
    first, second = free.row_ids.tolist()
    ends = {first[2], 299}
    assert not ends & set(second), "the example needs a row that does not meet the end"
    monkeypatch.setattr(model, "end_ids", frozenset(ends))
    for cache in (True, False):
        found = run_generation(model, PROMPT, max_new_tokens=5, variants=[[], CUT], use_cache=cache)
        stop = first.index(first[2]) + 1
        assert found.row_ids.tolist() == [first[:stop] + [-1] * (5 - stop), second]
        assert (found.row_ended, found.ended) == ((True, False), True)
        assert found.ids.tolist() == first[:stop]
        assert found.text == model.tokenizer.decode(first[: stop - 1]).rstrip("\ufffd"), "the end mark is not text"
        assert np.isnan(found.row_log_probability[0, stop:]).all()
        assert (found.row_rank[0, stop:] == -1).all()
        assert (found.to_frame()["row"] == 0).sum() == stop, "what comes after the end is not counted"
    assert len(run_generation(model, PROMPT, max_new_tokens=5).ids) == stop


def test_every_end_token_counts_wherever_it_is_named():
    def ends(config, own):
        model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=config))
        return _bridge.end_ids(SimpleNamespace(original_model=model), SimpleNamespace(eos_token_id=own))

    assert ends([7, 106], 1) == {1, 7, 106}
    assert ends(7, None) == {7}
    assert ends(None, None) == frozenset()


def test_what_is_noted_is_the_models_own_distribution(endless):
    model = endless().model
    found = run_generation(model, PROMPT, max_new_tokens=3, temperature=1.3, top_k=40, seed=3, alternatives=4)
    for step in range(3):
        logits = model.forward([*PROMPT, *found.ids[:step].tolist()])[0, -1].double()
        log_p = logits.log_softmax(-1)
        order = logits.argsort(descending=True, stable=True)
        assert found.log_probability[step] == pytest.approx(float(log_p[found.ids[step]]), abs=1e-5)
        assert found.row_entropy_nats[0, step] == pytest.approx(float(-(log_p.exp() * log_p).sum()), abs=1e-5)
        assert found.top_ids[0, step].tolist() == order[:4].tolist()
        assert found.top_log_probability[0, step] == pytest.approx(log_p[order[:4]].numpy(), abs=1e-5)
        assert order[found.row_rank[0, step]] == found.ids[step]
    table = found.to_frame()
    assert table["id"].tolist() == found.ids.tolist()
    assert table["rank"].tolist() == found.row_rank[0].tolist()


def test_the_same_seed_writes_the_same_whatever_others_draw(endless):
    model = endless().model
    settings = {"max_new_tokens": 6, "temperature": 1.0}
    alone = [run_generation(model, PROMPT, seed=seed, **settings).ids.tolist() for seed in (1, 2)]
    assert alone[0] != alone[1]
    running = [generation_steps(model, PROMPT, seed=seed, **settings) for seed in (1, 2)]
    results = {}
    with torch.inference_mode():
        while len(results) < 2:
            for index, steps in enumerate(running):
                torch.manual_seed(99)  # somebody else's
                try:
                    next(steps)
                except StopIteration as stop:
                    results[index] = stop.value.ids.tolist()
    assert [results[0], results[1]] == alone
    together = run_generation(model, PROMPT, seed=1, samples=2, **settings)
    assert together.row_ids.tolist() == alone, "sample 1 of seed 1 is sample 0 of seed 2"
    twice = run_generation(model, PROMPT, seed=1, variants=[[], []], **settings)
    assert twice.row_ids.tolist() == [alone[0], alone[0]], "variants draw with the same numbers"


def test_progress_holds_everything_so_far_and_text_only_in_whole_characters(endless):
    model = endless().model
    steps = generation_steps(model, PROMPT, max_new_tokens=24, temperature=2.0, samples=2)
    seen = []
    with torch.inference_mode():
        while True:
            try:
                seen.append(next(steps))
            except StopIteration as stop:
                result = stop.value
                break
    assert [each.done for each in seen] == list(range(24))
    for each in seen:
        for name in ("row_ids", "row_log_probability", "row_rank", "row_entropy_nats"):
            np.testing.assert_array_equal(each.partial[name], getattr(result, name)[:, : each.done])
        for row, text in enumerate(each.partial["row_text"]):
            assert not text.endswith("\ufffd")
            assert model.tokenizer.decode(result.row_ids[row, : each.done]).startswith(text)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"max_new_tokens": 53}, "needs 1 to 52 new tokens after a prompt of 12, within the context of 64; found 53"),
        ({"max_new_tokens": 0}, "found 0"),
        ({"max_new_tokens": "many"}, "found 'many'"),
        ({"interventions": [{"stir": 1}]}, "needs interventions such as"),
        ({"interventions": [[1]]}, "needs interventions such as"),
        ({"interventions": [{"delete": [1], "steer": {}}]}, "needs interventions such as"),
        ({"interventions": {"delete": [1]}}, "needs a list of interventions"),
        ({"interventions": [{"delete": [9]}]}, "needs layers from 0 to 2; found 9"),
        ({"interventions": [{"ablate_heads": ["L9H9"]}]}, "needs a head from L0H0 to L2H3; found L9H9"),
        ({"interventions": [{"ablate_heads": 3}]}, "needs a list of heads; found 3"),
        ({"interventions": [{"steer": {"layer": 1}}]}, "needs either a coefficient"),
        ({"interventions": CUT, "variants": [[]]}, "needs interventions or variants; found both"),
        ({"variants": []}, "needs a list of 1 to 64 variants"),
        ({"variants": [[], [{"delete": [9]}]]}, "needs layers from 0 to 2; found 9"),
        ({"samples": 0}, "needs a number of samples from 1 to 64; found 0"),
        ({"samples": 33, "variants": [[], []]}, "needs a number of samples from 1 to 32; found 33"),
        ({"temperature": -0.1}, "needs a temperature of at least 0; found -0.1"),
        ({"temperature": "hot"}, "needs a number for temperature; found 'hot'"),
        ({"top_p": 0}, "needs a top-p above 0 and at most 1; found 0"),
        ({"top_k": -1}, "needs a top-k from 0"),
        ({"seed": 1.5}, "needs a seed from 0"),
        ({"alternatives": 0}, "needs a number of alternatives from 1 to 300; found 0"),
    ],
)
def test_refusals_come_before_anything_is_computed(endless, monkeypatch, params, sentence):
    model = endless().model
    monkeypatch.setattr(model, "interrupt", lambda: pytest.fail("a block ran"))
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        run_generation(model, PROMPT, **params)
    assert len(re.split("; ", str(refused.value))) >= 3, "needs X; found Y; do Z"


def test_a_prompt_that_fills_the_context_has_no_room(endless):
    with pytest.raises(ValueError, match="needs room for a new token within the context of 64; found a prompt of 64"):
        run_generation(endless().model, [1] * 64, max_new_tokens=1)
    full = run_generation(endless().model, [1] * 60, max_new_tokens=4, samples=2)
    assert full.row_ids.shape == (2, 4)


def test_a_model_without_that_capability_is_refused_in_words(endless, monkeypatch):
    model = endless().model
    monkeypatch.setattr(model, "capabilities", {**model.capabilities, "head_output": "its heads are fused."})
    with pytest.raises(ValueError, match="its heads are fused"):
        run_generation(model, PROMPT, interventions=[{"ablate_heads": ["L0H0"]}])


def test_more_rows_cost_more_and_the_result_is_no_larger_than_estimated(endless):
    profile = Profile(0.01, 1e-3, 1e-6, 1e-3, n_layers=3, n_heads=4, d_model=32, d_vocab=300, n_ctx=64)
    one = cost_generation(profile, 12, {"max_new_tokens": 10})
    four = cost_generation(profile, 12, {"max_new_tokens": 10, "samples": 4})
    slow = cost_generation(profile, 12, {"max_new_tokens": 10, "samples": 4, "use_cache": False})
    assert one.seconds < four.seconds < slow.seconds
    assert four.seconds < 4 * one.seconds, "the prompt is read once, and rows share every pass"
    # By hand: the prompt (.022144), ten passes of .011, ten readouts, and ten times seventeen pairs on average.
    assert one.seconds == pytest.approx(0.022144 + 0.11 + 10 * 1e-6 + 0.01 + 1.7e-4, rel=1e-6)
    found = run_generation(endless().model, PROMPT, max_new_tokens=10, samples=4)
    size = sum(value.nbytes if hasattr(value, "nbytes") else len(str(value)) for value in vars(found).values())
    assert size <= four.result_bytes


@pytest.mark.embedded
def test_an_assistant_ends_its_turn_and_the_mark_is_not_text(smol):
    from analyses import run_tokenization

    text = run_tokenization(smol, "What is 2+2?", chat=True)
    found = run_generation(smol, text.ids, max_new_tokens=20)
    assert found.text == "The answer to this classic math problem is 4."  # plain transformers, SmolLM2-135M dequantised
    assert found.ended
    assert len(found.ids) == 12
