import json
import re
import zlib

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import APPS, ROOT, wait_idle

pytestmark = pytest.mark.browser

CONTRAST = """(element) => {
  const luminance = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(element);
  const [a, b] = [luminance(style.color), luminance(style.backgroundColor)].sort();
  return [(b + 0.05) / (a + 0.05), style.backgroundColor];
}"""


@pytest.fixture(scope="module")
def address(streamlit_app):
    return streamlit_app(APPS / "strip.py").url


@pytest.fixture
def strip(new_page, address):
    """Opens the little app: (page, the tokens' locator)."""

    def open_case(case, **options):
        page = new_page(f"{address}/?case={case}", **options)
        wait_idle(page)
        tokens = page.locator(".st-key-strip [role=option]")
        if case != "empty":
            expect(tokens.first).to_be_visible()
        return page, tokens

    return open_case


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()
    wait_idle(page)


def selected(page):
    return page.locator(".st-key-strip [aria-selected=true]")


def says(page, text):
    expect(page.get_by_test_id("stText")).to_have_text(text)


def test_tokens_are_text_whatever_they_contain(strip):
    page, tokens = strip("nasty")
    expected = ["<|im_start|>", "·The", "·cat", "⏎", "<F0 9F>", "<99 82>", "<b>bold</b>"]
    assert tokens.all_text_contents()[:7] == expected
    assert "<img·src=x·onerror=alert(1)>" in tokens.all_text_contents()
    assert "[RLO]right" in tokens.all_text_contents()
    assert page.locator(".st-key-strip :is(img, script, a, b, .katex)").count() == 0
    # new_page fails this test if a dialog opened or something was requested.


def test_the_text_keeps_its_lines_and_characters_stay_together(strip):
    page, tokens = strip("nasty")
    tops = [tokens.nth(i).bounding_box()["y"] for i in range(6)]
    assert max(tops[:4]) - min(tops[:4]) < 6  # special, The, cat and the newline itself
    assert tops[4] - tops[0] > 15  # the newline ends its line
    together = page.locator(".st-key-strip .run")
    assert together.count() == 1 and together.locator("button").all_text_contents() == ["<F0 9F>", "<99 82>"]


def test_a_click_selects_and_sends_no_tokens_back(strip, new_page, address):
    page = new_page()
    frames = []
    page.on("websocket", lambda ws: ws.on("framereceived", lambda frame: frames.append(len(frame))))
    page.goto(f"{address}/?case=600")
    wait_idle(page)
    tokens = page.locator(".st-key-strip [role=option]")
    expect(tokens).to_have_count(600)
    first = max(frames)
    frames.clear()
    tokens.nth(7).click()
    says(page, "selected=7")
    wait_idle(page)
    expect(selected(page)).to_have_attribute("aria-label", re.compile("^token 7, id 1007: "))
    # Streamlit's own messages of a run are each below 1 KB here; the strip's message is above 10 KB.
    assert first > 10_000 > 2_000 > max(frames), (first, frames)


def test_keyboard_alone_selects_and_focus_survives(strip):
    page, tokens = strip("600")
    tokens.first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    says(page, "selected=2")
    wait_idle(page)
    expect(tokens.nth(2)).to_be_focused()
    page.keyboard.press("End")
    expect(tokens.nth(599)).to_be_focused()
    page.keyboard.press("Space")
    says(page, "selected=599")
    page.keyboard.press("Home")
    expect(tokens.first).to_be_focused()
    assert page.locator(".st-key-strip [role=option][tabindex='0']").count() == 1
    assert selected(page).count() == 1


def test_focus_survives_a_redraw_with_other_tokens(strip):
    page, tokens = strip("nasty")
    # The button is clicked by script: a real click would take the focus itself.
    tokens.nth(3).focus()
    page.get_by_role("button", name="other text").evaluate("(b) => b.click()")
    expect(tokens).to_have_count(600)
    expect(tokens.nth(3)).to_be_focused()


def test_the_tooltip_explains_the_token_under_the_pointer_and_in_focus(strip):
    page, tokens = strip("nasty")
    tip = page.locator(".st-key-strip [role=tooltip]")
    expect(tip).to_be_hidden()
    tokens.nth(2).hover()
    expect(tip).to_have_text("token 2 · id 1002\n4 bytes 20 63 61 74\ncharacters 16 to 19 of the text")
    tokens.nth(5).focus()
    expect(tip).to_contain_text("2 bytes 99 82")
    expect(tip).to_contain_text("tokens 4 to 5 together make 🙂")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_selection_from_outside_is_adopted_every_time(strip):
    page, tokens = strip("nasty")
    press(page, "third")
    expect(tokens.nth(2)).to_have_attribute("aria-selected", "true")
    tokens.nth(5).click()
    says(page, "selected=5")
    press(page, "rerun")
    says(page, "selected=5")
    press(page, "third")
    expect(tokens.nth(2)).to_have_attribute("aria-selected", "true")
    tokens.nth(5).click()
    says(page, "selected=5")
    press(page, "none")
    says(page, "selected=None")
    expect(selected(page)).to_have_count(0)


def test_the_selection_returns_with_the_strip(strip):
    page, tokens = strip("nasty")
    tokens.nth(1).click()
    says(page, "selected=1")
    for _ in range(2):  # away and back
        page.get_by_text("hidden", exact=True).click()
        wait_idle(page)
    expect(tokens.nth(1)).to_have_attribute("aria-selected", "true")
    says(page, "selected=1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_token_is_readable(strip, scheme):
    page, tokens = strip("nasty", color_scheme=scheme)
    tokens.nth(1).click()
    says(page, "selected=1")
    page.mouse.move(0, 0)
    found = [tokens.nth(i).evaluate(CONTRAST) for i in (0, 1, 2, 4)]  # special, selected, plain, broken
    assert min(ratio for ratio, _ in found) >= 4.5, found
    light = [int(v) > 128 for v in re.findall(r"\d+", found[2][1])[:3]]
    assert light == [scheme == "light"] * 3  # it really was the other theme


def test_a_phone_scrolls_the_strip_and_never_the_page_sideways(strip):
    page, tokens = strip("600", width=390, height=844)
    wide = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
    assert page.evaluate(wide) == 0
    box = page.locator(".st-key-strip .box")
    height, content, across = box.evaluate("(b) => [b.clientHeight, b.scrollHeight, b.scrollWidth - b.clientWidth]")
    assert content > height and height <= 0.4 * 844 + 1 and across == 0
    page, tokens = strip("nasty", width=390, height=844)
    edges = [tokens.nth(i).bounding_box() for i in range(tokens.count())]
    assert max(edge["x"] + edge["width"] for edge in edges) <= 390  # 300 letters in one token wrap
    assert page.evaluate(wide) == 0


def test_eight_thousand_tokens_stay_usable(strip):
    page, tokens = strip("8192")
    expect(tokens).to_have_count(8192)
    tokens.nth(5).click()
    says(page, "selected=5")
    tokens.nth(5).focus()
    page.keyboard.press("End")
    expect(tokens.nth(8191)).to_be_focused()
    expect(tokens.nth(8191)).to_be_in_viewport()
    page.keyboard.press("Enter")
    says(page, "selected=8191")


def payload(n, digest):
    columns = ("hex", "shown", "n_bytes", "id", "start", "end", "special", "added", "newline", "broken")
    tokens = {name: list(range(n)) for name in columns} | {"runs": [], "label": "Tokens"}
    return list(zlib.compress(json.dumps({"digest": digest, "selected": None, "tokens": tokens}).encode()))


def test_an_older_text_that_inflates_later_is_dropped(new_page):
    page = new_page()
    page.set_content('<div id="x"><div class="box"><div class="strip"></div></div><div class="tip" hidden></div></div>')
    late = """async ([source, older, newer]) => {
      const strip = (await import(URL.createObjectURL(new Blob([source], {type: 'text/javascript'})))).default;
      // The first stream waits until the second has been drawn.
      const wait = new Promise((go) => { window.release = go; });
      const real = Blob.prototype.stream;
      Blob.prototype.stream = function () {
        Blob.prototype.stream = real;
        const late = new TransformStream({ start: () => wait });
        return real.call(this).pipeThrough(late);
      };
      const parentElement = document.querySelector('#x');
      for (const data of [older, newer]) {
        strip({ data: new Uint8Array(data), parentElement, setStateValue() {} });
      }
    }"""
    source = (ROOT / "app/components/token_strip/token_strip.js").read_text()
    page.evaluate(late, [source, payload(9, 1), payload(2, 2)])
    expect(page.locator(".tok")).to_have_count(2)
    page.evaluate("window.release()")
    page.wait_for_timeout(200)
    expect(page.locator(".tok")).to_have_count(2)


def test_no_tokens_are_said_in_words(strip):
    page, tokens = strip("empty")
    box = page.locator(".st-key-strip .box")
    expect(box).to_be_visible()
    assert tokens.count() == 0
    assert "no tokens" in page.locator(".st-key-strip .strip").evaluate(
        "(s) => getComputedStyle(s, '::before').content"
    )
