import numpy as np
import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from analyses.sampling import entropy_nats, log_softmax, reshape_distribution

FOUR = np.log(np.array([0.5, 0.25, 0.15, 0.1])).astype(np.float32)  # probabilities to work with by hand


def by_transformers(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The same distribution by generate()'s own classes, in float64."""
    scores = torch.tensor(logits, dtype=torch.float64)[None]
    warpers = [TemperatureLogitsWarper(temperature)] if temperature != 1 else []
    warpers += [TopKLogitsWarper(top_k)] if top_k else []
    warpers += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    for warper in warpers:
        scores = warper(None, scores)
    return scores.softmax(-1)[0].numpy()


GRID = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    for temperature in (0.3, 1.0, 2.0)
    for top_k in (0, 1, 7, 5000)
    for top_p in (0.05, 0.5, 0.9, 1.0)
]


def assert_same_as_transformers(logits, params):
    expected, found = by_transformers(logits, **params), reshape_distribution(logits, **params)
    assert np.array_equal(found.probability > 0, expected > 0)
    np.testing.assert_allclose(found.probability, expected, rtol=1e-9, atol=0)
    assert found.n_kept == (expected > 0).sum()


@pytest.mark.parametrize("params", GRID)
def test_equals_transformers_on_random_logits(params):
    logits = np.random.default_rng(0).normal(scale=3, size=1000).astype(np.float32)
    assert_same_as_transformers(logits, params)


def test_ties_at_the_top_k_edge_stay_as_in_transformers():
    logits = np.array([2, 1, 3, 2, 2], dtype=np.float32)
    assert_same_as_transformers(logits, {"top_k": 2})
    assert reshape_distribution(logits, top_k=2).n_kept == 4


def test_ties_at_the_top_p_edge_keep_the_lowest_ids():
    found = reshape_distribution(np.array([0, 1, 0, 1, 1], dtype=np.float32), top_p=0.5)  # the ones have 0.26 each
    assert np.flatnonzero(found.probability).tolist() == [1, 3]


def test_worked_by_hand():
    top_k = reshape_distribution(FOUR, top_k=2)
    np.testing.assert_allclose(top_k.probability, [2 / 3, 1 / 3, 0, 0], rtol=1e-6)
    assert top_k.n_kept == 2 and top_k.kept_mass == pytest.approx(0.75)
    assert top_k.entropy_nats == pytest.approx(np.log(3) - 2 / 3 * np.log(2))
    # 0.5 + 0.25 does not reach 0.8, the third token does. After top-k = 2, 0.5 is two thirds and reaches 0.6 alone.
    top_p = reshape_distribution(FOUR, top_p=0.8)
    np.testing.assert_allclose(top_p.probability, np.array([50, 25, 15, 0]) / 90, rtol=1e-6)
    assert top_p.n_kept == 3 and top_p.kept_mass == pytest.approx(0.9)
    both = reshape_distribution(FOUR, top_k=2, top_p=0.6)
    assert both.probability.tolist() == [1, 0, 0, 0] and both.kept_mass == pytest.approx(0.5)
    # Temperature 1/2 squares the probabilities: 0.25, 0.0625, 0.0225, 0.01 of 0.345.
    cold = reshape_distribution(FOUR, temperature=0.5, top_k=1)
    assert cold.kept_mass == pytest.approx(0.25 / 0.345) and cold.entropy_nats == 0


def test_nothing_excluded_leaves_the_distribution():
    plain = reshape_distribution(FOUR)
    np.testing.assert_allclose(plain.probability, [0.5, 0.25, 0.15, 0.1], rtol=1e-6)
    assert plain.n_kept == 4 and plain.kept_mass == pytest.approx(1)


def test_temperature_zero_is_greedy_and_its_limit():
    greedy = reshape_distribution(np.array([1, 5, 5], dtype=np.float32), temperature=0.0, top_k=3, top_p=0.5)
    assert greedy.probability.tolist() == [0, 1, 0]
    assert (greedy.n_kept, greedy.kept_mass, greedy.entropy_nats) == (1, 1.0, 0.0)
    np.testing.assert_allclose(reshape_distribution(FOUR, temperature=1e-300).probability, [1, 0, 0, 0])


def test_a_masked_token_is_never_kept():
    masked = reshape_distribution(np.array([0, -np.inf, 0], dtype=np.float32), top_k=2)
    assert masked.probability.tolist() == [0.5, 0, 0.5] and masked.entropy_nats == pytest.approx(np.log(2))


def test_log_softmax_and_entropy_of_a_large_flat_vocabulary():
    flat = log_softmax(np.full(49_152, 40, dtype=np.float32))
    assert flat[0] == pytest.approx(-10.8027, abs=1e-4)
    assert entropy_nats(np.exp(flat)) == pytest.approx(np.log(49_152))


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"temperature": -0.1}, "needs a temperature of at least 0; found -0.1; choose"),
        ({"temperature": float("nan")}, "needs a temperature of at least 0; found nan; choose"),
        ({"top_k": -1}, "needs a top-k of at least 0; found -1; choose"),
        ({"top_p": 0.0}, "needs a top-p above 0 and at most 1; found 0.0; choose"),
        ({"top_p": 1.5}, "needs a top-p above 0 and at most 1; found 1.5; choose"),
    ],
)
def test_refusals(params, sentence):
    with pytest.raises(ValueError, match=sentence):
        reshape_distribution(FOUR, **params)


@pytest.mark.parametrize("logits", [[], [np.nan, 1], [-np.inf, -np.inf], [np.inf, 1]])
def test_logits_that_are_no_distribution_are_refused(logits):
    with pytest.raises(ValueError, match="needs logits with a finite largest value; found none; compute"):
        reshape_distribution(np.array(logits, dtype=np.float32))


@pytest.fixture(scope="module")
def story_logits(smol_hf):
    """Logits after "Once upon a time there was a", by plain transformers."""
    model, tokenizer = smol_hf
    with torch.inference_mode():
        return model(**tokenizer("Once upon a time there was a", return_tensors="pt")).logits[0, -1].numpy()


@pytest.mark.embedded
def test_embedded_top_p_is_over_the_whole_vocabulary(story_logits):
    """Renormalising over the 50 tokens on display gives sets of 32 and 41 tokens, and 0.117 for the first one."""
    plain = reshape_distribution(story_logits)
    assert plain.probability.max() == pytest.approx(0.078, abs=5e-4)
    assert np.sort(plain.probability)[-50:].sum() == pytest.approx(0.663, abs=5e-4)
    assert reshape_distribution(story_logits, top_k=50).probability.max() == pytest.approx(0.117, abs=1e-3)
    # The counts move by a few when the last digits of the logits do (another machine's order of summation).
    assert reshape_distribution(story_logits, top_p=0.9).n_kept == pytest.approx(546, abs=3)
    assert reshape_distribution(story_logits, top_p=0.9, temperature=2.0).n_kept == pytest.approx(11_638, abs=30)


@pytest.mark.embedded
def test_embedded_distribution_equals_transformers(story_logits):
    for params in (
        {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
        {"temperature": 1.3, "top_p": 0.95},
        {"top_p": 0.5},
    ):
        assert_same_as_transformers(story_logits, params)
