"""A direction is the difference that transformers' own streams have; principal, held out and read out are worked by hand."""

import numpy as np
import pytest
import torch

from analyses._contrast_math import DIRECTIONS, by_depth, held_out
from analyses._steer import reference_norms
from analyses.contrast import cost_steering_vector, make_steering_vector, run_steering_vector
from analyses.direction_words import token_direction
from tests.tiny import PROMPT

POSITIVE = [PROMPT[:7], PROMPT[3:9], PROMPT[2:6]]  # in both groups are texts of four tokens: they run together
NEGATIVE = [(8, 9, 10, 11), (60, 61, 62), (8, 77, 5, 4, 3)]


@pytest.mark.parametrize("read", ["mean", "last"])
def test_the_difference_is_that_of_the_streams_of_transformers(tiny, read):
    pair = tiny("llama")
    found = run_steering_vector(pair.model, positive=POSITIVE, negative=NEGATIVE, layer=2, read=read)

    def stream(ids):
        with torch.no_grad():
            row = pair.plain(torch.tensor([ids]), output_hidden_states=True).hidden_states[2][0]
        return (row[1:].mean(0) if read == "mean" else row[-1]).numpy()

    groups = [np.stack([stream(ids) for ids in texts]) for texts in (POSITIVE, NEGATIVE)]
    expected = groups[0].mean(0) - groups[1].mean(0)
    np.testing.assert_allclose(found.direction, expected, atol=1e-4)
    unit = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(found.positive, groups[0] @ unit, atol=1e-4)
    np.testing.assert_allclose(found.negative, groups[1] @ unit, atol=1e-4)
    assert found.positive.mean() - found.negative.mean() == pytest.approx(found.norm, rel=1e-4)
    assert found.reference_norm == pytest.approx(float(reference_norms(pair.model)[2]))
    assert found.norm_by_depth[2] == pytest.approx(found.norm / found.reference_norm, rel=1e-4)
    pairs = groups[0] - groups[1]
    assert found.explained == pytest.approx(np.square(pairs @ unit).sum() / np.square(pairs).sum(), rel=1e-3)
    vector = make_steering_vector(pair.model, name="n", positive=POSITIVE, negative=NEGATIVE, layer=2, read=read)
    assert vector.digest == found.vector("n").digest and vector.fingerprint == pair.model.config.fingerprint
    assert (vector.layer, vector.read, vector.made) == (2, read, "difference of 3 and 3 texts")
    assert found.to_frame()["group"].tolist() == ["positive"] * 3 + ["negative"] * 3


def test_the_principal_direction_is_the_axis_of_the_differences_with_the_sign_of_most():
    negative = np.zeros((3, 3))
    positive = np.array([[4.0, 0, 0], [2.0, 0, 0], [-1.0, 0, 1.0]])
    direction, share = DIRECTIONS["principal"](positive, negative)
    axis = np.linalg.eigh(positive.T @ positive)[1][:, -1]  # another way to the first right singular vector
    axis *= np.sign(axis[0])
    np.testing.assert_allclose(direction / np.linalg.norm(direction), axis, atol=1e-9)
    assert np.linalg.norm(direction) == pytest.approx(abs((positive @ axis).mean()))
    assert share == pytest.approx(np.linalg.svd(positive)[1][0] ** 2 / np.square(positive).sum())
    np.testing.assert_allclose(DIRECTIONS["principal"](-positive, negative)[0], -direction)
    with pytest.raises(ValueError, match="two groups that differ"):
        DIRECTIONS["difference"](positive, positive)


def test_held_out_texts_are_judged_without_themselves():
    positive, negative = np.array([[1.0, 0]] * 4), np.array([[-1.0, 0]] * 4)
    assert [held.tolist() for held in held_out(positive, negative, "difference")] == [[True] * 4] * 2
    positive[3], negative[3] = [-1, 0], [1, 0]  # one pair the other way round: only the others can tell
    assert [held.tolist() for held in held_out(positive, negative, "difference")] == [[True, True, True, False]] * 2
    assert [held.tolist() for held in held_out(positive[:1], negative[:1], "difference")] == [[False]] * 2


def test_separation_is_the_distance_in_pooled_deviations():
    groups = [np.array([1.0, 3.0]).reshape(2, 1, 1), np.array([-1.0, -3.0]).reshape(2, 1, 1)]
    separation, length = by_depth(groups, np.array([2.0]))
    assert separation[0] == pytest.approx(4 / np.sqrt(2)) and length[0] == 2  # variances of 2 with n - 1


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_a_tokens_direction_raises_its_logit_against_the_mean_fastest(tiny, family):
    """Its products with any change are those of the readout's own slope, once the divisor of the norm is held."""
    model, token = tiny(family).model, 41
    direction = token_direction(model, token)
    found = run_steering_vector(model, token=token, layer=1, top_k=5)
    np.testing.assert_allclose(found.direction, direction, rtol=1e-5)
    assert found.promoted_ids[:, 0].tolist() == [token] * 4
    np.testing.assert_allclose(found.promoted_cosine[:, 0], 1, atol=1e-5)
    assert (np.diff(found.promoted_cosine) <= 0).all() and (np.diff(found.suppressed_cosine) >= 0).all()
    assert np.isnan(found.separation).all() and np.isnan(found.held_out_share) and found.read == ""

    parts = model.linear_parts()
    rows = torch.randn(2, model.config.d_model, generator=torch.Generator().manual_seed(3))
    rows -= rows.mean(1, keepdim=True)
    rows /= (
        rows.square().mean(1, keepdim=True).sqrt()
    )  # both have the divisor 1, so their difference passes the norm unchanged
    with torch.inference_mode():
        logits = parts.final_norm(rows) @ parts.weight.T
    lead = logits[:, token] - logits.mean(1)
    assert float(lead[0] - lead[1]) == pytest.approx(float((rows[0] - rows[1]).double().numpy() @ direction), abs=1e-3)


def test_every_depth_is_read_with_its_own_difference(tiny):
    pair = tiny("llama")
    found = run_steering_vector(pair.model, positive=POSITIVE, negative=NEGATIVE, layer=1, top_k=3)
    rows = pair.plain.lm_head.weight.double()
    towards = ((rows - rows.mean(0)) * pair.plain.model.norm.weight.double()).numpy()
    for layer in (1, 2):
        direction = make_steering_vector(pair.model, positive=POSITIVE, negative=NEGATIVE, layer=layer).direction
        cosine = towards @ direction / np.linalg.norm(towards, axis=1) / np.linalg.norm(direction)
        order = np.argsort(-cosine)
        assert found.promoted_ids[layer].tolist() == order[:3].tolist()
        assert found.suppressed_ids[layer].tolist() == order[::-1][:3].tolist()
        np.testing.assert_allclose(found.suppressed_cosine[layer], cosine[order[::-1][:3]], atol=1e-5)


def test_texts_may_be_strings_and_the_unit_of_their_size_does_not_matter(tiny):
    model = tiny("llama").model
    texts = {"positive": ["The cat sat", "on the mat"], "negative": ["One two three", "and then five"]}
    as_ids = {
        name: [tuple(model.tokenizer(text, add_special_tokens=False).input_ids) for text in group]
        for name, group in texts.items()
    }
    assert make_steering_vector(model, layer=1, **texts).digest == make_steering_vector(model, layer=1, **as_ids).digest


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "1 to 128 positive texts; found 0"),
        ({"positive": POSITIVE}, "negative texts; found 0"),
        ({"positive": "one text", "negative": NEGATIVE}, "found one text; write one text a line"),
        ({"positive": [(7,)], "negative": NEGATIVE}, "2 tokens in every positive text .* found 1 in text 0"),
        ({"positive": POSITIVE, "negative": [(5, 300)]}, "negative text 0: needs ids from 0 to 299"),
        ({"positive": POSITIVE, "negative": NEGATIVE, "read": "first"}, "needs read to be one of mean, last"),
        ({"positive": POSITIVE, "negative": NEGATIVE, "method": "pca"}, "needs a method from difference, principal"),
        ({"positive": POSITIVE, "negative": NEGATIVE[:2], "method": "principal"}, "needs pairs .* found 3 and 2"),
        ({"positive": POSITIVE, "negative": POSITIVE}, "needs two groups that differ"),
        ({"positive": POSITIVE, "negative": NEGATIVE, "layer": 3}, "layers from 0 to 2"),
        ({"positive": POSITIVE, "negative": NEGATIVE, "layer": [0, 1]}, "needs one layer"),
        ({"token": 300}, "token id from 0 to 299"),
    ],
)
def test_groups_that_make_no_direction_are_refused(tiny, how, words):
    with pytest.raises(ValueError, match=words):
        run_steering_vector(tiny("llama").model, **{"layer": 1} | how)


def test_the_cost_counts_every_text_once_and_the_lengths():
    from analyses._steps import Profile

    profile = Profile(1.0, 0.0, 0.0, 0.0, n_layers=3, n_heads=2, d_model=8, d_vocab=10, n_ctx=64)
    cost = cost_steering_vector(profile, 0, {"positive": POSITIVE, "negative": ["a text"]})
    assert cost.seconds == 5
    assert cost_steering_vector(profile, 0, {"token": 5}).seconds == 1
