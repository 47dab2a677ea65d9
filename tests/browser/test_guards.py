"""The guards that every browser test relies on must be able to fail."""

import os
import sys

import pytest

from tests.browser.conftest import APPS, serve, wait_idle, watch

pytestmark = pytest.mark.browser
POLICY = "<meta http-equiv='Content-Security-Policy' content=\"img-src 'none'\">"


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<script>console.error('it broke')</script>", "console: it broke"),
        ("<script>throw new Error('thrown')</script>", "exception: thrown"),
        ("<script>Promise.reject(new Error('late'))</script>", "exception: late"),
        ("<script>alert('pwned')</script>", "dialog: pwned"),
        ("<img src='http://tracker.example/x'>", "request: http://tracker.example/x"),
        (POLICY + "<img src='data:image/png;base64,xx'>", "console: CSP: img-src data"),
    ],
)
def test_what_goes_wrong_in_a_page_is_seen(browser, html, found):
    page = browser.new_page()
    problems = watch(page)
    page.route("http://127.0.0.1:9/*", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.route("http://tracker.example/*", lambda route: route.abort())
    page.goto("http://127.0.0.1:9/x")
    page.wait_for_timeout(200)
    page.close()
    assert any(line.startswith(found) for line in problems), problems


def test_a_quiet_page_has_no_problems(browser):
    page = browser.new_page()
    problems = watch(page)
    page.route("http://127.0.0.1:9/*", lambda route: route.fulfill(body="<p>hello", content_type="text/html"))
    page.goto("http://127.0.0.1:9/x")
    page.close()
    assert problems == []


def test_an_exception_on_the_page_fails_the_wait(new_page, streamlit_app):
    page = new_page(streamlit_app(APPS / "broken.py").url)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        wait_idle(page)


def test_a_server_that_ends_tells_why(tmp_path):
    command = [sys.executable, "-c", "print('no model here'); raise SystemExit(3)"]
    with pytest.raises(RuntimeError, match=r"ended with code 3; it printed:\nno model here"):
        with serve(command=command, log=tmp_path / "log.txt"):
            pass


def test_a_server_is_gone_afterwards(tmp_path):
    with serve(APPS / "broken.py", log=tmp_path / "log.txt") as server:
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
