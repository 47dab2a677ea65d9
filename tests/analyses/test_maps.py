"""The maps by themselves: the equations, the windows of the text, the files that stay, and what a fit costs."""

import dataclasses
import os

import numpy as np
import pytest
import torch

from analyses import _lens_fit, _maps, linear_lens
from analyses._maps import Moments, tidy
from analyses._steps import Profile
from analyses.linear_lens import cost_linear_lens
from tests.linear import TEXT, files, ridge, rows
from tests.toy_tokenizers import byte_level


def test_the_map_is_the_penalised_least_squares_solution():
    x = rows(60, 6, 1) * torch.tensor([1, 2, 0.1, 5, 1, 1]) + 40  # a mean far larger than the spread
    y = x @ rows(6, 6, 2) + rows(60, 6, 3) - 7
    moments = Moments(x[:25], y[:25])
    moments.add(x[25:], y[25:])
    weight, bias = moments.solve()
    expected = ridge(x, y)
    np.testing.assert_allclose(weight, expected[0], atol=1e-4)
    np.testing.assert_allclose(x @ weight + bias, x.double().numpy() @ expected[0] + expected[1], atol=1e-3)


def test_an_exact_linear_relation_is_recovered(monkeypatch):
    monkeypatch.setattr(_maps, "PENALTY_ROWS", 1e-9)
    x, true = rows(80, 5, 1), rows(5, 5, 2)
    weight, bias = Moments(x, x @ true + 3).solve()
    np.testing.assert_allclose(weight, true, atol=1e-4)
    np.testing.assert_allclose(bias, 3, atol=1e-4)


def test_the_penalty_costs_nothing_where_nothing_changes():
    """However few rows: a stream that only moves by a constant is the identity and that constant."""
    x = rows(4, 7, 1)
    weight, bias = Moments(x, x + 2).solve()
    np.testing.assert_allclose(weight, np.eye(7), atol=1e-5)
    np.testing.assert_allclose(bias, 2, atol=1e-5)


def test_one_row_given_again_and_again_still_has_a_solution():
    x = rows(1, 4, 1).repeat(9, 1)
    weight, bias = Moments(x, 3 * x).solve()
    np.testing.assert_allclose(x @ weight + bias, 3 * x, atol=1e-5)


def test_infinity_in_the_stream_is_named():
    x = rows(9, 3, 1)
    with pytest.raises(ValueError, match="needs a finite stream at every depth; found infinity or NaN; load"):
        Moments(x, x / 0).solve()


# -- windows -------------------------------------------------------------------------------------------------------


def test_windows_have_the_tokenizers_own_tokens_in_front():
    tokenizer = byte_level(adds_bos=True)
    front, ids = _lens_fit.encoded(tokenizer, "the hehe")
    assert front == (tokenizer.bos_token_id,) and tokenizer.decode(ids) == "the hehe"
    assert _lens_fit.windows_of((1, 2, 3, 4, 5), front, 3) == [
        (*front, 1, 2),
        (*front, 3, 4),
    ]  # the rest: nothing to try
    assert _lens_fit.windows_of((1, 2, 3, 4, 5, 6, 7), (), 4) == [(1, 2, 3, 4), (5, 6, 7)]


def test_positions_tried_are_spread_over_all_windows(monkeypatch):
    windows = [(0,) * 6, (0,) * 4, (0,) * 5]  # rows with a next token: 4, 2, 3
    assert [list(r) for r in _lens_fit.spread(windows)] == [[0, 1, 2, 3], [0, 1], [0, 1, 2]]
    monkeypatch.setattr(_lens_fit, "TRIED", 3)
    assert [list(r) for r in _lens_fit.spread(windows)] == [[0, 3], [], [0]]  # of 9 in a row: 0, 3 and 6


def test_the_shipped_text_has_two_parts_that_share_nothing():
    fit, held_out = TEXT.split("\f\n")
    shared = {p for p in fit.split("\n\n") if len(p) > 40} & set(held_out.split("\n\n"))
    assert not shared and TEXT.isascii()
    licence = linear_lens.TEXT.with_name("linear_lens_text.LICENSE.txt").read_text("utf-8")
    assert "Copyright (c) 2001-2023 Python Software Foundation; All Rights Reserved" in licence
    assert "PSF LICENSE AGREEMENT" in licence and "Summary of the changes made" in licence


@pytest.mark.embedded
def test_the_shipped_text_is_long_enough(smol_tokenizer):
    lengths = [len(_lens_fit.encoded(smol_tokenizer, part)[1]) for part in TEXT.split("\f\n")]
    assert lengths[0] >= linear_lens.FIT_TOKENS >= 11_000 and lengths[1] >= linear_lens.HELD_OUT_TOKENS >= 2_500


def test_only_the_newest_fits_of_own_texts_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(_maps, "OWN_FITS", 3)
    for age, name in enumerate(["own-d", "own-c", "own-b", "own-a", "linear-x"]):
        (tmp_path / f"{name}.safetensors").write_bytes(b"x" * 10)
        os.utime(tmp_path / f"{name}.safetensors", (1e9 - age, 1e9 - age))
    (tmp_path / ".own-e.safetensors.1-ab.tmp").write_bytes(b"half")
    os.utime(tmp_path / ".own-e.safetensors.1-ab.tmp", (1e9, 1e9))
    (tmp_path / ".own-f.safetensors.2-ab.tmp").write_bytes(b"being written")
    names = lambda: sorted(f.name.split(".safe")[0] for f in files(tmp_path))  # noqa: E731
    tidy(tmp_path, "own-*.safetensors")
    assert names() == [".own-f", "linear-x", "own-b", "own-c", "own-d"]
    monkeypatch.setattr(_maps, "OWN_BYTES", 15)
    tidy(tmp_path, "own-*.safetensors")
    assert names() == [".own-f", "linear-x", "own-d"]  # the built-in fit is no own text
    monkeypatch.setattr(_maps, "OWN_BYTES", 1)
    tidy(tmp_path, "own-*.safetensors")
    assert "own-d" in names()


def test_cost_by_hand():
    profile = Profile(1.0, 0.01, 0.0, 0.002, n_layers=2, n_heads=1, d_model=100, d_vocab=1000, n_ctx=512)
    forward, operation = 1 + 0.01 * 512, 0.002 / (2 * 100 * 1000)
    built_in = 27 * forward + 2 * (4 * 11_264 * 100**2 + 4.8 * 100**3) * operation + 5 * 256 * 0.002
    assert cost_linear_lens(profile, 0, {}).seconds == pytest.approx(built_in)
    assert cost_linear_lens(profile, 999, {"text": "built-in"}).seconds == pytest.approx(built_in)
    own = 2 * (1 + 0.01 * 400) + 2 * (4 * 400 * 100**2 + 4.8 * 100**3) * operation + 5 * 100 * 0.002
    assert cost_linear_lens(profile, 500, {"text": "prompt"}).seconds == pytest.approx(own)
    # 0.8 GB of sums per depth: one depth at a time, so the text is read twice.
    wide = cost_linear_lens(dataclasses.replace(profile, d_model=10_000), 0, {})
    assert wide.seconds > 2 * 27 * forward
    maps, equations = 2 * 4 * 10_000 * 10_001, 5 * 8 * 10_000**2
    assert 0.8e9 < wide.peak_bytes - maps - equations < 1.3e9
