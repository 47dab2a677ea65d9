"""The page "Running it" as a person uses it: measure, stop, change the budget; the embedded model, a real Chromium."""

import re
import sys
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle
from tests.browser.driver import fits_sideways, says, wait_health
from tests.browser.test_accessibility import problems
from tests.browser.test_read_pages import PROBING

pytestmark = [pytest.mark.browser, pytest.mark.embedded]


@pytest.fixture(scope="module")
def app(streamlit_app):
    server = streamlit_app(command=[sys.executable, "-m", "app"])
    wait_health(server, state="ready", transport="process")
    return server


def test_measure_stop_and_a_budget_that_is_too_small(new_page, app):
    page = new_page(f"{app.url}/running?turns=2", allow=PROBING)
    finding = page.locator(".st-key-finding .finding")
    expect(finding).to_contain_text(
        re.compile(r"the cache holds .+ \(float32\), as the formula says\."), timeout=90_000
    )
    budget = page.locator(".st-key-finding-context .finding")
    expect(budget).to_contain_text(
        "Everything fits. With the other instruction the logits change by up to", timeout=90_000
    )
    wait_idle(page)
    assert problems(page) == []
    # The chat marks are counted: 5 of the instruction's own message, 9 around the question and before the answer.
    expect(page.get_by_role("row", name=re.compile(r"^instruction \d+ 5 \d+"))).to_be_visible()
    narrow = page.get_by_role("option", name="64", exact=True)
    for _ in range(10):  # a list that opens while the page is drawn anew closes again
        page.locator(".st-key-context_window [role=combobox]").click()
        page.wait_for_timeout(500)
        if narrow.is_visible():
            break
    narrow.click()
    expect(budget).to_contain_text("bit for bit: largest difference 0.")
    wait_idle(page)
    page.locator(".st-key-ask-running button").click()
    stop = page.locator(".st-key-stop-running button")
    expect(page.locator(".st-key-running-live-1 .js-plotly-plot")).to_be_visible()  # points are drawn as they come
    stop.click()
    expect(page.get_by_text(re.compile(r"Stopped by hand; not measured: .*512 tokens"))).to_be_visible()
    expect(stop).to_have_count(0)
    says(page, "as the formula says")
    page.set_viewport_size({"width": 390, "height": 844})
    wait_idle(page)
    deadline = time.monotonic() + 20  # figures take the width of the page a moment after they are drawn
    while not fits_sideways(page):
        assert time.monotonic() < deadline
        page.wait_for_timeout(200)
