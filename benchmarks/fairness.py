"""Does one person's long work hold up a class? A simulation with the app's own queue, then a short measurement on the real model.

    .venv/bin/python benchmarks/fairness.py [simulation | real]

Simulation: 39 people send 1,224 small requests (184 s of computing) within 600 s, and at the start one more queues three sweeps
of 60 s. Real: the embedded model in its own process; small requests of one person alone, then beside another's sweep; how soon a
cancelled sweep is gone. The sweep is the test suite's own analysis (tests/app/backend/suite.py).
"""

import os
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

PEOPLE, REQUESTS, SMALL_SECONDS, PERIOD = 39, 1224, 184.0, 600.0
SWEEPS, SWEEP_SECONDS = 3, 60.0
WHOLE = float("inf")  # a turn that lasts until the request is done
# Name, whether everybody stands in one line, seconds of a turn.
POLICIES = (
    ("first in first out", True, WHOLE),
    ("fair over people, whole requests", False, WHOLE),
    ("fair over people, turns of 1 s", False, 1.0),
    ("fair over people, turns of 0.5 s", False, 0.5),
)


def arrivals(seed: int) -> list[tuple[float, str, str, float]]:
    """(time, person, name, seconds) of every request, in order; small ones take 0.03 to 0.27 s, evenly spread."""
    draw = random.Random(seed)
    sizes = [draw.uniform(0.2, 1.8) for _ in range(REQUESTS)]
    scale = SMALL_SECONDS / sum(sizes)
    small = [
        (draw.uniform(0, PERIOD), f"person {draw.randrange(PEOPLE)}", f"small {n}", size * scale)
        for n, size in enumerate(sizes)
    ]
    sweeps = [(0.0, "sweeper", f"sweep {n}", SWEEP_SECONDS) for n in range(SWEEPS)]
    return sorted(small + sweeps)


def simulate(one_line: bool, turn: float, seed: int = 0) -> tuple[list[float], list[float]]:
    """Seconds from sending to the answer: of the small requests, of the sweeps."""
    from app.backend.fair_queue import FairQueue

    queue: FairQueue[str] = FairQueue()
    coming = arrivals(seed)
    sent = {name: at for at, _, name, _ in coming}
    left = {name: seconds for _, _, name, seconds in coming}
    now, took = 0.0, {}
    while coming or len(queue):
        while coming and coming[0][0] <= now:
            _, person, name, _ = coming.pop(0)
            queue.put("everybody" if one_line else person, name)
        if (served := queue.next()) is None:
            now = coming[0][0]
            continue
        person, name = served
        used = min(turn, left[name])
        now += used
        left[name] -= used
        # What came during the turn stands in line before the person served can come round again.
        while coming and coming[0][0] <= now:
            _, other, later, _ = coming.pop(0)
            queue.put("everybody" if one_line else other, later)
        queue.charge(person, used)
        if left[name] <= 1e-9:
            queue.remove(name)
            took[name] = now - sent[name]
    small = [seconds for name, seconds in took.items() if name.startswith("small")]
    return small, [took[f"sweep {n}"] for n in range(SWEEPS)]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def simulation() -> None:
    print(
        f"| {REQUESTS:,} small requests of {PEOPLE} people, one with three sweeps | p50 s | p95 s | max s | sweeps end s |"
    )
    print("|---|---|---|---|---|")
    for name, one_line, turn in POLICIES:
        runs = [simulate(one_line, turn, seed) for seed in range(5)]
        small = [value for run in runs for value in run[0]]
        ends = [round(statistics.mean(run[1][n] for run in runs)) for n in range(SWEEPS)]
        figures = " | ".join(f"{value:.2f}" for value in (percentile(small, 0.5), percentile(small, 0.95), max(small)))
        print(f"| {name} | {figures} | {' / '.join(map(str, ends))} |")


def real(n_tokens: int = 48, sweep_tokens: int = 96, times: int = 25) -> None:
    from app.backend.client import RemoteBackend
    from app.backend.limits import Limits
    from app.backend.protocol import Refused, Request, Who

    limits = Limits(seconds=1e9, user_seconds=1e9)
    backend = RemoteBackend("process", analyses="tests.app.backend.suite:ANALYSES", limits=limits)
    try:
        while not backend.models():
            if backend.status().error:
                raise SystemExit(backend.status().error)
            time.sleep(0.1)
        d_vocab = backend.models()[0].config.d_vocab
        ids = tuple((7 * i + 3) % d_vocab for i in range(sweep_tokens))
        student, sweeper = Who("student", "page"), Who("sweeper", "page")
        count = iter(range(10**6))

        def small() -> float:
            """Seconds of one small request that nobody has asked before, after a pause."""
            time.sleep(0.3)
            begun = time.perf_counter()
            backend.submit(Request("steer", ids[:n_tokens], {"amount": 1e-3 * next(count)}), student).result(120)
            return time.perf_counter() - begun

        def sweep():
            """A sweep that runs: its first forward pass is done."""
            job = backend.submit(Request("sweep", ids, {"times": 100_000 + next(count)}), sweeper)
            while (event := job.poll(60)) is None or event.kind == "queued":
                pass
            if event.kind != "progress":
                raise SystemExit(f"the sweep does not run: {event.failure}")
            return job

        small()
        alone = [small() for _ in range(times)]
        job = sweep()
        beside = [small() for _ in range(times)]
        job.cancel()
        cancels = []
        for _ in range(times):
            job = sweep()
            time.sleep(random.uniform(0.05, 0.5))  # somewhere inside a forward pass
            begun = time.perf_counter()
            job.cancel()
            try:
                job.result(60)
            except Refused:
                told = time.perf_counter() - begun
            # The page is told at once; the thread is free when the next request begins.
            backend.submit(Request("stall", ids[:2], {"seconds": 1e-6 * next(count)}), student).result(60)
            cancels.append((told, time.perf_counter() - begun))
        stats = backend.stats()
    finally:
        backend.close()
    print(f"\nReal model, {times} times each, load {os.getloadavg()[0]:.1f}; hooks left {stats.hooks}")
    for name, values in (
        (f"small request ({n_tokens} tokens) alone", alone),
        (f"small request beside a sweep ({sweep_tokens} tokens)", beside),
        ("cancel: the page is told", [told for told, _ in cancels]),
        ("cancel: the model is free", [free for _, free in cancels]),
    ):
        figures = [1000 * percentile(values, share) for share in (0.5, 0.95)] + [1000 * max(values)]
        print(f"{name}: p50 {figures[0]:,.0f} ms, p95 {figures[1]:,.0f} ms, max {figures[2]:,.0f} ms")


if __name__ == "__main__":
    which = sys.argv[1:2] or ["simulation", "real"]
    if "simulation" in which:
        simulation()
    if "real" in which:
        real()
