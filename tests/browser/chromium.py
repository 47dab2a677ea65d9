"""Find a Chromium, or get one; `python -m tests.browser.chromium` prints its path.

Browser tests are never skipped: where no browser can be had they fail with one sentence that says what to do.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

VARIABLE = "STREAMSCOPE_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_PLAYWRIGHT_PATH = (
    "from playwright.sync_api import sync_playwright as start\nwith start() as p: print(p.chromium.executable_path)"
)


def find_browser() -> str:
    """Path of a browser that starts: ours by variable, on the PATH, Playwright's, or one installed now.

    Raises:
        RuntimeError: there is none and none could be installed, or the variable names something that does not start.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        if starts(chosen):
            return chosen
        raise RuntimeError(f"{VARIABLE} is {chosen}, which does not start as a browser: correct it or unset it.")
    for look in (on_path, playwright_own, playwright_install, apt_install):
        for path in look():
            if starts(path):
                return path
    raise RuntimeError(
        f"The browser tests need Chromium or Chrome and none was found or could be installed: install one, "
        f"or set {VARIABLE} to its path."
    )


def starts(path: str) -> bool:
    """Whether it runs at all: on some systems `chromium-browser` only prints how to install the real one."""
    return _run([path, "--version"], timeout=60).returncode == 0


def on_path() -> Iterator[str]:
    """Browsers that the system already has."""
    yield from filter(None, map(shutil.which, NAMES))


def playwright_own() -> Iterator[str]:
    """The one Playwright downloaded earlier; asked in a child, which works inside a running Playwright too."""
    answer = _run([sys.executable, "-c", _PLAYWRIGHT_PATH], timeout=60)
    path = answer.stdout.strip()
    if answer.returncode == 0 and os.path.exists(path):
        yield path


def playwright_install() -> Iterator[str]:
    """Let Playwright download its own."""
    if _run([sys.executable, "-m", "playwright", "install", "chromium"], timeout=900).returncode == 0:
        yield from playwright_own()


def apt_install() -> Iterator[str]:
    """Debian's package, when we may install it."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _run(["apt-get", "update"], timeout=300)
        _run(["apt-get", "install", "-y", "--no-install-recommends", "chromium"], timeout=900)
        yield from on_path()


def launch_arguments() -> list[str]:
    """Arguments for a headless browser that stays off the network; root cannot use Chromium's sandbox."""
    arguments = ["--disable-gpu", "--disable-dev-shm-usage"]
    arguments += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    return arguments + (["--no-sandbox"] if os.geteuid() == 0 else [])


def _run(command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run to the end; what cannot be started or takes too long counts as failed."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=quiet, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, returncode=1, stdout="", stderr=str(error))


def main(find: Callable[[], str] = find_browser) -> int:
    """Print the path, or the sentence that says what is missing."""
    try:
        sys.stdout.write(find() + "\n")
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
