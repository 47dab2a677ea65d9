"""Two ways to a worker: a thread of this process (tests, notebooks), or a child process over a private socket pair (the app).

Both speak the same messages to the same service; only starting and ending differ. The process is the default because Streamlit's
threads and the model share nothing then: at 40 users the median wait is 0.9-1.5 s instead of 11-16 s (docs/log.md).
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from app.backend.codec import Wire
from app.backend.service import Service

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Link:
    """A started worker: its wire, and how to end it at once."""

    wire: Wire
    kill: Callable[[], None]


# What a worker is started with, JSON-able: "analyses" (import path of the map), "source" (arguments of load_model), "limits"
# (fields of Limits), "beside" (bytes of the model that stays open meanwhile).
Order = Mapping[str, Any]
Start = Callable[[Order], Link]


def start_thread(order: Order) -> Link:
    """A worker on threads of this process. It cannot be killed in the middle of an operation, only asked to stop."""
    here, there = Pipe()
    ours, theirs = Wire(here), Wire(there)
    service = Service(theirs, order, transport="thread")
    threading.Thread(target=service.serve, args=(theirs.close,), name="worker", daemon=True).start()
    return Link(ours, ours.close)


def start_process(order: Order) -> Link:
    """A worker in a child process of its own.

    Not multiprocessing: its spawn re-runs the page script in the child. The child ends when the socket closes, so it cannot
    outlive this process, however that one ends.
    """
    here, there = socket.socketpair()
    arguments = json.dumps({"fd": there.fileno(), **order})
    # A waiting OpenMP thread spins by default. On a busy machine that slows everybody: a 30-token forward pass took 2.6 s
    # instead of 0.55 s (docs/log.md); on a quiet one both take the same.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        [sys.executable, "-m", "app.backend.child", arguments],
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment,
    )
    there.close()
    wire = Wire(Connection(here.detach()))

    def kill() -> None:
        child.kill()
        child.wait()
        wire.close()

    return Link(wire, kill)


TRANSPORTS: dict[str, Start] = {"thread": start_thread, "process": start_process}
