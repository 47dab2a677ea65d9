"""`python -m app` with the real model: light, up again when its worker dies, and no worker left behind when it is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0  # seconds; a loaded machine may need most of it


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {PATIENCE:.0f} s for {what}"
        time.sleep(0.2)
    return found


def asked(address):
    """The health of a server, or None while it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/api/health", timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return {"state": f"status {error.code}", "error": error.read().decode()}
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def wait_until_ready(address):
    found = wait_for(lambda: (h := asked(address)) and h["state"] != "loading" and h, "the model")
    assert found["state"] == "ready", found


def workers(server):
    return [child for child in server.children(recursive=True) if "app.backend.child" in " ".join(child.cmdline())]


def loads_torch(process):
    return any("libtorch" in mapped.path for mapped in process.memory_maps())


def gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@contextmanager
def server(tmp_path):
    """`python -m app` on a free port, started in another folder: its process, address and log."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("STREAMLIT_", "STREAMSCOPE_MODELS"))}
    environment |= {"STREAMLIT_SERVER_PORT": "0", "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "PASSIVE"}
    with open(tmp_path / "log", "w") as log:
        child = psutil.Popen(
            [sys.executable, "-m", "app"],
            cwd=tmp_path,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        left = []
        try:
            address = re.match(r"Streamscope: (\S+)", child.stdout.readline() + " nothing printed")[1]
            wait_until_ready(address)
            left = workers(child)
            yield child, address, tmp_path / "log"
        finally:
            left += workers(child) if not gone(child) else []
            for process in [child, *left]:
                if not gone(process):
                    process.kill()
            child.communicate()


@pytest.mark.embedded
def test_a_real_server_is_light_survives_its_worker_and_takes_it_along_when_killed(smol_dir, tmp_path):
    """One server for all three: it takes half a minute to be ready. tests/browser/conftest.py ends one by SIGTERM."""
    with server(tmp_path) as (process, address, log):
        (worker,) = workers(process)
        assert process.memory_info().rss < 250e6
        if hasattr(psutil.Process, "memory_maps"):  # not on macOS
            assert not loads_torch(process)
            assert loads_torch(worker), "the check sees torch where it is"

        worker.send_signal(signal.SIGKILL)
        wait_for(lambda: (h := asked(address)) and h["state"] == "ready" and h["restarts"] == 1, "a new worker")
        (fresh,) = workers(process)
        assert fresh.pid != worker.pid
        assert "Traceback" not in log.read_text()

        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        wait_for(lambda: gone(fresh), "the end of the worker")
