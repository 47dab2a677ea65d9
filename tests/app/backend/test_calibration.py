"""The fit recovers the times it was made from, and never predicts negative seconds."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from app.backend.calibration import fit_forward, load_profile


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


def test_a_kept_profile_is_used_unless_it_was_measured_on_a_busy_machine(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path))
    model = tiny("llama").model
    first = load_profile(model)
    (file,) = (tmp_path / "profiles").iterdir()
    fast = replace(first, base=first.base / 10, per_token=0.0, per_pair=0.0)
    file.write_text(json.dumps(asdict(fast)))
    assert load_profile(model) == fast
    file.write_text(json.dumps(asdict(replace(first, base=60.0))))
    found = load_profile(model)
    assert found.base < 30.0
    assert json.loads(file.read_text()) == asdict(found), "the next start finds the better one"
