"""The page "Training" as a person uses it: the whole app, the shipped checkpoints, a real Chromium."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle
from tests.browser.driver import fits_sideways, says
from tests.browser.test_accessibility import problems

pytestmark = [pytest.mark.browser, pytest.mark.embedded]

PROBING = r"^console: .* status of 404 \(Not Found\) http://[^/]+/\w+/_stcore/(health|host-config)$"


def test_the_training_plays_to_its_end_and_fits_a_phone(new_page, app):
    page = new_page(f"{app.url}/training?train_step=2650", allow=PROBING)
    says(page, re.compile(r"Between step [\d,]+ and [\d,]+ the induction score of L1H\d rises from"))
    expect(page.get_by_text(re.compile(r"At step 2,650 the model gives that"))).to_be_visible(timeout=60_000)
    wait_idle(page)
    assert problems(page) == []
    page.locator(".st-key-training-play label").first.click()
    for step in ("3,000", "3,600", "4,500"):
        expect(page.get_by_text(re.compile(rf"At step {step} the model gives that"))).to_be_visible(timeout=90_000)
    expect(page.locator(".st-key-training-play input")).not_to_be_checked(timeout=30_000)
    expect(page).to_have_url(re.compile(r"train_step=4(%2C|,)?500"))
    page.set_viewport_size({"width": 390, "height": 844})
    wait_idle(page)
    assert fits_sideways(page)
