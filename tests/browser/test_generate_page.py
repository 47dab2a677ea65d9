"""A text is written before one's eyes: the embedded model, a real server, a real Chromium."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle
from tests.browser.driver import fits_sideways, says, strip_tokens
from tests.browser.test_accessibility import problems
from tests.browser.test_read_pages import PROBING

pytestmark = [pytest.mark.browser, pytest.mark.embedded]


def test_a_text_is_written_clicked_and_stopped(app, new_page):
    page = new_page(f"{app.url}/generate", allow=PROBING)
    says(page, "20 tokens; the least certain choice was token")
    expect(page.get_by_text("Take it with you")).to_be_visible()
    wait_idle(page)
    assert problems(page) == []
    tokens = strip_tokens(page, "generate-strip-0")
    expect(tokens).to_have_count(20)
    expect(tokens.first).to_have_text("·Paris")
    tokens.nth(3).hover()
    expect(page.locator(".st-key-generate-strip-0 .tip")).to_contain_text("instead of")
    tokens.nth(3).click()
    expect(page.get_by_text("New token 3,")).to_be_visible()
    wait_idle(page)
    field = page.get_by_role("spinbutton", name="New tokens, at most")
    field.fill("500")
    field.press("Enter")
    expect(page).to_have_url(re.compile("new_tokens=500"))
    wait_idle(page)
    page.get_by_role("button", name="Write", exact=True).click()
    says(page, "Writing.")
    expect(tokens.nth(4)).to_be_visible()
    assert tokens.count() < 500, "tokens are drawn while more are being written"
    page.get_by_role("button", name="Stop writing", exact=True).click()
    says(page, "Stopped after")
    stopped = int(re.search(r"Stopped after (\d+) tokens", page.locator(".st-key-finding .finding").inner_text())[1])
    expect(tokens).to_have_count(stopped)
    assert 4 < stopped < 500
    page.set_viewport_size({"width": 390, "height": 844})
    deadline = time.monotonic() + 20  # figures take the width of the page a moment after they are drawn
    while not fits_sideways(page):
        assert time.monotonic() < deadline
        page.wait_for_timeout(200)
