import subprocess

import pytest

from tests.browser import chromium


@pytest.fixture
def machine(monkeypatch):
    """A machine on which every command fails unless a test says otherwise; returns the commands that were run."""
    ran = []
    machine = {"starts": set(), "path": {}, "ran": ran, "own": "", "after": {}}

    def run(command, timeout):
        ran.append(command)
        done = command in machine["after"].get("works", [])
        if done:
            machine["after"]["do"]()
        if command[1:2] == ["--version"]:
            done = command[0] in machine["starts"]
        if command[1:2] == ["-c"]:
            return subprocess.CompletedProcess(command, 0, machine["own"] + "\n", "")
        return subprocess.CompletedProcess(command, 0 if done else 1, "", "")

    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.setattr(chromium, "_run", run)
    monkeypatch.setattr(chromium.shutil, "which", lambda name: machine["path"].get(name))
    monkeypatch.setattr(chromium.os.path, "exists", lambda path: path in machine["starts"])
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 0)
    return machine


def installers(machine):
    return [command for command in machine["ran"] if "install" in command]


def test_the_variable_wins_over_everything(machine, monkeypatch):
    monkeypatch.setenv(chromium.VARIABLE, "mine")
    machine.update(starts={"mine", "theirs"}, path={"chromium": "theirs"})
    assert chromium.find_browser() == "mine"


def test_a_variable_that_does_not_start_is_an_error_and_not_ignored(machine, monkeypatch):
    monkeypatch.setenv(chromium.VARIABLE, "typo")
    machine.update(starts={"theirs"}, path={"chromium": "theirs"})
    with pytest.raises(RuntimeError, match=r"STREAMSCOPE_CHROMIUM is typo, .*: correct it or unset it\.$"):
        chromium.find_browser()


def test_the_path_comes_before_playwright_and_a_stub_is_passed_over(machine):
    machine.update(starts={"real", "own"}, path={"chromium-browser": "stub", "google-chrome": "real"}, own="own")
    assert chromium.find_browser() == "real"
    assert ["stub", "--version"] in machine["ran"] and not installers(machine)


def test_playwrights_own_comes_before_any_installation(machine):
    machine.update(starts={"own"}, own="own")
    assert chromium.find_browser() == "own"
    assert not installers(machine)


def test_playwright_installs_before_apt(machine):
    install = [chromium.sys.executable, "-m", "playwright", "install", "chromium"]
    machine.update(own="own", after={"works": [install], "do": lambda: machine["starts"].add("own")})
    assert chromium.find_browser() == "own"
    assert installers(machine) == [install]


def test_apt_is_the_last_resort_and_only_for_root(machine, monkeypatch):
    apt = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]

    def installed():
        machine["starts"].add("debian")
        machine["path"]["chromium"] = "debian"

    machine.update(path={"apt-get": "apt-get"}, after={"works": [apt], "do": installed})
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError):
        chromium.find_browser()
    assert apt not in machine["ran"]
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 0)
    assert chromium.find_browser() == "debian"
    assert installers(machine)[-2][-1] == "chromium" and installers(machine)[-1] == apt


def test_no_browser_is_one_sentence_and_a_failure(machine, capsys):
    assert chromium.main() == 1
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and err.endswith("or set STREAMSCOPE_CHROMIUM to its path.\n")


def test_a_command_that_cannot_be_started_counts_as_failed():
    assert not chromium.starts("no-such-browser-anywhere")


def test_only_root_gives_up_the_sandbox(monkeypatch):
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 1000)
    assert "--no-sandbox" not in chromium.launch_arguments()
    monkeypatch.setattr(chromium.os, "geteuid", lambda: 0)
    assert "--no-sandbox" in chromium.launch_arguments()
