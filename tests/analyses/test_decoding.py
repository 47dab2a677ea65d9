"""The next token that is drawn: as transformers' own steps would, with probabilities as they should be; text without halves."""

import numpy as np
import pytest
import torch

from analyses._decoding import Sampler, Written, largest, new_text
from analyses.sampling import logsumexp_and_entropy, reshape_distribution
from tests.tiny import tiny_tokenizer


def test_evenly_spaced_numbers_pick_each_token_as_often_as_its_probability_says():
    logits = np.random.default_rng(0).normal(size=50).astype(np.float32)
    settings = {"temperature": 0.7, "top_k": 20, "top_p": 0.8}
    sampler = Sampler(**settings, seed=0, samples=1)
    n = 1000
    picked = np.bincount([sampler.choose(logits, (i + 0.5) / n) for i in range(n)], minlength=50)
    expected = reshape_distribution(logits, **settings).probability
    assert picked / n == pytest.approx(expected, abs=1.5 / n)
    assert not picked[expected == 0].any()


@pytest.mark.parametrize("settings", [(0.7, 0, 1.0), (1.5, 7, 1.0), (1.0, 0, 0.6), (1.3, 12, 0.7)])
def test_the_same_tokens_can_be_drawn_as_in_transformers(settings):
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    temperature, top_k, top_p = settings
    logits = np.random.default_rng(1).normal(scale=2, size=80).astype(np.float32)
    steps = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        steps.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        steps.append(TopPLogitsWarper(top_p))
    probability = steps(None, torch.tensor(logits)[None])[0].softmax(-1)
    sampler = Sampler(temperature, top_k, top_p, seed=0, samples=1)
    cumulated = probability.double().cumsum(-1)
    for number in np.linspace(0.0005, 0.9995, 100):
        expected = int((cumulated <= number * cumulated[-1]).sum())
        assert sampler.choose(logits, number) == expected


def test_the_ends_of_the_numbers_are_tokens_that_can_be_drawn():
    logits = np.array([-np.inf, 1.0, 2.0, -np.inf], dtype=np.float32)
    sampler = Sampler(1.0, 0, 1.0, seed=0, samples=1)
    assert sampler.choose(logits, 0.0) == 1
    assert sampler.choose(logits, 1 - 2**-53) == 2


def test_greedy_takes_the_lowest_of_equals_and_draws_nothing():
    logits = np.array([0.0, 3.0, 3.0, 1.0], dtype=np.float32)
    sampler = Sampler(0.0, 0, 1.0, seed=0, samples=2)
    assert sampler.choose(logits, 0.9) == 1
    assert sampler.draw() == [0.0, 0.0]


def test_each_sample_has_the_numbers_of_its_own_seed():
    three = [Sampler(1.0, 0, 1.0, seed=4, samples=3).draw() for _ in range(2)]
    assert three[0] == three[1]
    assert len(set(three[0])) == 3
    assert three[0][2] == Sampler(1.0, 0, 1.0, seed=6, samples=1).draw()[0]


def test_the_largest_of_equals_come_by_their_ids():
    assert largest(np.array([5.0, 1.0, 5.0, 7.0, 5.0], dtype=np.float32), 3).tolist() == [3, 0, 2]


def test_a_rank_counts_what_comes_before():
    written = Written(rows=1, max_new=3, k=2, ends=frozenset())
    for choice in (2, 0, 1):
        written.add(np.array([[2.0, 3.0, 2.0]], dtype=np.float32), [choice])
    assert written.rank.tolist() == [[2, 1, 0]]
    assert written.entropy[0, 0] == pytest.approx(0.97533, abs=1e-4)  # of e^2, e^3, e^2


def test_logits_that_are_no_numbers_are_said():
    written = Written(rows=1, max_new=2, k=1, ends=frozenset())
    with pytest.raises(ValueError, match="needs logits that are numbers; found nan before new token 0; change"):
        written.add(np.array([[1.0, np.nan]], dtype=np.float32), [0])


def test_half_a_character_is_not_text_yet():
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode("The 🙂 é", add_special_tokens=False)
    texts = [new_text(tokenizer, (), ids[:n], frozenset()) for n in range(len(ids) + 1)]
    assert texts[-1] == "The 🙂 é"
    assert all("The 🙂 é".startswith(text) for text in texts)
    assert "The " in texts, "between the bytes of the smiley the text waits"
    assert len(set(texts)) < len(texts)


class Pieces:
    """A tokenizer as SentencePiece ones are: the space of the first token is dropped."""

    def decode(self, ids):
        return "".join(f" {i}" for i in ids)[1:]


def test_the_space_of_the_first_new_token_stays():
    assert new_text(Pieces(), (1, 2), (3, 4), frozenset()) == " 3 4"
    assert new_text(Pieces(), (), (3, 4), frozenset()) == "3 4"
    assert new_text(Pieces(), (1, 2), (3, 4), frozenset({4})) == " 3"


@pytest.mark.parametrize("offset", [0.0, 300.0, -80.0])
def test_the_log_sum_and_the_entropy_are_those_of_torch_in_float64(offset):
    logits = (np.random.default_rng(3).normal(scale=4, size=5000) + offset).astype(np.float32)
    logits[7] = -np.inf  # a token that cannot be
    log_p = torch.tensor(logits).double().log_softmax(-1)
    log_sum, entropy = logsumexp_and_entropy(logits)
    assert log_sum == pytest.approx(float(torch.tensor(logits).double().logsumexp(-1)), abs=1e-9)
    assert entropy == pytest.approx(float(torch.distributions.Categorical(logits=log_p).entropy()), abs=1e-9)


def test_a_token_that_is_almost_certain_keeps_its_digits():
    logits = np.array([30.0, 16.0, 15.0], dtype=np.float32)  # float32 alone would lose 1e-6 of 30
    written = Written(1, 1, 1, frozenset())
    written.add(logits[None], [0])
    assert written.log_probability[0, 0] == pytest.approx(-np.log1p(np.exp(-14) + np.exp(-15)), rel=1e-6)
    assert written.entropy[0, 0] == pytest.approx(1.8e-5, rel=0.1)
