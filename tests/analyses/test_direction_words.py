"""A direction reads as plain transformers' rows say; a sum lies between its parts; refusals."""

import numpy as np
import pytest

from analyses._steps import Profile
from analyses.direction_words import cost_direction_words, run_direction_words, token_direction
from analyses.steering_vector import SteeringVector


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_direction_reads_as_the_rows_of_transformers_say(tiny, family):
    pair = tiny(family)
    direction = np.random.default_rng(5).normal(size=pair.model.config.d_model).astype(np.float32)
    found = run_direction_words(pair.model, SteeringVector(direction, 1, "any"), top_k=4)
    norm = pair.plain.model.norm if family == "llama" else pair.plain.transformer.ln_f
    rows = pair.plain.lm_head.weight.double()
    own = ((rows - rows.mean(0)) * norm.weight.double()).numpy()
    if family == "gpt2":
        own = own - own.mean(1, keepdims=True)  # LayerNorm takes the mean away: nothing acts along it
    cosine = own @ direction / np.linalg.norm(own, axis=1) / np.linalg.norm(direction.astype(np.float64))
    order = np.argsort(-cosine)
    assert found.promoted_ids.tolist() == order[:4].tolist()
    assert found.suppressed_ids.tolist() == order[::-1][:4].tolist()
    np.testing.assert_allclose(found.promoted_cosine, cosine[order[:4]], atol=1e-5)
    np.testing.assert_allclose(found.suppressed_cosine, cosine[order[::-1][:4]], atol=1e-5)


def test_the_sum_of_two_tokens_directions_reads_as_both_and_its_opposite_as_neither(tiny):
    model = tiny("llama").model
    first, second = (
        SteeringVector(direction.astype(np.float32), 2, str(token)).normalise()
        for token in (41, 7)
        for direction in [token_direction(model, token)]
    )
    both = run_direction_words(model, first + second, top_k=2)
    assert set(both.promoted_ids.tolist()) == {41, 7}
    assert run_direction_words(model, -(first + second), top_k=2).suppressed_ids.tolist() == both.promoted_ids.tolist()
    frame = both.to_frame()
    assert frame["list"].tolist() == ["promoted"] * 2 + ["suppressed"] * 2
    assert frame["id"].tolist() == [*both.promoted_ids, *both.suppressed_ids]


@pytest.mark.parametrize("top_k", [0, True, 2.5, 10_000])
def test_a_list_that_cannot_be_is_refused(tiny, top_k):
    vector = SteeringVector(np.ones(tiny("llama").model.config.d_model, dtype=np.float32), 0, "ones")
    with pytest.raises(ValueError, match="needs a top-k from 1 to"):
        run_direction_words(tiny("llama").model, vector, top_k=top_k)


def test_a_vector_of_another_model_is_refused_and_the_cost_does_not_depend_on_the_prompt(tiny):
    model = tiny("llama").model
    other = SteeringVector(np.ones(model.config.d_model, dtype=np.float32), 0, "ones", model="else", fingerprint="else")
    with pytest.raises(ValueError, match="needs a vector of this model"):
        run_direction_words(model, other)
    profile = Profile(1.0, 1.0, 1.0, 2.0, n_layers=3, n_heads=2, d_model=8, d_vocab=10, n_ctx=64)
    assert cost_direction_words(profile, 50, {}) == cost_direction_words(profile, 1, {})
    assert cost_direction_words(profile, 1, {}).seconds == 4, "two readouts: the mean row, and the cosines"
