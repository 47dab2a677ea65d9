"""Logit lens, attention and layer deletion as a person uses them: the whole app, the embedded model, a real Chromium."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle
from tests.browser.driver import fits_sideways, says
from tests.browser.test_accessibility import problems

pytestmark = [pytest.mark.browser, pytest.mark.embedded]

PAGES = ("logit_lens", "attention", "layer_deletion")
# Streamlit's browser code looks for the server below the address it was opened at; these answers are not ours.
PROBING = r"^console: .* status of 404 \(Not Found\) http://[^/]+/\w+/_stcore/(health|host-config)$"


@pytest.fixture
def opened(new_page, app):
    def open_page(path, **options):
        page = new_page(f"{app.url}/{path}", allow=PROBING, **options)
        expect(page.locator(".st-key-finding .finding, .st-key-finding-sweep .finding").first).to_be_visible(
            timeout=60_000
        )
        expect(page.get_by_text("Take it with you")).to_be_visible(timeout=60_000)
        wait_idle(page)
        return page

    return open_page


def cell(page, row, column):
    grid = page.locator(".st-key-lens-cells [role=grid]")
    return grid.locator("[role=row]").nth(row + 1).locator("[role=gridcell]").nth(column)


def test_the_lens_is_hovered_clicked_and_walked(opened):
    page = opened("logit_lens")
    says(page, "·Paris leads only after the last layer, 29 (77.3 %)")
    assert problems(page) == []
    last = cell(page, 30, 4)
    last.hover()
    expect(page.locator(".st-key-lens-cells .tip")).to_contain_text("77.3 %")
    cell(page, 29, 4).click()
    expect(page).to_have_url(re.compile(r"depth=29"))
    wait_idle(page)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"after=3"))
    says(page, "After ·France (token 3)")
    wait_idle(page)
    expect(page.get_by_text("Check: the parts sum to the logit of")).to_be_visible()
    bar = page.locator(".st-key-lens-writers .barlayer .trace").nth(2).locator("path").nth(28)
    bar.evaluate("bar => bar.scrollIntoView({block: 'center'})")
    box = bar.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # a layer for dragging lies above it
    expect(page.get_by_text("Heads of layer 28.")).to_be_visible()


def test_a_head_is_opened_on_the_sheet(opened):
    page = opened("attention", color_scheme="dark")
    says(page, "6 of 270 heads score above 0.5 for induction on random tokens repeated once (strongest L18H6, 0.89)")
    assert problems(page) == []
    page.locator(".st-key-attention-sheet [role=gridcell][aria-label*='L17H3']").click()
    expect(page).to_have_url(re.compile(r"layer=17.*head=3|head=3.*layer=17"))
    expect(page.get_by_text("L17H3: induction 0.75")).to_be_visible()


def test_layers_are_ticked_in_the_stack(opened):
    page = opened("layer_deletion")
    says(page, "Without layer 15 the loss")
    assert problems(page) == []
    stack = page.locator(".st-key-cut-stack")
    stack.get_by_role("button", name="MLP of layer 3, in the sum", exact=True).click()
    stack.get_by_role("button", name="layer 15, in the sum", exact=True).click()
    says(page, "Without the MLP of layer 3 the loss")
    expect(page.get_by_role("textbox", name="Left out")).to_have_value("3.mlp")
    expect(page).to_have_url(re.compile(r"without=3\.mlp"))


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_never_scrolls_sideways(opened, path):
    page = opened(path, width=390, height=844)
    deadline = time.monotonic() + 20  # figures take the width of the page a moment after they are drawn
    while not fits_sideways(page):
        assert time.monotonic() < deadline
        page.wait_for_timeout(200)
