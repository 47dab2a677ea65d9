"""Limits come from one file and the environment, and a mistake in either is said at start, not ignored."""

import pytest

from app.backend.limits import Limits, load_limits


def test_without_file_and_environment_the_defaults_hold():
    assert load_limits({}) == Limits()
    assert (Limits().seconds, Limits().result_bytes, Limits().heavy_jobs) == (120.0, 16 * 1024 * 1024, 3)


def test_the_environment_wins_over_the_file(tmp_path):
    file = tmp_path / "limits.toml"
    file.write_text("seconds = 30\nheavy_jobs = 1\n")
    found = load_limits({"STREAMSCOPE_LIMITS": str(file), "STREAMSCOPE_LIMIT_SECONDS": "45.5"})
    assert found == Limits(seconds=45.5, heavy_jobs=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("second = 30", "needs limits named seconds, .*; found 'second'"),
        ("seconds = 'x'", "needs a number from 0 up for the limit seconds; found 'x'"),
        ("seconds = -1", "found -1"),
        ("heavy_jobs = 1.5", "needs a whole number for the limit heavy_jobs; found 1.5"),
        ("seconds = inf", "found inf"),
        ("light_jobs = true", "found True"),
        ("seconds 30", "needs TOML in "),
    ],
)
def test_a_mistake_in_the_file_is_said(tmp_path, text, words):
    file = tmp_path / "limits.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=words):
        load_limits({"STREAMSCOPE_LIMITS": str(file)})


def test_a_mistake_in_the_environment_is_said(tmp_path):
    with pytest.raises(ValueError, match="needs a whole number in STREAMSCOPE_LIMIT_BYTES; found '1e9'"):
        load_limits({"STREAMSCOPE_LIMIT_BYTES": "1e9"})
    with pytest.raises(ValueError, match="STREAMSCOPE_LIMITS names; found No such file"):
        load_limits({"STREAMSCOPE_LIMITS": str(tmp_path / "none.toml")})


def test_a_backend_does_not_start_with_limits_that_make_no_sense(monkeypatch):
    from app.backend.client import RemoteBackend

    monkeypatch.setenv("STREAMSCOPE_LIMIT_SECONDS", "soon")
    with pytest.raises(ValueError, match="STREAMSCOPE_LIMIT_SECONDS; found 'soon'"):
        RemoteBackend("thread")
