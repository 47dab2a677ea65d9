"""The lens grid's half in the browser: keys, scrolling, colours, the picture."""

import numpy as np

from tests.app.test_lens_grid import evaluate


def test_keys_walk_and_stop_at_the_edges():
    walk = [
        *[("ArrowRight", 5, 6), ("ArrowRight", 9, 9), ("ArrowLeft", 5, 5), ("ArrowLeft", 7, 6)],
        *[("ArrowDown", 7, 12), ("ArrowDown", 17, 17), ("ArrowUp", 7, 2), ("ArrowUp", 2, 2)],
        *[("Home", 8, 5), ("End", 8, 9), ("PageDown", 2, 12), ("PageDown", 7, 17), ("PageUp", 17, 7), ("PageUp", 3, 3)],
        ("a", 3, None),
    ]
    calls = ", ".join(f"grid.move('{key}', {start}, 4, 5, 2)" for key, start, _ in walk)
    assert evaluate(f"[{calls}]") == [end for _, _, end in walk]
    assert evaluate("['Home', 'End', 'ArrowDown'].map((key) => grid.move(key, 7, 4, 5, 2, true))") == [0, 19, None]


def test_scrolling_goes_no_further_than_needed():
    calls = [
        ("100, 500, 300, 20, 30, 40", 100),  # visible between what sticks to both edges
        ("100, 500, 110, 20, 30, 40", 80),  # below the header
        ("100, 500, 570, 20, 30, 40", 130),  # below the last row
        ("100, 500, 10, 20, 30, 40", 0),
        ("0, 500, 900, 70", 470),
    ]
    assert evaluate(f"[{', '.join(f'grid.scrolled({given})' for given, _ in calls)}]") == [end for _, end in calls]


def test_only_columns_near_the_visible_ones_are_drawn():
    assert evaluate("grid.visibleColumns(0, 700, 70, 600)") == [0, 16]
    assert evaluate("grid.visibleColumns(41_300, 700, 70, 600)") == [584, 600]
    assert evaluate("grid.visibleColumns(0, 700, 70, 1)") == [0, 1]


def test_every_shade_can_be_read_in_both_themes():
    for dark in ("false", "true"):
        shades = evaluate(
            f"grid.palette({dark}).map(([back, text]) => [grid.luminance(back.match(/\\d+/g).map(Number)), text])"
        )
        lights = [light for light, _ in shades]
        contrast = [1.05 / (light + 0.05) if text == "#fff" else (light + 0.05) / 0.05 for light, text in shades]
        assert min(contrast) >= 4.5
        # Little is light on a light page and dark on a dark one, and more never looks like less.
        assert (np.diff(lights) >= 0).all() if dark == "true" else (np.diff(lights) <= 0).all()


def test_a_picture_never_has_a_side_that_browsers_refuse():
    form = "{ head: 100, cell: 84, top: 76 }"
    sizes = evaluate(
        f"[1, 128, 600, 4096].flatMap((n) => [100, 800, 3200].map((h) => [n, h, grid.pictureSize(n, h, {form})]))"
    )
    for n, height, size in sizes:
        assert size["perPanel"] * (size["panels"] - 1) < n <= size["perPanel"] * size["panels"]  # every column, once
        assert size["height"] == 76 + size["panels"] * height and size["width"] >= 100 + size["perPanel"] * 84
        assert max(size["width"], size["height"]) * size["scale"] <= 16_000
        assert size["width"] * size["height"] * size["scale"] ** 2 <= 32.1e6
    assert min(size["scale"] for n, height, size in sizes if n <= 128 and height <= 800) > 1.5  # sharp


def test_a_long_text_is_cut_between_characters():
    assert evaluate("['abc', 'abcdefgh', '😀😀😀😀', ''].map((t) => grid.fit(t, 5, (s) => s.length))") == [
        "abc",
        "abcd…",
        "😀😀…",
        "",
    ]
