import re
import struct

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from app.components.lens_grid import LensPicture, standalone_html
from app.ui.token_text import percent, visible
from tests.app.lens_example import NASTY, lens, nasty
from tests.browser.conftest import APPS, wait_idle
from tests.browser.driver import fits_sideways
from tests.browser.test_token_strip import CONTRAST, press, says

pytestmark = pytest.mark.browser

# What lies in the middle of the element is the element itself: nothing sticky covers it.
ON_TOP = """(e) => {
  const r = e.getBoundingClientRect();
  return e.getRootNode().elementFromPoint(r.x + r.width / 2, r.y + r.height / 2) === e;
}"""


@pytest.fixture(scope="module")
def address(streamlit_app):
    return streamlit_app(APPS / "grid.py").url


@pytest.fixture
def grid(new_page, address):
    """Opens the little app: (page, function that gives the locator of a cell)."""

    def open_case(case, **options):
        page = new_page(f"{address}/?case={case}", **options)
        wait_idle(page)
        n = len(NASTY) if case == "nasty" else 16 if case == "deep" else int(case)
        expect(page.locator(".st-key-grid [role=gridcell]").first).to_be_visible()
        return page, lambda row, column: page.locator(f".st-key-grid [data-cell='{row * n + column}']")

    return open_case


def box(page, expression):
    return page.locator(".st-key-grid .box").evaluate(f"(b) => {expression}")


def tip(page):
    return page.locator(".st-key-grid [role=tooltip]")


def test_it_opens_at_the_end_of_the_prompt_with_the_last_layer(grid):
    page, cell = grid("128")
    made = lens(n_columns=128)
    expect(cell(30, 127)).to_have_text(visible(made["pieces"](int(made["top_ids"][30, 127, 0]))))
    expect(cell(30, 127)).to_be_in_viewport()
    assert cell(30, 127).evaluate(ON_TOP)
    page.locator(".st-key-grid .box").evaluate("(b) => { b.scrollTop = 0; b.scrollLeft = 0; }")
    expect(cell(0, 0)).to_be_visible()
    for row in (0, 30):  # the top was scrolled to, the last layer stays
        assert cell(row, 0).evaluate(ON_TOP)
    header = page.locator(".st-key-grid [role=columnheader]", has_text="·quick").first
    expect(header).to_have_text(re.compile("^1"))
    name = page.locator(".st-key-grid [role=rowheader]", has_text="after 29")
    assert header.evaluate("(e) => e.contains(e.getRootNode().elementFromPoint(...[0, 5].map((o, i) => "
                           "e.getBoundingClientRect()[i ? 'y' : 'x'] + 20)))")  # fmt: skip
    assert name.evaluate(ON_TOP)


def test_hovering_tells_what_the_cell_holds_and_a_pin_from_outside_is_scrolled_to(grid):
    page, cell = grid("128")
    made = lens(n_columns=128)
    expect(tip(page)).to_be_hidden()
    cell(28, 125).hover()
    expect(tip(page)).to_contain_text(f"after 27 · token 125 {visible(made['columns'][125])}")
    for i, log_probability in zip(made["top_ids"][28, 125], made["top_log_probability"][28, 125], strict=True):
        chance = percent(float(np.exp(float(log_probability))))
        expect(tip(page)).to_contain_text(f"{visible(made['pieces'](int(i)))} {chance} ")
    expect(tip(page)).to_contain_text(f"rank {made['values']['rank'][28, 125]:,} ")
    expect(tip(page)).to_contain_text(re.compile(r"entropy [\d.]+ bits rank"))
    page.mouse.move(5, 5)
    expect(tip(page)).to_be_hidden()
    expect(cell(1, 0)).to_have_count(0)  # far away: not even in the document
    press(page, "first")
    says(page, "pinned=(1, 0)")
    expect(cell(1, 0)).to_have_attribute("aria-selected", "true")
    expect(cell(1, 0)).to_be_in_viewport()
    assert cell(1, 0).evaluate(ON_TOP)


def test_a_click_pins_sends_little_and_stays(new_page, address):
    page = new_page()
    frames = []
    page.on("websocket", lambda ws: ws.on("framereceived", lambda frame: frames.append(len(frame))))
    page.goto(f"{address}/?case=128")
    wait_idle(page)
    cell = page.locator(f".st-key-grid [data-cell='{29 * 128 + 124}']")
    expect(cell).to_be_visible()
    whole = max(frames)
    assert 50_000 < whole < 120_000  # the made-up lens is a fifth larger than a real one
    frames.clear()
    place = page.locator(".st-key-grid .box").evaluate("(b) => [b.scrollLeft, b.scrollTop]")
    cell.click()
    says(page, "pinned=(29, 124)")
    wait_idle(page)
    assert max(frames) < 3_000, frames
    press(page, "rerun")
    says(page, "pinned=(29, 124)")
    expect(cell).to_have_attribute("aria-selected", "true")
    page.get_by_text("other measure").click()  # other colours, all bytes new
    expect(page.locator(".st-key-grid .legend")).to_contain_text("15 bits")
    wait_idle(page)
    expect(cell).to_have_attribute("aria-selected", "true")
    expect(page.locator(".st-key-grid [aria-selected=true]")).to_have_count(1)
    assert page.locator(".st-key-grid .box").evaluate("(b) => [b.scrollLeft, b.scrollTop]") == place


def test_keyboard_alone_walks_and_pins(grid):
    page, cell = grid("600")
    assert page.locator(".st-key-grid [tabindex='0']").count() == 1
    cell(30, 599).focus()
    expect(tip(page)).to_contain_text("after 29 · token 599")
    for key in ("ArrowLeft", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
    expect(cell(28, 598)).to_be_focused()
    expect(tip(page)).to_contain_text("after 27 · token 598")
    page.keyboard.press("Escape")
    expect(tip(page)).to_be_hidden()
    page.keyboard.press("Enter")
    says(page, "pinned=(28, 598)")
    wait_idle(page)
    expect(cell(28, 598)).to_be_focused()
    page.keyboard.press("Home")
    expect(cell(28, 0)).to_be_focused()
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    expect(cell(0, 0)).to_be_focused()
    assert cell(0, 0).evaluate(ON_TOP)  # not under the header
    for _ in range(30):  # one by one past what is drawn
        page.keyboard.press("ArrowRight")
    expect(cell(0, 30)).to_be_focused()
    assert cell(0, 30).evaluate(ON_TOP)
    page.keyboard.press("Space")
    says(page, "pinned=(0, 30)")
    page.keyboard.press("Control+End")
    expect(cell(30, 599)).to_be_focused()
    assert page.locator(".st-key-grid [tabindex='0']").count() == 1
    press(page, "rerun")
    says(page, "pinned=(0, 30)")


def test_six_hundred_columns_stay_light_and_all_reachable(grid):
    page, cell = grid("600")
    assert page.locator(".st-key-grid [role=gridcell]").count() < 31 * 40
    table = page.get_by_role("grid", name="Logit lens")
    assert [table.get_attribute(name) for name in ("aria-rowcount", "aria-colcount")] == ["32", "601"]
    for column in (300, 0, 599):
        page.locator(".st-key-grid .box").evaluate(f"(b) => {{ b.scrollLeft = b.scrollWidth * {column} / 600; }}")
        expect(cell(30, column)).to_be_in_viewport()
        assert cell(30, column).get_attribute("aria-colindex") == str(column + 2)
    columns = [int(i) for i in table.locator(".last [data-cell]").evaluate_all("all => all.map((e) => e.ariaColIndex)")]
    assert columns == sorted(columns)  # a screen reader walks in this order


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def test_tokens_are_text_whatever_they_contain_in_the_picture_too(grid, tmp_path):
    page, cell = grid("nasty")
    for column, piece in enumerate(NASTY):
        page.locator(".st-key-grid .box").evaluate(f"(b) => {{ b.scrollLeft = {column} * 60; }}")
        expect(cell(0, column)).to_have_text(visible(piece))
        expect(page.locator(f".st-key-grid [data-column='{column}'] .token")).to_have_text(visible(piece))
    assert visible(NASTY[0]) == "<s>a<b>c</b>$x$" and visible(NASTY[4]) == "[NUL]"
    assert Axe().run(page, context=".st-key-grid").response["violations"] == []
    cell(2, 7).hover()
    expect(tip(page)).to_contain_text("</script><script>alert(2)</script>")
    assert page.locator(".st-key-grid :is(img, script, a, b, s, .katex)").count() == 0
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the grid as a PNG picture").click()
    assert download.value.suggested_filename == "logit-lens.png"
    download.value.save_as(tmp_path / "a.png")
    width, height = png_size(tmp_path / "a.png")
    assert width > 2 * 13 * 80 and height > 2 * 4 * 20  # twice the pixels of the screen
    # new_page fails this test if a dialog opened or something was requested.


def test_hidden_layers_are_said_and_keys_pass_over_them(grid):
    page, cell = grid("deep")
    bands = page.locator(".st-key-grid .band")
    assert bands.count() == 30 and bands.last.inner_text() == "⋮ 1 layer not shown"
    cell(30, 15).focus()
    page.keyboard.press("ArrowUp")
    expect(cell(29, 15)).to_be_focused()
    assert cell(29, 15).evaluate(ON_TOP)
    expect(tip(page)).to_contain_text("after 57 · token 15")


def test_every_shade_is_readable_and_the_theme_may_change_under_it(grid):
    page, cell = grid("deep", color_scheme="light")
    cell(29, 14).click()
    says(page, "pinned=(29, 14)")
    page.mouse.move(5, 5)
    for scheme in ("light", "dark"):
        before = cell(30, 15).evaluate(CONTRAST)[1]
        page.emulate_media(color_scheme=scheme)
        if scheme == "dark":
            expect(cell(30, 15)).not_to_have_css("background-color", before)
        background = box(page, "getComputedStyle(b).backgroundColor")
        assert (int(re.findall(r"\d+", background)[0]) > 128) == (scheme == "light")  # it really is this theme
        found = page.locator(".st-key-grid [data-cell]").evaluate_all(f"all => all.map({CONTRAST})")
        assert len(found) > 300 and min(ratio for ratio, _ in found) >= 4.5
        expect(cell(29, 14)).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("case", ["1", "600"])
def test_a_phone_scrolls_the_grid_and_never_the_page_sideways(grid, case):
    page, cell = grid(case, width=390, height=844)
    assert fits_sideways(page)
    assert box(page, "b.clientHeight <= 0.6 * innerHeight + 2")
    last = int(case) - 1
    expect(cell(30, last)).to_be_in_viewport()
    cell(30, last).click()
    says(page, f"pinned=(30, {last})")
    edges = tip(page).bounding_box()
    assert edges["x"] >= 0 and edges["x"] + edges["width"] <= 390


def test_the_document_opens_on_its_own(new_page, tmp_path):
    path = tmp_path / "lens.html"
    path.write_text(
        standalone_html(LensPicture(**nasty()), selected=(2, 12), notes=["The prompt: <b>"]), encoding="utf-8"
    )
    page = new_page(color_scheme="dark", allow=r"request: file://.*lens\.html", offline=True)
    page.goto(path.as_uri())
    last = page.locator(f"[data-cell='{2 * 13 + 12}']")
    expect(last).to_have_attribute("aria-selected", "true")
    expect(last).to_be_in_viewport()
    last.hover()
    expect(page.locator(".tip")).to_contain_text("after 1 · token 12 ∅")
    cell = page.locator(f"[data-cell='{3 * 13 + 11}']")
    cell.click()
    expect(cell).to_have_attribute("aria-selected", "true")
    expect(page.locator("p")).to_have_text("The prompt: <b>")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert Axe().run(page).response["violations"] == []
    dark = cell.evaluate(CONTRAST)[1]
    page.emulate_media(color_scheme="light")
    expect(cell).not_to_have_css("background-color", dark)
    with page.expect_download() as download:
        page.locator(".png").click()
    assert png_size(download.value.path())[0] > 2000
