"""What cannot be added to a stream is refused before a forward pass, in one sentence."""

import math

import numpy as np
import pytest

from analyses._direction import encode_values
from analyses._steer import read_steer
from analyses.steering import run_steering
from analyses.steering_vector import SteeringVector
from tests.analyses.test_steering import VECTOR, D
from tests.tiny import PROMPT

WIRE = VECTOR.wire
BAD = [
    ([], "needs a mapping"),
    (WIRE | {"coefficient": 0.3, "alpha": 1}, "found 'alpha'"),
    (WIRE, "found neither"),
    (WIRE | {"coefficient": 0.3, "size": 2}, "found both"),
    (WIRE | {"coefficient": math.nan}, "needs a coefficient from -100 to 100; found nan"),
    (WIRE | {"coefficient": True}, "found True"),
    (WIRE | {"coefficient": "0.3"}, "found '0.3'"),
    (WIRE | {"size": -2e6}, "needs a size"),
    (WIRE | {"coefficient": 1, "mode": "replace"}, "needs a mode"),
    (WIRE | {"size": 1, "mode": "project_out"}, "needs no size"),
    (WIRE | {"coefficient": -0.5, "mode": "project_out"}, "from 0 to 1"),
    (WIRE | {"coefficient": 1, "where": "answer"}, "needs where"),
    (WIRE | {"coefficient": 1, "first": 1}, "true or false"),
    (WIRE | {"coefficient": 1, "layer": 3}, "layers from 0 to 2"),
    (WIRE | {"coefficient": 1, "layer": [2, 1]}, "layers from 0 to 2"),
    (WIRE | {"coefficient": 1, "layer": "1"}, "needs a layer"),
    (WIRE | {"coefficient": 1, "layer": True}, "needs a layer"),
    ({"layer": 1, "coefficient": 1}, "base64 text; found NoneType"),
    (WIRE | {"coefficient": 1, "values": "!!!"}, "base64 of float32"),
    (WIRE | {"coefficient": 1, "values": "ä"}, "base64 of float32"),
    (WIRE | {"coefficient": 1, "values": encode_values(np.ones(31))}, "32 numbers .128 bytes.*found 124 bytes"),
    (WIRE | {"coefficient": 1, "values": encode_values(np.full(D, np.nan))}, "NaN"),
    (WIRE | {"coefficient": 1, "values": encode_values(np.zeros(D))}, "only zeros"),
]


@pytest.mark.parametrize(("item", "words"), BAD)
def test_what_cannot_be_added_is_refused_in_one_sentence(tiny, item, words):
    with pytest.raises(ValueError, match=words) as refused:
        read_steer(tiny("llama").model, item)
    assert str(refused.value).count(";") >= 2 and str(refused.value).endswith(".")


def test_words_and_models_that_do_not_fit_are_refused(tiny):
    model = tiny("llama").model
    for how, words in [
        ({"targets": [5], "against": [5]}, "found id 5 in both"),
        ({"against": [5]}, "needs target tokens"),
        ({"targets": "wedding"}, "needs a list"),
        ({"targets": [300]}, "target id from 0 to 299"),
        ({"top_k": 0}, "top-k from 1 to 300"),
    ]:
        with pytest.raises(ValueError, match=words):
            run_steering(model, PROMPT, VECTOR, **how)
    stranger = SteeringVector(VECTOR.direction, 1, "s", model="other", fingerprint="another")
    with pytest.raises(ValueError, match="of this model .llama.; found one of 'other'"):
        run_steering(model, PROMPT, stranger)
    with pytest.raises(ValueError, match="needs a steering vector; found list"):
        run_steering(model, PROMPT, [1.0])
