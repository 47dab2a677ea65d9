"""The page "Steering" as a person uses it: the whole app, the embedded model, a real Chromium."""

import re
import sys
import time

import pytest
from playwright.sync_api import expect

from analyses.steering_examples import STEERING_EXAMPLES
from tests.browser.conftest import wait_idle
from tests.browser.driver import fits_sideways, says, wait_health
from tests.browser.test_accessibility import problems
from tests.browser.test_read_pages import PROBING

pytestmark = [pytest.mark.browser, pytest.mark.embedded]


@pytest.fixture(scope="module")
def app(streamlit_app):
    server = streamlit_app(command=[sys.executable, "-m", "app"], env={"STREAMSCOPE_LIMIT_SECONDS": "3600"})
    wait_health(server, state="ready", transport="process")
    return server


@pytest.fixture
def opened(new_page, app):
    def open_page(address="", **options):
        page = new_page(f"{app.url}/steering{address}", allow=PROBING, **options)
        expect(page.get_by_text("Take it with you")).to_be_visible(timeout=90_000)
        wait_idle(page)
        return page

    return open_page


def test_a_generation_is_steered_a_cell_is_clicked_and_a_vector_saved_and_loaded(opened, tmp_path):
    page = opened("?coefficient=0.45")
    weddings = STEERING_EXAMPLES[0]
    says(page, "At 0.45 the log-odds of the target words rise by ")
    assert problems(page) == []
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_text("repeated 4-grams: runs of four tokens")).to_be_visible(timeout=90_000)
    wait_idle(page)
    counts = page.locator("table").nth(1).locator("tbody tr td:last-child").all_inner_texts()
    assert int(counts[0]) == 0 < int(counts[1]), f"target tokens of {weddings.name}: {counts}"

    page.get_by_role("button", name="Sweep", exact=True).click()
    expect(page.get_by_text(re.compile("Little damage before layer"))).to_be_visible(timeout=120_000)
    wait_idle(page)
    plot = page.locator("[class*=st-key-steer-sweep-damage] .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    # The first row is layer 0; the sixth of ten columns, from the left, is coefficient 0.15.
    page.mouse.click(box["x"] + box["width"] * 5.5 / 10, box["y"] + box["height"] * 0.5 / 10)
    expect(page).to_have_url(re.compile(r"coefficient=0\.15"))
    says(page, "At 0.15 the log-odds of the target words")
    wait_idle(page)

    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the vector").click()
    file = tmp_path / "taken.safetensors"
    saved.value.save_as(file)
    page.get_by_text("Make another vector").click()
    page.get_by_role("tab", name="A file").click()
    page.locator(".st-key-steer-file input[type=file]").set_input_files(file)
    expect(page.get_by_text(f"my {weddings.name}, layer {weddings.layer}")).to_be_visible()


def test_a_phone_never_scrolls_sideways(opened):
    page = opened(width=390, height=844)
    deadline = time.monotonic() + 20  # figures take the width of the page a moment after they are drawn
    while not fits_sideways(page):
        assert time.monotonic() < deadline
        page.wait_for_timeout(200)
