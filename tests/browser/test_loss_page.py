"""The page "Loss" as a person uses it: the whole app, the embedded model, a real Chromium."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle
from tests.browser.driver import fits_sideways, says
from tests.browser.test_accessibility import problems

pytestmark = [pytest.mark.browser, pytest.mark.embedded]

PROBING = r"^console: .* status of 404 \(Not Found\) http://[^/]+/\w+/_stcore/(health|host-config)$"


def test_a_text_is_coloured_hovered_and_asked_token_by_token(new_page, app):
    page = new_page(f"{app.url}/loss", allow=PROBING)
    expect(page.locator(".st-key-finding .finding")).to_contain_text("nats per token", timeout=120_000)
    says(
        page,
        re.compile(
            r"nats per token = [\d.]+ bits = perplexity [\d.]+, over 4 tokens\. Most surprising: .+ \(token \d\)"
        ),
    )
    expect(page.get_by_text("Take it with you")).to_be_visible()
    wait_idle(page)
    assert problems(page) == []
    tokens = page.locator(".st-key-loss-strip [role=option]")
    expect(tokens).to_have_count(5)
    shades = tokens.evaluate_all("all => all.map((e) => getComputedStyle(e).backgroundColor)")
    assert len(set(shades[1:])) >= 3, "other losses, other colours"
    tokens.nth(4).hover()
    tip = page.locator(".st-key-loss-strip .tip")
    expect(tip).to_contain_text("nats · ")
    expect(tip).to_contain_text("top guess")
    tokens.nth(4).click()
    expect(page).to_have_url(re.compile(r"loss_token=4"))
    expect(page.get_by_text("Token 4", exact=True)).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    deadline = time.monotonic() + 20  # figures take the width of the page a moment after it has changed
    while not fits_sideways(page):
        assert time.monotonic() < deadline
        page.wait_for_timeout(200)
