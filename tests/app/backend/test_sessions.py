"""When a silent worker counts as stalled, and what a message from it becomes."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from analyses._steps import Analysis, Cost, Progress
from app.backend.protocol import Request, Who
from app.backend.sessions import Session, event_of
from app.backend.watchdog import Watchdog
from tests.app.backend.suite import Numbers

BODY = {"kind": "queued", "ahead": 0, "seconds": 0.0, "cached": False}


class Later:
    """The clock of a session, some seconds ahead."""

    def __init__(self, monkeypatch):
        self.seconds, real = 0.0, time.monotonic
        monkeypatch.setattr("app.backend.sessions.time.monotonic", lambda: real() + self.seconds)


@pytest.fixture
def later(monkeypatch):
    return Later(monkeypatch)


def session(model=True, turn="", estimate=0.0, jobs=0):
    made = Session(link=None, source={})
    made.model = object() if model else None
    made.jobs = dict.fromkeys(range(jobs))
    made.begin_turn(turn, estimate)
    return made


@pytest.mark.parametrize(
    ("facts", "silence", "stalled"),
    [
        ({"turn": "key"}, 31, True),
        ({"turn": "key"}, 29, False),
        ({"turn": "key", "estimate": 20.0}, 99, False),  # five times what was announced
        ({"turn": "key", "estimate": 20.0}, 101, True),
        ({"jobs": 1}, 31, True),  # has work and does not begin it
        ({}, 9999, False),  # idle
        ({"model": False, "jobs": 3}, 9999, False),  # loads
    ],
)
def test_silence_is_judged_by_what_the_worker_has_to_do(later, facts, silence, stalled):
    made = session(**facts)
    later.seconds = silence
    assert made.stalled(30.0) is stalled


def test_a_sign_and_new_work_for_an_idle_worker_start_the_wait_afresh(later):
    sent = []

    class Link:
        class wire:
            send = sent.append

    made = session(turn="key")
    later.seconds = 20
    made.hear()
    later.seconds = 49
    assert not made.stalled(30.0)

    idle = session()
    later.seconds = 1000
    idle.link = Link
    idle.model = None  # its fingerprint is not needed here
    from app.backend.jobs import RemoteJob

    job = idle.jobs[1] = RemoteJob(Request("x", (1, 2)), Who("ann", "page"), lambda: None)
    idle.send_job(1, job, None)
    idle.model = object()
    assert sent[0]["op"] == "submit" and not idle.stalled(30.0)
    later.seconds = 1031
    assert idle.stalled(30.0)


def test_a_message_becomes_an_event_with_the_analysis_own_result():
    analysis = Analysis(lambda: None, lambda *_: Cost(0, 0, 0), Numbers)
    event = event_of(BODY | {"kind": "progress", "progress": {"done": 1, "total": 2}}, analysis)
    assert (event.kind, event.progress) == ("progress", Progress(1, 2))
    event = event_of(BODY | {"kind": "done", "result": {"values": np.ones(2), "note": "n"}, "seconds": 1.5}, analysis)
    assert event.result.note == "n" and event.seconds == 1.5
    event = event_of(BODY | {"kind": "done", "result": {"no_such": 1}}, analysis)
    assert event.kind == "failed" and "does not fit its class" in event.failure.message


def test_the_watchdog_ends_what_stalled_and_nothing_when_it_stood_still_itself(later):
    ended = []
    silent, idle = session(turn="key"), session()
    for number, made in enumerate((silent, idle)):
        made.link = SimpleNamespace(kill=lambda number=number: ended.append(number))
    dog = Watchdog(lambda: (silent, idle))
    dog.close()
    later.seconds = 31
    dog.look(since_last_look=31)
    assert ended == [] and not silent.stalled(30.0), "it has had no chance to read a sign: the wait begins afresh"
    later.seconds = 62
    dog.look(since_last_look=1)
    assert ended == [0]
