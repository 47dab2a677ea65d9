"""The configuration file is found by Streamlit, from any folder, and says what we mean."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "streamlit_config.toml"
LINK = ROOT / "app" / ".streamlit" / "config.toml"
OURS = {
    "browser.gatherUsageStats": False,
    "server.address": "127.0.0.1",
    "server.headless": True,
    "server.fileWatcherType": "none",
    "server.maxUploadSize": 2,
    "server.maxMessageSize": 50,
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "type",
    "runner.magicEnabled": False,
}


def test_the_link_is_relative_and_leads_to_the_file():
    assert LINK.is_symlink(), (
        "checked out as a text file (Windows without symlinks)? Streamlit would start with its defaults"
    )
    assert str(LINK.readlink()) == "../../streamlit_config.toml"
    assert LINK.resolve() == CONFIG


def test_streamlit_reads_our_values_from_any_folder(tmp_path):
    script = (
        "from streamlit import config\n"
        f"config._main_script_path = {str(ROOT / 'app' / 'server.py')!r}\n"
        f"print({{k: config.get_option(k) for k in {list(OURS)!r}}})\n"
    )
    environment = {"PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == str(OURS)
    assert done.stderr == "", "Streamlit warns about options that it does not know"


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """WCAG 2.2, "contrast ratio"."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_and_white_is_21():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)  # the well-known grey that just fails


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("colour", ["primaryColor", "textColor"])
def test_text_is_readable_on_the_page_and_the_side_bar(mode, colour):
    theme = tomllib.loads(CONFIG.read_text())["theme"][mode]
    assert contrast(theme[colour], theme["backgroundColor"]) >= 4.5
    assert contrast(theme[colour], theme["secondaryBackgroundColor"]) >= 4.5


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_little_is_light_in_light_mode_and_dark_in_dark_mode(mode):
    theme = tomllib.loads(CONFIG.read_text())["theme"][mode]
    steps = [luminance(c) for c in theme["chartSequentialColors"]]
    assert steps == sorted(steps, reverse=mode == "light")
    assert len(steps) == len(theme["chartDivergingColors"]) == 10  # Streamlit ignores a list of another length
    assert all(re.fullmatch("#[0-9A-F]{6}", c) for c in theme["chartSequentialColors"] + theme["chartDivergingColors"])
