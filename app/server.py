"""The ASGI application: pages, a health endpoint, compression, security headers, start and stop of the backend.

`python -m app`, `streamlit run app/server.py` and `uvicorn app.server:app` all serve it.
"""

import base64
import hashlib
import re
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import anyio.to_thread  # noqa: E402 (the project's root has to be on the path first)
import streamlit as st  # noqa: E402
from starlette.datastructures import MutableHeaders  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402
from starlette.middleware.gzip import GZipMiddleware  # noqa: E402
from starlette.requests import Request, cookie_parser  # noqa: E402
from starlette.responses import JSONResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402
from starlette.types import ASGIApp, Message, Receive, Scope, Send  # noqa: E402

from app.backend import get_backend, use_backend  # noqa: E402
from app.backend.protocol import Refused  # noqa: E402
from app.ui.session import USER_COOKIE  # noqa: E402


def content_security_policy() -> str:
    """What a page may load: this server only. Streamlit's one inline script is allowed by its hash, read at start."""
    page = (Path(st.__file__).parent / "static" / "index.html").read_text()
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return "; ".join(
        [
            "default-src 'self'",
            "img-src 'self' data: blob:",
            "style-src 'self' 'unsafe-inline'",
            "font-src 'self' data:",
            "connect-src 'self' ws: wss:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'self'",
            "frame-ancestors 'self'",
            " ".join(["script-src 'self' blob: 'wasm-unsafe-eval'", *(f"'sha256-{digest}'" for digest in hashes)]),
        ]
    )


class Headers:
    """Security headers on every response, and a random cookie that tells two people apart (no name, no tracking)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.policy = content_security_policy()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        cookies = cookie_parser(dict(scope["headers"]).get(b"cookie", b"").decode("latin-1"))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = self.policy
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "same-origin"
                headers["permissions-policy"] = "camera=(), microphone=(), geolocation=()"
                if USER_COOKIE not in cookies and headers.get("content-type", "").startswith("text/html"):
                    value = (
                        f"{USER_COOKIE}={secrets.token_urlsafe(16)}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000"
                    )
                    headers.append("set-cookie", value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


async def health(request: Request) -> JSONResponse:
    """GET /api/health: 200 while the server works (also while a model loads), 503 when no model could be opened."""
    backend = get_backend()
    status = backend.status()
    body: dict[str, Any] = {"state": "loading", "opening": status.opening, "error": status.error}
    if status.model is not None:
        config = status.model.config
        body |= {"state": "ready", "model": config.name, "device": config.device, "dtype": config.dtype}
        try:
            numbers = await anyio.to_thread.run_sync(backend.stats)
            body |= {"transport": numbers.transport, "waiting": numbers.waiting, "restarts": numbers.restarts}
        except Refused as why:  # the worker has just died or stalled
            body |= {"state": "loading", "error": why.message}
    elif status.error:
        body["state"] = "failed"
    return JSONResponse(body, status_code=503 if body["state"] == "failed" else 200)


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """The model loads while the first browser opens, and its process ends with the server."""
    get_backend()
    try:
        yield
    finally:
        await anyio.to_thread.run_sync(use_backend, None)


app = st.App(
    ROOT / "app" / "main.py",
    routes=[Route("/api/health", health)],
    lifespan=lifespan,
    middleware=[Middleware(Headers), Middleware(GZipMiddleware, minimum_size=1000)],
)
