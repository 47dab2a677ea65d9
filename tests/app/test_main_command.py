"""`python -m app`: the address it prints is the one in use, whatever port was asked for, and it ends quietly."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from app import __main__ as command
from app.__main__ import SERVER, free_port, web_address

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = """
import sys
from pathlib import Path
from app.__main__ import main
sys.exit(main(sys.argv[2:], Path(sys.argv[1])))
"""


@pytest.fixture
def target(tmp_path):
    """An app of one line with our configuration beside it, as app/server.py has it."""
    (tmp_path / "server.py").write_text("import streamlit as st\napp = st.App('page.py')\n")
    (tmp_path / "page.py").write_text("import streamlit as st\nst.write('hello')\n")
    (tmp_path / ".streamlit").symlink_to(ROOT / "app" / ".streamlit")
    return tmp_path / "server.py"


@contextmanager
def running(target, *options, **variables):
    """The command in a child process, started in another folder; yields it and the address it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STREAMLIT_")}
    environment |= variables | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(target), *options],
        cwd=target.parent,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        line = child.stdout.readline()
        yield child, re.match(r"Streamscope: (\S+)", line + " nothing printed").group(1)
    finally:
        child.kill()
        child.communicate()


def health(address):
    """What the server answers at `address`; tries while it is starting."""
    for _ in range(200):
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:
                return answer.read()
        except urllib.error.URLError:
            time.sleep(0.05)
    raise AssertionError(f"nothing answers at {address}")


@contextmanager
def two_ports():
    """A port that is taken, the next one free."""
    while True:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            if port < 65000 and free_port("127.0.0.1", port) == port + 1:
                yield port
                return


def test_a_busy_port_named_by_variable_gives_the_next_free_one_and_ctrl_c_ends_quietly(target):
    with two_ports() as busy, running(target, STREAMLIT_SERVER_PORT=str(busy)) as (child, address):
        assert address == f"http://127.0.0.1:{busy + 1}"
        assert health(address) == b"ok"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        assert (child.returncode, out, err) == (0, "", "")


def test_an_option_wins_over_the_variable_and_sigterm_ends_quietly(target):
    with two_ports() as busy:
        options = (f"--server.port={busy}", "--server.baseUrlPath=class")
        with running(target, *options, STREAMLIT_SERVER_PORT="1") as (child, address):
            assert address == f"http://127.0.0.1:{busy + 1}/class"
            assert health(address) == b"ok"
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=30)
            assert (child.returncode, out, err) == (0, "", "")


def test_free_port_takes_the_first_that_can_be_bound():
    with two_ports() as busy:
        assert free_port("127.0.0.1", busy) == busy + 1
    assert free_port("127.0.0.1", 0) > 0


def test_no_free_port_is_one_sentence(monkeypatch):
    with two_ports() as busy:
        monkeypatch.setattr(command, "PORTS_TRIED", 1)
        with pytest.raises(ValueError, match=f"needs a free port from {busy} to {busy} on 127.0.0.1; found none; stop"):
            free_port("127.0.0.1", busy)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--server.port=70000"], "Streamscope needs a port from 0 to 65535; found 70000;"),
        (["--server.address=203.0.113.1"], "Streamscope needs an address of this machine; found 203.0.113.1 "),
        (["--server.prot=1"], "No such option"),
    ],
)
def test_what_cannot_be_started_is_said_in_words(target, options, sentence):
    run = [sys.executable, "-c", LAUNCH, str(target), *options]
    done = subprocess.run(run, cwd=ROOT, text=True, capture_output=True, timeout=60)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_python_without_the_packages_is_sent_to_make_run(monkeypatch, capsys):
    monkeypatch.setattr(command, "NEEDED", ("streamlit", "no_such_package_here"))
    assert command.main([]) == 1
    assert re.fullmatch(
        r"Streamscope needs no_such_package_here; found \S+ without it; run `make run`.*\n", capsys.readouterr().err
    )


def test_the_command_serves_app_server_py():
    assert SERVER == ROOT / "app" / "server.py"
    assert SERVER.is_file()


@pytest.mark.parametrize(
    ("address", "options", "expected"),
    [
        ("127.0.0.1", {}, "http://127.0.0.1:8501"),
        ("0.0.0.0", {}, "http://127.0.0.1:8501"),
        ("::1", {"path": "/a/b/"}, "http://[::1]:8501/a/b"),
        ("host.example", {"secure": True, "path": ""}, "https://host.example:8501"),
    ],
)
def test_the_address_can_be_typed_into_a_browser(address, options, expected):
    assert web_address(address, 8501, **options) == expected
