"""A request that does not fit is refused before it runs, with the number, the limit and a way that fits."""

import pytest

from analyses._steps import Analysis, Cost, Profile
from app.backend.admission import Limits, admit, duration
from app.backend.protocol import Refused, Request

PROFILE = Profile(0.0, 0.01, 0.0, 0.0, n_layers=2, n_heads=2, d_model=8, d_vocab=50, n_ctx=1000)


def analysis(bytes_per_token: int = 10) -> Analysis:
    def cost(profile, n_tokens, params):
        if "wrong" in params:
            raise ValueError("needs a; found b; do c.")
        return Cost(profile.forward_seconds(n_tokens), n_tokens * bytes_per_token, 10)

    return Analysis(steps=lambda: None, cost=cost, result=dict)


def test_what_fits_passes():
    admit(Request("x", (1,) * 100), analysis(), PROFILE, Limits(seconds=1.0, peak_bytes=1000))


def test_too_many_seconds_names_number_limit_and_the_longest_prompt_that_fits():
    with pytest.raises(Refused) as caught:
        admit(Request("x", (1,) * 900), analysis(), PROFILE, Limits(seconds=2.0, peak_bytes=10**9))
    assert caught.value.code == "too_large"
    assert caught.value.message == "needs about 9.0 s here; the limit is 2.0 s (900 tokens); use at most 200 tokens."


def test_too_many_bytes_too():
    with pytest.raises(Refused, match=r"9\.0 GB of memory; 1\.0 GB may be used \(900 tokens\); use at most 100 tokens"):
        admit(Request("x", (1,) * 900), analysis(10**7), PROFILE, Limits(seconds=99.0, peak_bytes=10**9))


def test_a_bad_parameter_is_a_bad_request_not_a_crash():
    with pytest.raises(Refused) as caught:
        admit(Request("x", (1,), {"wrong": 1}), analysis(), PROFILE, Limits(seconds=1.0, peak_bytes=1))
    assert (caught.value.code, caught.value.message) == ("bad_request", "needs a; found b; do c.")


def test_durations_as_people_say_them():
    assert [duration(s) for s in (0.44, 9.96, 12.3, 99.0, 240.0)] == ["0.4 s", "10.0 s", "12 s", "99 s", "4 min"]
