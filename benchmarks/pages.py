"""How long from a click to the picture, and how much goes over the wire, on a running app: `python benchmarks/pages.py URL`.

A prompt of 128 tokens: the lens grid (all depths and tokens) after "All" is pressed, and the sheet of all heads after the page
is chosen. The server has answered the same pages before (warm), but for another prompt, so nothing comes from its cache.
"""

import statistics
import sys
import time
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.chromium import find_browser, launch_arguments

WORDS = "The quick brown fox jumps over a lazy dog and sleeps in the warm grass near the old mill by the river while"


def prompt(number: int) -> str:
    """About 128 tokens, another text for every number."""
    return f"Story {number}. " + " ".join([WORDS] * 5)


def watch(page: Any) -> list[int]:
    """Sizes of the messages that the page receives from now on."""
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))))
    return sizes


def lens(page: Any, url: str, number: int) -> float:
    """Seconds from the click on "All" to the grid with its first column."""
    page.goto(f"{url}/logit_lens?prompt={prompt(number)}")
    page.get_by_text("Take it with you").wait_for(timeout=120_000)
    page.wait_for_timeout(3000)
    box = page.locator(".st-key-lens-cells .box")
    begun = time.perf_counter()
    page.locator(".st-key-span").get_by_text("All", exact=True).click()
    page.wait_for_function(
        "(box) => +box.querySelector('[role=grid]').getAttribute('aria-colcount') > 100", arg=box.element_handle()
    )
    return time.perf_counter() - begun


def sheet(page: Any, url: str, number: int) -> float:
    """Seconds from the click on the page's name to a sheet whose heads can be clicked."""
    page.goto(f"{url}/model")
    page.get_by_text("self-checks passed").first.wait_for(timeout=120_000)
    page.locator(".st-key-prompt textarea").fill(prompt(number))
    page.locator(".st-key-prompt textarea").press("Control+Enter")
    page.wait_for_timeout(3000)
    begun = time.perf_counter()
    page.get_by_test_id("stTopNavLink").filter(has_text="Attention").click()
    page.locator(".st-key-attention-sheet [role=gridcell]").nth(200).wait_for(timeout=120_000)
    return time.perf_counter() - begun


def main(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=launch_arguments())
        for name, act in (("lens grid", lens), ("sheet of heads", sheet)):
            seconds, largest = [], 0
            for number in range(4):
                page = browser.new_page(viewport={"width": 1400, "height": 900})
                sizes = watch(page)
                seconds.append(act(page, url.rstrip("/"), int(time.time()) + number))
                largest = max(sizes)
                page.close()
            warm = seconds[1:]
            print(
                f"{name}: {statistics.median(warm):.2f} s (median of {len(warm)}; first {seconds[0]:.2f} s), "
                f"largest message {largest / 1000:.0f} KB"
            )
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
