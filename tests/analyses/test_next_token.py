from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analyses._steps import Profile
from analyses.next_token import cost_next_token, next_token_steps, run_next_token
from analyses.tokenization import run_tokenization, tokenize_text
from analyses.vocabulary import build_vocabulary
from tests.toy_tokenizers import reference, word_level

PROBABILITY = np.array([0.1, 0.5, 0.1, 0.3])


class Stub:
    """A model whose logits name the last token it read: token i makes i + 1 (modulo 4) get 0.5, and so on."""

    config = SimpleNamespace(d_vocab=4, n_ctx=6)

    def __init__(self):
        self.read = []

    def forward(self, ids, *, last_only=False):
        assert last_only
        self.read.append(ids)
        return torch.log(torch.tensor(np.roll(PROBABILITY, ids[-1]), dtype=torch.float32))[None, None] + 7


def test_worked_by_hand():
    after = run_next_token(Stub(), (3, 0), top_k=3)
    assert after.ids.tolist() == [1, 3, 0]  # 0 and 2 tie: the lower id comes first
    np.testing.assert_allclose(after.probability, [0.5, 0.3, 0.1], rtol=1e-6)
    np.testing.assert_allclose(after.log_probability, np.log([0.5, 0.3, 0.1]), rtol=1e-6)
    np.testing.assert_allclose(after.logits, np.log(PROBABILITY) + 7, rtol=1e-6)
    assert after.position == 1 and after.entropy_nats == pytest.approx(-(PROBABILITY * np.log(PROBABILITY)).sum())


def test_only_the_tokens_up_to_the_position_are_read():
    model = Stub()
    assert run_next_token(model, (3, 0, 2), position=0, top_k=1).ids[0] == 0
    assert run_next_token(model, (3, 0, 2), position=-2, top_k=1).position == 1
    assert model.read == [(3,), (3, 0)]


def test_frame_has_the_tokens_when_it_gets_the_vocabulary():
    tokenizer = word_level()
    after = run_next_token(Stub(), tokenize_text(tokenizer, "the", n_ctx=9), top_k=2)
    frame = after.to_frame(build_vocabulary(tokenizer, 4))
    assert frame["token"].tolist() == ["cat", "[UNK]"] and frame["id"].tolist() == [2, 0]
    assert frame["logit"].tolist() == after.logits[[2, 0]].tolist()
    assert frame["log_probability_nats"].iloc[0] == pytest.approx(np.log(0.5), abs=1e-6)
    assert "token" not in after.to_frame()


def test_progress_comes_before_the_forward_pass_and_no_mode_is_left():
    model = Stub()
    steps = next_token_steps(model, (1,), top_k=1)
    assert next(steps).total == 1 and model.read == [] and torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("tokens", "params", "sentence"),
    [
        ((), {}, "needs at least 1 token; found 0; write"),
        ("the", {}, "needs token ids; found text; tokenise"),
        ((4,), {}, "needs ids from 0 to 3; found 4; tokenise"),
        ((1,) * 7, {}, "needs at most 6 tokens .*; found 7; shorten"),
        ((1, 2), {"position": 2}, "needs a position from 0 to 1; found 2; choose"),
        ((1, 2), {"position": -3}, "needs a position from 0 to 1; found -3; choose"),
        ((1,), {"top_k": 0}, "needs a top-k from 1 to 4; found 0; choose"),
        ((1,), {"top_k": 5}, "needs a top-k from 1 to 4; found 5; choose"),
    ],
)
def test_refused_before_a_forward_pass_is_paid_for(tokens, params, sentence):
    model = Stub()
    with pytest.raises(ValueError, match=sentence):
        run_next_token(model, tokens, **params)
    assert model.read == []


def test_cost_counts_the_tokens_that_are_read():
    profile = Profile(1.0, 0.1, 0.0, 0.5, n_layers=1, n_heads=1, d_model=1, d_vocab=100, n_ctx=50)
    assert cost_next_token(profile, 20, {}).seconds == pytest.approx(1 + 2 + 0.5)
    assert cost_next_token(profile, 20, {"position": 4}).seconds == pytest.approx(1 + 0.5 + 0.5)
    assert cost_next_token(profile, 20, {"position": -20}).seconds == pytest.approx(1 + 0.1 + 0.5)
    assert cost_next_token(profile, 20, {"top_k": 10}).result_bytes == 4 * 100 + 12 * 10


@pytest.mark.embedded
def test_embedded_equals_plain_transformers(smol, smol_hf):
    """By torch's log_softmax on the logits of every position at once, without our model, prefix or softmax."""
    hf, tokenizer = smol_hf
    text = run_tokenization(smol, "The capital of France is")
    with torch.inference_mode():
        logits = hf(torch.tensor([tokenizer("The capital of France is").input_ids])).logits[0]
    for position in (0, 2, -1):
        after, expected = run_next_token(smol, text.ids, position=position), logits[position].log_softmax(-1)
        np.testing.assert_allclose(after.logits, logits[position], atol=1e-3)
        np.testing.assert_allclose(after.log_probability, expected[after.ids.tolist()], atol=1e-3)
        assert set(after.ids.tolist()) == set(expected.topk(10).indices.tolist())
        entropy = torch.distributions.Categorical(logits=logits[position].double()).entropy().item()
        assert after.entropy_nats == pytest.approx(entropy, abs=1e-3)
    assert after.ids[0] == 7042  # " Paris"
    assert after.probability[0] == pytest.approx(0.7725, abs=1e-3)
    assert after.entropy_nats / np.log(2) == pytest.approx(2.137, abs=0.01)


@pytest.mark.embedded
@pytest.mark.parametrize("bos", ["none", "endoftext", "own"])
def test_embedded_bos_changes_the_answer(smol, bos):
    text = run_tokenization(smol, "The Eiffel Tower is located in the city of", bos=bos)
    after = run_next_token(smol, text)
    assert after.ids[0] == 7042
    assert after.probability[0] == pytest.approx(reference()["eiffel_paris"][bos], abs=1e-3)
