"""The page "Anatomy" as a person uses it: guess, reveal, paste, compare; no model runs behind it."""

import json
import re

import pytest
from playwright.sync_api import expect

from analyses._architecture_known import known_architectures
from tests.browser.conftest import APPS, wait_idle
from tests.browser.driver import fits_sideways, says

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def app(streamlit_app):
    return streamlit_app(APPS / "anatomy.py")


def test_guess_reveal_paste_and_compare(new_page, app):
    page = new_page(app.url)
    expect(page.locator(".st-key-finding .finding")).to_be_visible(timeout=120_000)  # the server is new
    says(page, "Guess first, from the fields of smollm2-135m-instruct")
    guess = page.get_by_label("In the MLPs (% of all)")
    guess.fill("50")
    guess.press("Enter")
    wait_idle(page)
    page.get_by_text("Reveal", exact=True).click()
    says(page, "134,515,008 parameters; the MLPs hold 59.2 % (you said 50 %)")
    expect(page).to_have_url(re.compile(r"guess_mlp=50.*revealed=true|revealed=true.*guess_mlp=50"))
    expect(page.get_by_text("30 × 3 × 576 × 1,536")).to_be_visible()
    expect(page.locator(".st-key-anatomy-parts .barlayer .trace").first).to_be_visible()

    page.get_by_role("button", name="Paste or upload").click()
    box = page.get_by_label("Paste a config.json")
    box.fill('{"model_type": "<img src=x onerror=alert(1)>", "hidden_size": 1e400}')
    box.press("Control+Enter")
    expect(page.get_by_text("found model_type '<img src=x onerror=alert(1)>'")).to_be_visible()
    box.fill(json.dumps(dict(known_architectures()["Llama 3 8B"].config)))
    box.press("Control+Enter")
    says(page, "Guess first, from the fields of my own config")
    page.keyboard.press("Escape")
    page.get_by_text("Reveal", exact=True).click()
    says(page, "8,030,261,248 parameters")


def test_a_shared_link_on_a_phone(new_page, app):
    link = "/?config=Mixtral+8x7B+v0.1&beside=GPT-2&revealed=true&detail=Comparison&prompt=a"
    page = new_page(app.url + link, width=390, color_scheme="dark")
    says(page, "46,702,792,704 parameters; one token uses 12,879,925,248 of them")
    for detail in ("Memory", "Shapes"):  # the widest table and the widest picture
        page.locator(".st-key-detail").get_by_text(detail, exact=True).click()
        wait_idle(page)
        expect(page.locator("[data-testid=stTable]").last).to_be_visible()
        assert fits_sideways(page), detail
    expect(page.locator(".st-key-anatomy-stream")).to_contain_text("(1, 1, 2, 14,336)")
