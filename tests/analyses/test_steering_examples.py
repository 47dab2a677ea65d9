"""The examples that ship with the app do on the embedded model what they say."""

import numpy as np
import pytest

from analyses.contrast import make_steering_vector
from analyses.sampling import log_softmax
from analyses.steering import run_steering
from analyses.steering_examples import STEERING_EXAMPLES
from analyses.tokenization import run_tokenization

BY_NAME = {example.name: example for example in STEERING_EXAMPLES}


def test_an_example_is_complete_and_its_range_holds_its_coefficient():
    assert len(BY_NAME) == len(STEERING_EXAMPLES) >= 4
    for example in STEERING_EXAMPLES:
        assert len(example.positive) == len(example.negative) >= 6
        low, high = example.working
        assert -0.6 <= low < 0 < example.coefficient <= high <= 0.6
        assert not set(example.targets) & set(example.against)
        assert example.effect_nats > 2 * abs(example.random_effect_nats)
        assert example.opposite_effect_nats < 0 < example.loss_change_nats
        assert example.look_for.endswith(".")


def test_every_word_of_an_example_is_one_token(smol_tokenizer):
    for example in STEERING_EXAMPLES:
        for word in (*example.targets, *example.against):
            assert len(smol_tokenizer(word, add_special_tokens=False).input_ids) == 1, word


@pytest.mark.parametrize(("name", "layer"), [("weddings", 12), ("sentiment", 20)])
def test_the_two_best_known_examples_move_their_words_both_ways(smol, name, layer):
    example = BY_NAME[name]
    vector = make_steering_vector(smol, name=name, **example.texts)
    assert vector.layer == layer
    ids = run_tokenization(smol, example.prompts[0]).ids
    words = {"targets": example.targets, "against": example.against}
    runs = {c: run_steering(smol, ids, vector, coefficient=c, compare=False, **words) for c in (-0.3, 0, 0.3, 0.6, 1.2)}
    assert runs[0.3].log_odds[0] - runs[-0.3].log_odds[0] > 4
    if name == "sentiment":
        return
    plain = log_softmax(runs[0].logits[0])
    kl = [float(np.exp(plain) @ (plain - log_softmax(runs[c].logits[0]))) for c in (0, 0.3, 0.6, 1.2)]
    assert kl[0] == 0 and np.all(np.diff(kl) > 0)
