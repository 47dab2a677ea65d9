"""What a person does in the app and sees on it, for the browser tests."""

import json
import re
import time
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle


def health(server):
    with urllib.request.urlopen(f"{server.url}/api/health", timeout=30) as answer:
        return json.load(answer)


def wait_health(server, **wanted):
    """Wait until the health page says this."""
    deadline = time.monotonic() + 120
    while (found := {name: health(server).get(name) for name in wanted}) != wanted:
        assert time.monotonic() < deadline, f"{found} instead of {wanted}"
        time.sleep(0.2)


def submit(page, text):
    """Type a prompt and press Ctrl+Enter."""
    box = page.locator(".st-key-prompt textarea")
    box.fill(text)
    box.press("Control+Enter")


def strip_tokens(page, key="tokens-strip"):
    return page.locator(f".st-key-{key} [role=option]")


def strip_ids(page, key="tokens-strip"):
    labels = strip_tokens(page, key).evaluate_all("all => all.map((e) => e.ariaLabel ?? e.getAttribute('aria-label'))")
    return [int(re.match(rf"token {i}, id (\d+)", label)[1]) for i, label in enumerate(labels)]


def says(page, text):
    """The computed sentence contains this."""
    expect(page.locator(".st-key-finding .finding")).to_contain_text(text)


def number(text):
    """`77.3 %` and `6.32×10⁻⁴` as a probability."""
    if "×10" not in text:
        return float(text.removesuffix(" %")) / 100
    digits, exponent = text.split("×10")
    return float(digits) * 10 ** int(exponent.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))


def same_digits(shown, expected):
    """Three digits on the page, all of them right."""
    assert [number(text) for text in shown] == pytest.approx(expected.tolist(), rel=0.0051)


def bars(page, key="tokens-next"):
    """Labels and printed values of a picture, from the top down."""
    expect(page.locator(f".st-key-{key} .ytick text").first).to_be_visible()
    return [page.locator(f".st-key-{key} {name}").all_text_contents() for name in (".ytick text", ".bartext")]


def shows_prediction(page, tokenizer, logits, position):
    """Sentence and picture give what these logits give."""
    probability = logits.softmax(-1)
    top = probability.topk(10)
    words = [tokenizer.decode([i]).replace(" ", "·").replace("\n", "⏎") for i in top.indices.tolist()]
    bits = -(probability * probability.clamp_min(1e-300).log2()).sum()
    says(page, f"(token {position}) the model assigns {words[0]} ")
    sentence = page.locator(".st-key-finding .finding").inner_text()
    assert float(re.search(r"carries ([\d.]+) bits", sentence)[1]) == pytest.approx(float(bits), abs=0.0051)
    expect(page.locator(".st-key-tokens-next .ytick text")).to_have_text(words)  # waits until it is drawn again
    expect(page.locator(".st-key-tokens-next .bartext")).to_have_count(len(words))
    _, values = bars(page)
    same_digits(values, top.values)


def open_choices(page):
    wait_idle(page)
    if not page.locator(".st-key-plain label").first.is_visible():
        page.get_by_test_id("stSidebar").get_by_text("How it becomes tokens", exact=True).click()
    expect(page.locator(".st-key-plain label").first).to_be_visible()
    wait_idle(page)


def choose(page, key, option):
    """Choose in a select box."""
    page.locator(f".st-key-{key} [role=combobox]").click()
    page.get_by_role("option", name=option, exact=True).click()
    wait_idle(page)


def switch(page, key):
    """Turn a toggle."""
    page.locator(f".st-key-{key} label").first.click()
    wait_idle(page)


def go_to(page, title, *, wait=True):
    """Follow a link of the navigation, which may lie in a menu: the menus are opened until it is there.

    wait: for the new page to be finished.
    """
    links = page.locator("[data-testid=stTopNavLink], [data-testid=stTopNavDropdownLink]")
    link = links.filter(has_text=re.compile(rf"{re.escape(title)}$"))
    for menu in page.get_by_test_id("stTopNavSection").all():
        if link.is_visible():
            break
        menu.click()
        page.wait_for_timeout(100)  # a menu that opens closes the other
    link.click()
    if wait:
        wait_idle(page)


def fits_sideways(page):
    return page.evaluate(
        "[document.documentElement.scrollWidth <= innerWidth,"
        " ...[...document.querySelectorAll('[data-testid=stMain]')].map((e) => e.scrollWidth <= e.clientWidth)]"
    ) == [True, True]
