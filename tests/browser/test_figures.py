import pytest
from playwright.sync_api import expect

from app.ui.token_text import visible
from tests.browser.conftest import APPS, wait_idle

pytestmark = pytest.mark.browser
PIECES = [b" the", b" the", b"<b>bold</b>", b"<a href='x'>y</a>", b"$x$", b"&lt;b&gt;", b"\n", b"%{x}", b"\xf0\x9f"]


@pytest.fixture(scope="module")
def address(streamlit_app):
    return streamlit_app(APPS / "figures.py").url


def test_plotly_draws_tokens_as_they_are(new_page, address):
    page = new_page(address, height=1600)
    wait_idle(page)
    ticks = page.locator(".st-key-next .ytick text")
    expect(ticks).to_have_count(len(PIECES))  # equal labels are not merged
    # Plotly draws its ticks from low to high, here from the top down.
    assert ticks.all_text_contents() == [visible(piece) for piece in PIECES]
    page.locator(".st-key-next .point path").nth(3).hover(force=True)  # Plotly's own layer lies above
    expect(page.locator(".st-key-next .hovertext").first).to_contain_text("<a·href='x'>y</a>id 3")
    values = page.locator(".st-key-sampling .bartext").all_text_contents()
    assert values[9:] == ["99.9 %", "25.0 %", "10.0 %", "5.00 %"] + ["excluded"] * 5
    expect(page.locator(".st-key-languages .ytick").nth(2)).to_have_text("<b>mine</b>")
    plots = page.locator(".js-plotly-plot")
    expect(plots).to_have_count(3)
    assert plots.locator("a[href], b, [style*='font-weight: bold']").count() == 0


def test_printed_values_stay_inside_the_picture(new_page, address):
    page = new_page(address, width=390, height=1600)
    wait_idle(page)
    expect(page.locator(".st-key-languages .ytick")).to_have_count(3)
    texts = page.locator(".js-plotly-plot :is(.bartext, .ytick text, .xtick text, .xtitle, .legendtext)")
    edges = [box for i in range(texts.count()) if (box := texts.nth(i).bounding_box())]
    assert len(edges) > 30
    assert min(box["x"] for box in edges) >= 0 and max(box["x"] + box["width"] for box in edges) <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_in_figures_has_the_pages_colour(new_page, address, scheme):
    page = new_page(address, color_scheme=scheme)
    wait_idle(page)
    expect(page.locator(".st-key-languages .ytick")).to_have_count(3)
    colour = {"light": "rgb(16, 19, 23)", "dark": "rgb(230, 230, 233)"}[scheme]
    for name in (".ytick text", ".xtick text", ".bartext", ".xtitle", ".annotation-text"):
        expect(page.locator(f".st-key-languages {name}").first).to_have_css("fill", colour)
