"""How long from a click to the picture, and how much goes over the wire, on a running app: `python benchmarks/pages.py URL`.

A prompt of 128 tokens: the lens grid (all depths and tokens) after "All" is pressed, and the sheet of all heads after the page
is chosen. The server has answered the same pages before (warm), but for another prompt, so nothing comes from its cache.
"""

import statistics
import sys
import time
from typing import Any

from playwright.sync_api import sync_playwright
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser.chromium import find_browser, launch_arguments
from tests.browser.driver import go_to

WORDS = "The quick brown fox jumps over a lazy dog and sleeps in the warm grass near the old mill by the river while"


def prompt(number: int) -> str:
    """About 128 tokens, another text for every number."""
    return f"Story {number}. " + " ".join([WORDS] * 5)


def watch(page: Any) -> list[tuple[str, int]]:
    """Component ("" for anything else) and size of the messages that the page receives from now on."""
    seen: list[tuple[str, int]] = []

    def note(data: bytes) -> None:
        message = ForwardMsg.FromString(data)
        seen.append((message.delta.new_element.bidi_component.component_name, len(data)))

    page.on("websocket", lambda socket: socket.on("framereceived", note))
    return seen


def lens(page: Any, url: str, number: int) -> tuple[float, float]:
    """Seconds from the click on "All" to a grid of all tokens with every cell on the screen read, and to all of it."""
    page.goto(f"{url}/logit_lens?prompt={prompt(number)}")
    page.get_by_text("Take it with you").wait_for(timeout=600_000)
    page.wait_for_timeout(3000)
    box = page.locator(".st-key-lens-cells .box")
    begun = time.perf_counter()
    page.locator(".st-key-span").get_by_text("All", exact=True).click()
    page.wait_for_function(
        "(box) => +box.querySelector('[role=grid]').getAttribute('aria-colcount') > 100"
        " && [...box.querySelectorAll('.cell')].every((cell) => cell.textContent)",
        arg=box.element_handle(),
        timeout=600_000,
    )
    seen = time.perf_counter() - begun
    page.locator("[data-test-script-state=notRunning]").wait_for(timeout=600_000)
    return seen, time.perf_counter() - begun


def sheet(page: Any, url: str, number: int) -> tuple[float, float]:
    """Seconds from the click on the page's name to a sheet whose heads can be clicked."""
    page.goto(f"{url}/model")
    page.get_by_text("self-checks passed").first.wait_for(timeout=600_000)
    page.locator(".st-key-prompt textarea").fill(prompt(number))
    page.locator(".st-key-prompt textarea").press("Control+Enter")
    page.wait_for_timeout(3000)
    begun = time.perf_counter()
    go_to(page, "Attention", wait=False)
    page.locator(".st-key-attention-sheet [role=gridcell]").nth(200).wait_for(timeout=600_000)
    seconds = time.perf_counter() - begun
    return seconds, seconds


def main(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=launch_arguments())
        for name, act in (("lens_grid", lens), ("head_grid", sheet)):
            times, sizes = [], []
            for number in range(4):
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                messages = watch(page)
                times.append(act(page, url.rstrip("/"), int(time.time()) + number))
                sizes.append([size for component, size in messages if component == name])
                page.close()
            seen, whole = (statistics.median(column) for column in zip(*times[1:], strict=True))
            print(
                f"{name}: seen after {seen:.2f} s, the whole page after {whole:.2f} s (median of {len(times) - 1}; first "
                f"{times[0][0]:.2f} s), largest of its {len(sizes[-1])} messages {max(map(max, sizes)) / 1000:.0f} KB"
            )
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
