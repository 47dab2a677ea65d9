"""The backend that owns the model. `get_backend()` is the one way to it; see app/backend/protocol.py for what it promises."""

import os
import threading

from app.backend.protocol import Backend
from app.catalogue import load_catalogue

_lock = threading.Lock()
_kept: list[Backend] = []  # at most one: shared by every session of this server process


def get_backend() -> Backend:
    """The backend of this server process, started at the first call.

    STREAMSCOPE_BACKEND chooses the transport ("process", the default, or "thread").
    """
    with _lock:
        if not _kept:
            from app.backend.client import RemoteBackend

            first = load_catalogue().entries[0]
            transport = os.environ.get("STREAMSCOPE_BACKEND", "process")
            _kept.append(RemoteBackend(transport, source=first.source, revision=first.revision))
        return _kept[0]


def use_backend(backend: Backend | None) -> None:
    """Put a backend in place of the lazy one (tests), or end the one there is (None)."""
    with _lock:
        old = _kept.pop() if _kept else None
        if backend is not None:
            _kept.append(backend)
    if old is not None:
        old.close()
