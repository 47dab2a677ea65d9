"""A real Chromium and real servers, and pages that fail their test when anything goes wrong inside them.

* `streamlit_app(target, ...)` starts `python -m streamlit run target` (or any `command`) and gives its address.
* `app` is the whole app with the embedded model, one for all files that a worker runs: starting it takes 20 CPU seconds.
* `new_page(...)` opens a page whose console errors, exceptions, dialogs, CSP violations and requests to other machines
  fail the test.
* `wait_idle(page)` waits for Streamlit to have finished; wait for the wanted locator as well.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.chromium import find_browser, launch_arguments

ROOT = Path(__file__).resolve().parents[2]
APPS = Path(__file__).parent / "apps"
_LOCAL = re.compile(r"^(data:|blob:|about:|(http|ws)s?://(127\.0\.0\.1|localhost|\[::1\])[:/])")
# Streamlit is finished when this matches; the lazily loaded parts of a page may still follow within 0.2 s.
_IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"][data-test-connection-state="CONNECTED"]'
_REPORT_CSP = """
document.addEventListener('securitypolicyviolation',
  (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    pid: int
    log: Path


@contextmanager
def serve(
    target: Path | str = "",
    *,
    log: Path,
    command: Sequence[str] | None = None,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    timeout: float = 60,
) -> Iterator[Server]:
    """Run a Streamlit script, or any command that takes its port from STREAMLIT_SERVER_PORT, and end it by its pid.

    Args:
        target: script or ASGI file for `streamlit run`; not used when `command` is given.
        log: file for what the server prints; its end is part of the error when the server does not come up.
        command: the whole command line instead of `streamlit run target`.
        arguments: appended to the command line.
        env: variables on top of the present ones.
        cwd: folder to start in.
        timeout: seconds until the health page has to answer.

    Raises:
        RuntimeError: the server ended or did not answer in time; its last lines are in the message.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "STREAMLIT_SERVER_PORT": str(port),
        "STREAMLIT_SERVER_ADDRESS": "127.0.0.1",
        "STREAMLIT_SERVER_HEADLESS": "true",
        "STREAMLIT_SERVER_FILE_WATCHER_TYPE": "none",
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
        "PYTHONPATH": str(ROOT),  # small test scripts import app.* as the real entry does
    }
    line = [*(command or [sys.executable, "-m", "streamlit", "run", str(target)]), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            line, cwd=cwd, env={**os.environ, **settings, **(env or {})}, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait_healthy(process, f"http://127.0.0.1:{port}/_stcore/health", log, timeout)
            yield Server(f"http://127.0.0.1:{port}", process.pid, log)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_healthy(process: subprocess.Popen[bytes], url: str, log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    ended = f"ended with code {process.returncode}" if process.poll() is not None else f"gave no answer in {timeout} s"
    raise RuntimeError(f"the server {ended}; it printed:\n{log.read_text(errors='replace')[-4000:]}")


def watch(page: Page) -> list[str]:
    """Everything that goes wrong in a page from now on, a line each."""
    problems: list[str] = []

    def dialog(box: Any) -> None:
        problems.append(f"dialog: {box.message}")
        box.dismiss()

    def console(message: Any) -> None:
        if message.type == "error":  # "Failed to load resource" does not say which
            what = f" {message.location['url']}" if message.text.startswith("Failed to load") else ""
            problems.append(f"console: {message.text}{what}")

    page.on("console", console)
    page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
    page.on("dialog", dialog)
    page.on("request", lambda r: None if _LOCAL.match(r.url) else problems.append(f"request: {r.url}"))
    page.add_init_script(_REPORT_CSP)
    return problems


def wait_idle(page: Page, timeout: float = 30_000) -> None:
    """Wait until Streamlit is connected and has not been running for 0.3 s; a Python exception on the page fails."""
    quiet_since = None
    deadline = time.monotonic() + timeout / 1000
    while quiet_since is None or time.monotonic() - quiet_since < 0.3:
        if time.monotonic() > deadline:
            raise AssertionError(f"still running after {timeout / 1000:.0f} s: {page.url}")
        idle = page.locator(_IDLE).count() > 0
        quiet_since = (quiet_since or time.monotonic()) if idle else None
        page.wait_for_timeout(50)
    shown = page.get_by_test_id("stException")
    if shown.count():
        raise AssertionError(f"the page shows an exception: {shown.first.inner_text()}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the whole session."""
    with sync_playwright() as playwright:
        expect.set_options(timeout=45_000)  # the machine may be small and busy; this is a limit, not a measurement
        started = playwright.chromium.launch(executable_path=find_browser(), args=launch_arguments())
        yield started
        started.close()


@pytest.fixture(scope="session")
def app(smol_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`python -m app`, ready; in the end it must leave quietly and take the model's process along."""
    from tests.browser.driver import wait_health  # which imports this file

    log = tmp_path_factory.mktemp("app") / "log.txt"
    limits = {"STREAMSCOPE_LIMIT_SECONDS": "3600"}  # a slow machine must not refuse what is cancelled here
    with serve(command=[sys.executable, "-m", "app"], log=log, env=limits, timeout=180) as server:
        wait_health(server, state="ready", transport="process")
        yield server
        process = psutil.Process(server.pid)
        left = process.children(recursive=True)
        assert any("app.backend.child" in child.cmdline() for child in left)
        process.terminate()
        _, alive = psutil.wait_procs([process, *left], timeout=60)
        assert not alive and process.returncode == 0, log.read_text(errors="replace")[-2000:]
    assert "Traceback" not in log.read_text(errors="replace")


@pytest.fixture(scope="module")
def streamlit_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers that live until the module's tests are done; takes what `serve` takes, except `log`."""
    with ExitStack() as running:

        def start(target: Path | str = "", **options: Any) -> Server:
            log = tmp_path_factory.mktemp("server") / "log.txt"
            return running.enter_context(serve(target, log=log, **options))

        yield start


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a context of its own: `new_page(url, width=390, color_scheme="dark")`, closed after the test.

    `allow` is a regular expression for the lines of `watch` that the test expects, complete ones.
    """
    watched: list[tuple[list[str], str]] = []
    with ExitStack() as contexts:

        def open_page(
            url: str = "", *, width: int = 1400, height: int = 900, allow: str = "(?!)", **options: Any
        ) -> Page:
            still = {"reduced_motion": "reduce"}  # drawing Streamlit's moving placeholders takes a tenth of the time
            context = browser.new_context(viewport={"width": width, "height": height}, **still | options)
            contexts.callback(context.close)
            page = context.new_page()
            watched.append((watch(page), allow))
            if url:
                page.goto(url)
            return page

        yield open_page
    assert [line for problems, allow in watched for line in problems if not re.fullmatch(allow, line)] == []
