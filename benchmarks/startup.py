"""How long from `make run` to a page, and from a prompt to its finished page; how large the server is.

    .venv/bin/python benchmarks/startup.py [repeats]

Starts `make run` on a free port (the environment and the model must be there: run it once before), opens Chromium, waits for the
first example's finished page, sends a new 30-token prompt and waits for that one. Prints every run and the medians.
"""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PROMPTS = [
    f"Number {n}: the old lighthouse keeper wrote a short letter to his daughter about the storm that had passed over "
    "the island in the early morning, and"
    for n in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
]


def health(address: str) -> dict:
    try:
        with urllib.request.urlopen(f"{address}/api/health", timeout=2) as answer:
            return json.load(answer)
    except OSError:
        return {}


def until(condition, seconds: float = 120.0) -> float:
    """Seconds until the condition holds."""
    begun = time.perf_counter()
    while not condition():
        if time.perf_counter() - begun > seconds:
            raise SystemExit("waited too long")
        time.sleep(0.02)
    return time.perf_counter() - begun


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def one_run(browser, prompts: list[str]) -> dict[str, float]:
    import psutil

    port = free_port()
    address = f"http://127.0.0.1:{port}"
    begun = time.perf_counter()
    make = subprocess.Popen(
        ["make", "-s", "run"],
        cwd=ROOT,
        env={**os.environ, "STREAMLIT_SERVER_PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: health(address))
        found = {"server answers": time.perf_counter() - begun}
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(address)
        page.wait_for_selector(".st-key-finding .finding", timeout=120_000)
        page.wait_for_selector(".st-key-tokens-next .js-plotly-plot", timeout=60_000)
        found["usable page"] = time.perf_counter() - begun
        page.wait_for_timeout(1500)
        times = []
        for prompt in prompts:
            page.locator(".st-key-prompt textarea").fill(prompt)
            sent = time.perf_counter()
            page.locator(".st-key-prompt textarea").press("Control+Enter")
            page.wait_for_function(
                "n => [...document.querySelectorAll('.st-key-finding *')]"
                ".some(e => (e.shadowRoot ?? e).textContent?.includes(n))",
                arg=f"{len(prompt):,} characters",
                timeout=60_000,
            )
            page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=60_000)
            times.append(time.perf_counter() - sent)
        found["30-token prompt to finished page"] = statistics.median(times)
        server = next(
            p
            for p in psutil.Process(make.pid).children(recursive=True)
            if "-m app" in " ".join(p.cmdline()) and "child" not in " ".join(p.cmdline())
        )
        found["server MB"] = server.memory_info().rss / 1e6
        found["server loads torch"] = float(any("libtorch" in m.path for m in server.memory_maps()))
        found["model process MB"] = sum(c.memory_info().rss for c in server.children(recursive=True)) / 1e6
        page.close()
        return found
    finally:
        os.killpg(make.pid, signal.SIGTERM)
        make.wait(30)


def main(repeats: int = 3) -> None:
    from playwright.sync_api import sync_playwright

    from tests.browser.chromium import find_browser, launch_arguments

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=launch_arguments())
        runs = [one_run(browser, PROMPTS[: 5 + index]) for index in range(repeats)]
        browser.close()
    for run in runs:
        print({name: round(value, 2) for name, value in run.items()})
    print(
        "median",
        {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]},
        "load",
        os.getloadavg(),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
