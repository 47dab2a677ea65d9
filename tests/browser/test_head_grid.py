import numpy as np
import pytest
from playwright.sync_api import expect

from tests.app.heads_example import pack, sheet, weights
from tests.browser.conftest import APPS, wait_idle
from tests.browser.driver import fits_sideways, number
from tests.browser.test_accessibility import problems

pytestmark = pytest.mark.browser

INK = """(canvas, [x, y, size]) => {
  const ratio = canvas.width / canvas.clientWidth;
  const { data } = canvas.getContext('2d').getImageData(...[x, y, size, size].map((v) => Math.round(v * ratio)));
  return Array.from({ length: data.length / 4 }, (_, i) => (data[4 * i] + data[4 * i + 1] + data[4 * i + 2]) / 3);
}"""


@pytest.fixture(scope="module")
def address(streamlit_app):
    return streamlit_app(APPS / "heads.py", cwd=APPS.parents[2] / "app").url  # with the app's own colours


@pytest.fixture
def open_app(new_page, address):
    def open_case(query, **options):
        page = new_page(**options)
        page.frames_received = []
        page.on("websocket", lambda ws: ws.on("framereceived", lambda frame: page.frames_received.append(len(frame))))
        page.goto(f"{address}/?{query}")
        wanted = ".st-key-map .label" if "only=map" in query else ".st-key-sheet .cell"
        expect(page.locator(wanted).first).to_be_visible()
        wait_idle(page)
        return page

    return open_case


def says(page, text):
    expect(page.get_by_test_id("stText")).to_have_text(text)


def press(page, name):
    page.get_by_text(name, exact=True).click()
    wait_idle(page)


def cell(page, layer, head):
    return page.locator(f".st-key-sheet .cell[aria-label^='L{layer}H{head},']")


def surface(page):
    return page.locator(".st-key-map .surface")


def test_the_sheet_draws_what_the_heads_are_and_a_click_opens_one(open_app):
    page = open_app("only=sheet")
    assert 500_000 < max(page.frames_received) < 1_100_000
    assert page.locator(".st-key-sheet .cell").count() == 270 and page.locator(".st-key-sheet canvas").count() == 1
    made = sheet()
    canvas = page.locator(".st-key-sheet canvas")
    corner = canvas.bounding_box()
    dark = []
    # Head 1 of layer 0 looks at the token before, head 2 at the first one: their diagonals differ, as the pictures say.
    for head in (1, 2):
        box = cell(page, 0, head).bounding_box()
        size = round(box["width"])
        found = canvas.evaluate(INK, [box["x"] - corner["x"], box["y"] - corner["y"], size])
        picture = np.array(found).reshape(size, size)
        dark.append(255 - picture.diagonal().mean())
    shown = [made["packed"][made["heads"].index((0, head))] for head in (1, 2)]
    diagonals = [np.mean([row[q * (q + 1) // 2 + q - 1] for q in range(1, 128)]) for row in shown]
    assert (dark[0] > dark[1]) == (diagonals[0] > diagonals[1]) and abs(dark[0] - dark[1]) > 20
    page.frames_received.clear()
    cell(page, 18, 6).click()
    says(page, "opened=(18, 6)")
    wait_idle(page)
    expect(page.locator(".st-key-sheet [aria-selected=true]")).to_have_attribute("data-i", "168")
    assert max(page.frames_received) < 5_000
    press(page, "first head")
    says(page, "opened=(0, 0)")
    expect(cell(page, 0, 0)).to_have_attribute("aria-selected", "true")
    page.frames_received.clear()
    press(page, "by score")
    press(page, "rerun")
    expect(page.locator(".st-key-sheet .cell")).to_have_count(60)
    page.frames_received.clear()
    press(page, "mark")  # marks do not resend the pictures
    press(page, "hide first")
    assert max(page.frames_received) < 100_000
    expect(page.locator(".st-key-sheet .legend")).to_contain_text("token 0 hidden")


def test_hovering_names_the_head_and_the_tools_work(open_app):
    page = open_app("only=sheet&layers=4&heads=3&tokens=16")
    tip = page.locator(".st-key-sheet [role=tooltip]")
    expect(tip).to_be_hidden()
    box = cell(page, 1, 2).bounding_box()
    # The middle of the picture's pixel for query 10 and key 4.
    page.mouse.move(box["x"] + box["width"] * 4.5 / 16, box["y"] + box["height"] * 10.5 / 16)
    expect(tip).to_contain_text("L1H2")
    made = sheet(4, 3, 16)
    assert f"first token {made['scores']['first token'][5]:#.3g}" in " ".join(tip.inner_text().split())
    byte = made["packed"][5][10 * 11 // 2 + 4]
    expect(tip).to_contain_text(f"token 10 looks at token 4: {byte / 255:.2f}")
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    before = cell(page, 0, 0).bounding_box()["width"]
    page.locator(".st-key-sheet .less").click()
    assert cell(page, 0, 0).bounding_box()["width"] < before
    with page.expect_download() as download:
        page.locator(".st-key-sheet .png").click()
    assert download.value.suggested_filename == "attention-heads.png"
    with open(download.value.path(), "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"


def test_the_keyboard_walks_opens_and_keeps_its_head(open_app):
    page = open_app("only=sheet&layers=4&heads=3&tokens=16")
    cell(page, 0, 0).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    says(page, "opened=(2, 1)")
    page.get_by_label("mark", exact=True).evaluate("(e) => e.click()")  # a real click would take the focus itself
    wait_idle(page)
    expect(page.locator(".st-key-sheet .ticked")).to_have_count(2)
    expect(cell(page, 2, 1)).to_be_focused()
    assert page.locator(".st-key-sheet .cell[tabindex='0']").count() == 1


def test_a_map_pins_rows_and_columns_and_tells_its_numbers(open_app):
    page = open_app("only=map&tokens=20")
    exact = weights(1, 20, 7)[0]
    page.locator(".st-key-map .label.query[data-i='14']").click()
    says(page, "pin=(14, 'query')")
    listed = page.locator(".st-key-map .list li")
    order = [k for k in sorted(range(15), key=lambda k: -exact[14, k]) if exact[14, k] >= 0.001]
    assert 5 < len(order) < 15
    expect(listed).to_have_count(len(order))
    expect(page.locator(".st-key-map .others")).to_contain_text(f"and {15 - len(order)} more, together ")
    assert [int(text.split(" ")[0]) for text in listed.all_text_contents()] == order
    assert listed.first.text_content().split(" ")[-1] == f"{exact[14, order[0]]:#.3g}"
    page.locator(".st-key-map .label.key[data-i='4']").click()
    says(page, "pin=(4, 'key')")
    expect(page.locator(".st-key-map .heading")).to_contain_text("token 4 ·The is looked at by")
    page.locator(".st-key-map .label.key[data-i='4']").click()
    says(page, "pin=None")
    press(page, "second token")
    says(page, "pin=(1, 'query')")
    expect(page.locator(".st-key-map .label.query.pinned")).to_have_attribute("data-i", "1")
    page.frames_received.clear()
    surface(page).focus()
    page.keyboard.press("Control+End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".st-key-map .live")).to_contain_text("token 19 ·lazy looks at token 18 ·a: ")
    shown = page.locator(".st-key-map .live").text_content().split(": ")[1]
    assert number(shown) == pytest.approx(exact[19, 18], rel=0.0051)
    page.keyboard.press("Shift+Enter")
    says(page, "pin=(18, 'key')")
    wait_idle(page)
    expect(surface(page)).to_be_focused()
    assert max(page.frames_received) < 5_000


def test_tokens_are_text_and_hiding_the_first_changes_no_number(open_app):
    page = open_app("only=map&tokens=20")
    labels = page.locator(".st-key-map .label.query .token").all_text_contents()
    assert len(labels) == 20
    assert {"<img·src=x·onerror=alert(1)>", "[RLO]right", "&lt;", "⏎", "∅"} <= set(labels)
    page.locator(".st-key-map .label.query[data-i='11']").click()
    says(page, "pin=(11, 'query')")
    assert page.locator(".st-key-map :is(img, script, a, b, .katex)").count() == 0
    exact = weights(1, 20, 7)[0]
    tip = page.locator(".st-key-map [role=tooltip]")
    for switched in (False, True):
        if switched:
            press(page, "hide first")
        box = surface(page).bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.5 / 20, box["y"] + box["height"] * 13.5 / 20)
        expect(tip).to_have_text(f"token 13 ·quick looks at token 0 <s>a<b>c</b>$x$: {exact[13, 0]:#.3g}")
    expect(page.locator(".st-key-map .legend")).to_contain_text(f"{exact[:, 1:].max():#.3g}")
    expect(page.locator(".st-key-map .legend")).to_contain_text("token 0 hidden")


def test_512_tokens_are_one_map_that_scrolls_inside_itself(open_app):
    page = open_app("only=map&tokens=512")
    assert page.locator(".st-key-map .label").count() < 400
    surface(page).focus()
    page.keyboard.press("Control+End")
    expect(page.locator(".st-key-map .label.query.current")).to_have_attribute("data-i", "511")
    expect(page.locator(".st-key-map .label.query.current")).to_be_in_viewport()
    assert fits_sideways(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_pictures_are_accessible_in_both_themes(open_app, scheme):
    page = open_app("layers=4&heads=3&tokens=20", color_scheme=scheme)
    press(page, "mark")
    cell(page, 2, 1).click()
    page.locator(".st-key-map .label.query[data-i='14']").click()
    wait_idle(page)
    assert problems(page) == []
    background = page.locator(".st-key-map .box").evaluate("(e) => getComputedStyle(e).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(16, 17, 20)")
    # Nothing is the page's background, in either theme.
    assert pack(weights(1, 20, 7))[0][-2] < 30
    box, corner = surface(page).bounding_box(), page.locator(".st-key-map canvas").bounding_box()
    middle = [box["width"] * 18.3 / 20 + box["x"] - corner["x"], box["height"] * 19.3 / 20 + box["y"] - corner["y"], 2]
    ink = np.mean(page.locator(".st-key-map canvas").evaluate(INK, middle))
    assert ink > 200 if scheme == "light" else ink < 60


def test_a_phone_scrolls_the_pictures_and_never_the_page_sideways(open_app):
    page = open_app("tokens=64", width=390, height=844)
    expect(page.locator(".st-key-map .label").first).to_be_visible()
    assert fits_sideways(page)
    last = cell(page, 29, 8)
    cell(page, 0, 8).focus()
    page.keyboard.press("Control+End")
    expect(last).to_be_focused()
    expect(last).to_be_in_viewport()
    assert fits_sideways(page)
