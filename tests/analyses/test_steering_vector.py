"""A vector never changes, its arithmetic is the plain one, and a file is refused unless it is a vector of this model."""

import numpy as np
import pytest
from safetensors.numpy import save

from analyses.steering_vector import (
    SteeringVector,
    check_vector,
    load_vector,
    random_vector_like,
    save_vector,
)

A = SteeringVector(
    np.array([3, 0, 4, 0], np.float32), 2, "a", "tiny", "f1", made="difference of 1 and 1 texts", read="mean"
)
B = SteeringVector(np.array([1, 2, 0, 2], np.float32), 2, "b", "tiny", "f1")


def test_arithmetic_is_that_of_the_numbers_and_keeps_the_origin():
    np.testing.assert_array_equal((A + B).direction, [4, 2, 4, 2])
    np.testing.assert_array_equal((A + B - B).direction, A.direction)
    np.testing.assert_array_equal((-A).direction, [-3, 0, -4, 0])
    np.testing.assert_array_equal(A.scale(0.5).direction, [1.5, 0, 2, 0])
    np.testing.assert_allclose(A.normalise().direction, [0.6, 0, 0.8, 0], rtol=1e-7)
    assert (A.norm, B.norm) == (5, 3)
    assert A.cosine(B) == pytest.approx(3 / 15)
    sum_of_both = A + B
    assert (sum_of_both.name, sum_of_both.model, sum_of_both.layer) == ("a + b", "tiny", 2)
    assert A.at(1).layer == 1 and A.rename("c").name == "c"


def test_what_is_projected_out_is_gone_and_the_rest_stays():
    left = A.project_out(B)
    assert abs(float(left.direction @ B.direction)) < 1e-6
    np.testing.assert_allclose(left.direction, A.direction - 3 / 9 * B.direction, rtol=1e-6)
    with pytest.raises(ValueError, match="parallel"):
        A.project_out(A.scale(-2))


def test_a_vector_cannot_be_changed_from_outside():
    numbers = np.ones(4, np.float32)
    vector = SteeringVector(numbers, 0, "v")
    before = vector.digest
    numbers[0] = 7
    assert vector.digest == before and vector.direction[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        vector.direction[0] = 7
    (vector + vector).scale(3).normalise()
    assert vector.digest == before


def test_the_digest_tells_numbers_layers_and_models_apart():
    others = [A.at(1), B, A.scale(1.0001), SteeringVector(A.direction, 2, "a", fingerprint="f2")]
    assert len({A.digest, *(other.digest for other in others)}) == 5
    assert A.rename("other").digest == A.digest


def test_a_random_vector_has_the_same_length_and_depends_on_its_seed():
    wide = SteeringVector(np.full(4096, 2, np.float32), 3, "w")
    first, again, other = (random_vector_like(wide, seed) for seed in (1, 1, 2))
    assert first.norm == pytest.approx(wide.norm, rel=1e-5)
    assert first.digest == again.digest != other.digest
    assert abs(first.cosine(wide)) < 0.06 and abs(first.cosine(other)) < 0.06  # four times 1 / sqrt(4096)
    assert first.layer == 3 and "seed 1" in first.made


def test_vectors_of_other_widths_models_and_layers_do_not_mix():
    with pytest.raises(ValueError, match="4 numbers; found"):
        A + SteeringVector(np.ones(5, np.float32), 2, "x")
    with pytest.raises(ValueError, match="one model; found 'tiny' and 'other'"):
        A - SteeringVector(np.ones(4, np.float32), 2, "x", "other", "f2")
    with pytest.raises(ValueError, match=r"one layer; found 2 and 3; move one with .at\(2\)"):
        A.project_out(B.at(3))
    for numbers in ([0, 0], [1, np.nan], [np.inf, 1]):
        with pytest.raises(ValueError, match="only zeros|NaN or infinity"):
            SteeringVector(np.array(numbers, np.float32), 0, "x")


def test_a_saved_vector_comes_back_bit_for_bit(tmp_path):
    data = save_vector(A, tmp_path / "a.safetensors")
    for source in (data, tmp_path / "a.safetensors", str(tmp_path / "a.safetensors")):
        found = load_vector(source)
        assert found.direction.tobytes() == A.direction.tobytes()
        assert (found.layer, found.name, found.model, found.fingerprint) == (2, "a", "tiny", "f1")
        assert (found.made, found.read, found.digest) == (A.made, "mean", A.digest)


ONE = {"direction": np.ones(4, np.float32)}
WORDS = {"format": "streamscope steering vector 1", "layer": "2", "name": "n"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",  # a pickle
        (2**62).to_bytes(8, "little") + b"{}",
        save(ONE, WORDS)[:-3],
        save(ONE, WORDS) + b"more",
        save(ONE),
        save(ONE, WORDS | {"format": "another"}),
        save({"weight": np.ones(4, np.float32)}, WORDS),
        save(ONE | {"second": np.ones(4, np.float32)}, WORDS),
        save({"direction": np.ones(4, np.float64)}, WORDS),
        save({"direction": np.ones((2, 2), np.float32)}, WORDS),
        save({"direction": np.full(4, np.nan, np.float32)}, WORDS),
        save({"direction": np.zeros(4, np.float32)}, WORDS),
        save({"direction": np.zeros(0, np.float32)}, WORDS),
        *(save(ONE, WORDS | {"layer": layer}) for layer in ("", "-1", "2.5", "٣", "99999", "nan")),
        save({"direction": np.ones(300_000, np.float32)}, WORDS),
    ],
)
def test_anything_else_is_refused_in_one_sentence(data):
    with pytest.raises(ValueError, match="^needs .+; found .+; .+\\.$"):
        load_vector(data)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="needs a file that can be read; found 'no.safetensors'"):
        load_vector(tmp_path / "no.safetensors")


def test_hostile_words_in_a_file_lose_their_power():
    found = load_vector(
        save(ONE, WORDS | {"name": "a\u202eb\x00<b>\n" + "x" * 500, "evil": "y", "made": "\ud83d\ude00"[:0]})
    )
    assert (
        found.name == "ab<b>" + "x" * 195
    )  # direction characters and control characters gone, cut; markup is the page's to escape


def test_a_vector_belongs_to_its_model():
    assert check_vector(A, d_model=4, n_layers=3, fingerprint="f1") is A
    for wrong in ({"d_model": 5}, {"n_layers": 2}, {"fingerprint": "f2"}):
        with pytest.raises(ValueError, match="^needs "):
            check_vector(A, **({"d_model": 4, "n_layers": 3, "fingerprint": "f1", "model": "m"} | wrong))
    assert check_vector(SteeringVector(A.direction, 0, "x"), d_model=4, n_layers=3, fingerprint="f2").name == "x"


def test_the_intervention_holds_the_numbers_and_only_known_keys():
    item = A.intervention(coefficient=0.45, where="new", layer=[1, 2])["steer"]
    assert {key: item[key] for key in item if key != "values"} == {
        "layer": [1, 2],
        "mode": "add",
        "where": "new",
        "coefficient": 0.45,
    }
    assert A.intervention()["steer"]["coefficient"] == 0.3
    assert A.intervention(mode="project_out")["steer"]["coefficient"] == 1
    assert "coefficient" not in A.intervention(size=12.0, first=True)["steer"]
