"""The server: headers on everything it says, an honest health answer, and no process left behind however it ends."""

import base64
import hashlib
import html.parser
import re
from pathlib import Path

import pytest
import streamlit
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from analyses._steps import Progress
from app.backend import use_backend
from app.backend.protocol import Refused, Status
from app.server import Headers, app
from app.ui.session import USER_COOKIE
from tests.app.stub import StubBackend, model_info

ROOT = Path(__file__).resolve().parents[2]
STATIC = Path(streamlit.__file__).parent / "static"
HEADERS = {
    "content-security-policy",
    "x-content-type-options",
    "referrer-policy",
    "permissions-policy",
}


@pytest.fixture(scope="module")
def served():
    """The whole application on a stub backend: (client, stub)."""
    stub = StubBackend()
    use_backend(stub)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client, stub
    assert stub.closed == 1, "the backend ends with the server"


@pytest.fixture
def client(served):
    served[0].cookies.clear()
    return served[0]


@pytest.fixture
def stub(served):
    stub = served[1]
    yield stub
    stub.now = Status(model_info())


def policy(response):
    parts = [part.split() for part in response.headers["content-security-policy"].split(";")]
    return {part[0]: part[1:] for part in parts}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/model", 200),
        ("GET", "/api/health", 200),
        ("POST", "/api/health", 405),
        ("GET", "/media/nothing", 404),
        ("GET", "/_stcore/health", 200),
    ],
)
def test_every_answer_carries_the_security_headers(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert HEADERS <= answer.headers.keys()
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_policy_allows_this_server_and_streamlits_own_script_only(client):
    class Scripts(html.parser.HTMLParser):
        inline: list[str] = []
        inside = False

        def handle_starttag(self, tag, attributes):
            self.inside = tag == "script" and not any(name == "src" for name, _ in attributes)

        def handle_data(self, data):
            if self.inside:
                self.inline.append(data)

        def handle_endtag(self, tag):
            self.inside = False

    page = client.get("/")
    parser = Scripts()
    parser.feed(page.text)
    digests = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in parser.inline}
    assert digests, "Streamlit's page has an inline script; without its hash the app stays blank"
    found = policy(page)
    hashes = {source for source in found["script-src"] if source.startswith("'sha256-")}
    assert hashes == {f"'sha256-{digest}'" for digest in digests}
    assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "https:", "http:", "data:"} & set(found["script-src"])
    assert found["default-src"] == ["'self'"] and found["object-src"] == ["'none'"]
    assert found["frame-ancestors"] == ["'self'"] and found["base-uri"] == ["'self'"]
    outside = [source for sources in found.values() for source in sources if re.match(r"https?:|\*", source)]
    assert outside == []


def test_a_person_gets_one_random_cookie_and_keeps_it(client):
    def ours(answer):
        return [value for value in answer.headers.get_list("set-cookie") if value.startswith(f"{USER_COOKIE}=")]

    (cookie,) = ours(client.get("/"))
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    value = cookie.split("; ")[0].split("=", 1)[1]
    assert len(value) >= 20
    assert ours(client.get("/")) == ours(client.get("/model")) == [], "the browser sends it back; it stays the same"
    client.cookies.clear()
    assert ours(client.get("/api/health")) == [], "a monitor that asks every second is nobody"
    (other,) = ours(client.get("/"))
    assert other.split("; ")[0] != cookie.split("; ")[0]


def test_the_cookie_of_another_application_is_not_ours(client):
    answer = client.get("/", headers={"cookie": f"x{USER_COOKIE}=1; other=2"})
    assert f"{USER_COOKIE}=" in answer.headers["set-cookie"]


def test_large_files_are_compressed_and_small_ones_are_not(client):
    largest = max(STATIC.rglob("*.js"), key=lambda file: file.stat().st_size)
    path = f"/static/{largest.relative_to(STATIC / 'static').as_posix()}"
    with client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        sent = sum(map(len, answer.iter_raw()))
        assert answer.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in answer.headers["vary"].lower()
    assert sent < 0.5 * largest.stat().st_size
    assert "content-encoding" not in client.get(path, headers={"accept-encoding": "identity"}).headers
    assert "content-encoding" not in client.get("/api/health", headers={"accept-encoding": "gzip"}).headers


def test_health_while_a_model_loads_is_fine_and_says_so(client, stub):
    stub.now = Status(None, "owner/name", Progress(1, 4, "downloading"))
    answer = client.get("/api/health")
    assert (answer.status_code, answer.json()["state"], answer.json()["opening"]) == (200, "loading", "owner/name")
    assert "model" not in answer.json()


def test_health_of_a_ready_server_names_model_device_and_worker(client, stub):
    answer = client.get("/api/health")
    assert answer.status_code == 200
    expected = {"state": "ready", "model": "stub-model", "device": "cpu", "dtype": "float32", "restarts": 4}
    assert answer.json() | expected == answer.json()
    assert (answer.json()["transport"], answer.json()["waiting"]) == ("stub", 2)


def test_health_of_a_model_that_could_not_be_opened_is_an_error(client, stub):
    stub.now = Status(None, error="needs a model; found none; choose another.")
    answer = client.get("/api/health")
    assert (answer.status_code, answer.json()["state"]) == (503, "failed")
    assert answer.json()["error"] == "needs a model; found none; choose another."


def test_health_stays_ready_when_only_a_second_model_failed(client, stub):
    stub.now = Status(model_info(), error="needs access; found none; ask for it.")
    answer = client.get("/api/health")
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    assert answer.json()["error"].startswith("needs access")


def test_health_answers_while_the_worker_does_not(client, stub, monkeypatch):
    """Between the death of the model's process and the notice of it, a question to it is refused."""

    def refuse():
        raise Refused("worker_died", "The model's process ended; try again in a moment.")

    monkeypatch.setattr(stub, "stats", refuse)
    answer = client.get("/api/health")
    assert answer.status_code in (200, 503)
    assert answer.json()["state"] in ("loading", "busy", "failed")


def test_a_route_that_ends_in_an_error_answers_without_its_traceback():
    def broken(request):
        raise RuntimeError("secret detail")

    small = Starlette(routes=[Route("/", broken)], middleware=[Middleware(Headers)])
    answer = TestClient(small, raise_server_exceptions=False).get("/")
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_headers_replace_what_an_application_set_and_keep_the_rest():
    async def inner(scope, receive, send):
        answer = JSONResponse({}, headers={"content-security-policy": "default-src *", "x-own": "1"})
        await answer(scope, receive, send)

    answer = TestClient(Headers(inner)).get("/")
    assert answer.headers["x-own"] == "1"
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")


def test_a_websocket_passes_untouched():
    seen = []

    async def inner(scope, receive, send):
        seen.append(scope["type"])
        if scope["type"] == "http":
            await PlainTextResponse("")(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close"})

    with TestClient(Headers(inner)).websocket_connect("/"):
        pass
    assert seen == ["websocket"]
