"""axe-core finds nothing serious on the finished pages, in the light and in the dark theme.

axe checks what a program can: names, roles, contrast. It does not replace trying a page with a screen reader.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle

pytestmark = [pytest.mark.browser, pytest.mark.embedded]


def problems(page):
    """One line per rule and element; what axe calls minor or moderate is Streamlit's outline of headings and the like."""
    return [
        f"{rule['id']}: {node['failureSummary'].splitlines()[-1].strip()} {node['html'][:160]}"
        for rule in Axe().run(page).response["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def in_both_themes(page):
    """The same in the other theme, which the page takes from the system while it is open."""
    found = []
    for scheme, lightness in (("light", 255), ("dark", 16)):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(
            "red => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor.startsWith(`rgb(${red},`)",
            arg=lightness,
        )
        wait_idle(page)
        found += [f"{scheme}: {line}" for line in problems(page)]
    return found


def test_every_page_can_be_read_and_operated(new_page, app):
    page = new_page(f"{app.url}/?section=Words+and+letters&sampling=Sampling")
    expect(page.locator(".st-key-finding .finding")).to_contain_text("77.3 %", timeout=90_000)
    expect(page.locator(".st-key-tokens-strip [role=option]")).to_have_count(5)
    expect(page.locator(".st-key-tokens-sampling .bartext").first).to_be_visible()
    page.get_by_test_id("stSidebar").get_by_text("How it becomes tokens").click()
    wait_idle(page)
    assert in_both_themes(page) == []
    page.locator(".st-key-section").get_by_text("Languages").click()
    expect(page.locator(".st-key-tokens-languages .bartext").first).to_be_visible()
    page.get_by_text("Take it with you").click()
    wait_idle(page)
    assert in_both_themes(page) == []
    page.get_by_test_id("stTopNavLink").filter(has_text="Model").click()
    expect(page.get_by_test_id("stMain")).to_contain_text("5 of 5 self-checks passed")
    wait_idle(page)
    assert in_both_themes(page) == []


def test_what_is_wrong_with_a_page_is_found(browser):
    page = browser.new_page()
    page.set_content("<p style='color: #797b7e'>too faint</p><input>")
    assert {"color-contrast", "label"} <= {line.split(":")[0] for line in problems(page)}
    page.close()
