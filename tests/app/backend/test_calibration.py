"""The fit recovers the times it was made from, and never predicts negative seconds."""

import numpy as np
import pytest

from app.backend.calibration import fit_forward


def test_three_lengths_give_back_the_three_terms():
    lengths = (16, 64, 256)
    seconds = [0.09 + 2.1e-3 * n + 3.6e-6 * n**2 for n in lengths]
    assert fit_forward(lengths, seconds) == pytest.approx((0.09, 2.1e-3, 3.6e-6), rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_noise_never_gives_a_negative_term(seed):
    noise = np.random.default_rng(seed).uniform(0.2, 5, 3)
    seconds = [float(0.05 * noise[i] + 1e-3 * n) for i, n in enumerate((16, 64, 256))]
    terms = fit_forward((16, 64, 256), seconds)
    assert min(terms) >= 0 and max(terms) > 0
    predicted = [terms[0] + terms[1] * n + terms[2] * n**2 for n in (16, 64, 256)]
    assert all(0.1 < p / s < 10 for p, s in zip(predicted, seconds, strict=True))


def test_a_model_with_one_length_only():
    terms = fit_forward((8,), [0.02])
    assert terms[0] + terms[1] * 8 + terms[2] * 64 == pytest.approx(0.02)
