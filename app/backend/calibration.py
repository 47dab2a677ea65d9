"""How fast this model is here: a few forward passes at start, kept on disk, so that every cost is known before the click."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from analyses._steps import Profile
from analyses.sources import cache_folder

LENGTHS = (16, 64, 256)  # tokens; three lengths determine base, per token and per pair
# A kept profile that predicts so many times what a short pass takes now was measured on a busy machine. Seen: 40 times, and
# every longer request was refused from then on.
TOO_SLOW = 2.0


def fit_forward(lengths: tuple[int, ...], seconds: list[float]) -> tuple[float, float, float]:
    """Non-negative base, per-token and per-pair seconds, weighted so that every length counts alike.

    Solved by leaving out, one after another, the terms that would come out negative: three unknowns need no library.
    """
    columns = np.stack(
        [np.ones(len(lengths)), np.array(lengths), np.square(np.array(lengths, dtype=np.float64))], axis=1
    )
    scaled, target = columns / np.array(seconds)[:, None], np.ones(len(seconds))
    active = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(scaled[:, active], target, rcond=None)[0]
        if (found >= 0).all():
            break
        active.pop(int(found.argmin()))
    terms = [0.0, 0.0, 0.0]
    for index, value in zip(active, found, strict=True):
        terms[index] = float(value)
    return terms[0], terms[1], terms[2]


def measure(model: Any) -> Profile:
    """Time a few forward passes (under a second on a small model) and return the profile."""
    config = model.config
    lengths = tuple(n for n in LENGTHS if n <= config.n_ctx) or (config.n_ctx,)
    ids = _ids(model, max(lengths))
    model.forward(ids[: lengths[0]], last_only=True)  # reads the weights in
    seconds = [_best(lambda n=n: model.forward(ids[:n], last_only=True)) for n in lengths]
    base, per_token, per_pair = fit_forward(lengths, seconds)
    short = min(32, max(lengths))
    every = _best(lambda: model.forward(ids[:short]).softmax(-1))
    return Profile(
        base=base,
        per_token=per_token,
        per_pair=per_pair,
        per_readout=max(0.0, every - (base + per_token * short + per_pair * short**2)) / short,
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        d_model=config.d_model,
        d_vocab=config.d_vocab,
        n_ctx=config.n_ctx,
        bytes_per_value=4 if config.dtype == "float32" else 2,
    )


def _ids(model: Any, count: int) -> tuple[int, ...]:
    return tuple((7 * i + 3) % model.config.d_vocab for i in range(count))


def _is_too_slow(profile: Profile, model: Any) -> bool:
    """Whether a short pass is much faster now than the profile says; other work on the machine only ever adds time."""
    ids = _ids(model, min(LENGTHS[0], model.config.n_ctx))
    return profile.forward_seconds(len(ids)) > TOO_SLOW * _best(lambda: model.forward(ids, last_only=True), times=3)


def _best(run: Callable[[], Any], times: int = 2) -> float:
    """Smallest of a few wall times: other work on the machine only ever adds."""
    import torch

    found = []
    for _ in range(times):
        begun = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(time.perf_counter() - begun)
    return min(found)


def load_profile(model: Any) -> Profile:
    """The profile of this model on this device, kept in the cache folder; measured afresh where the kept one is too slow."""
    import torch

    config = model.config
    name = f"{config.fingerprint}-{config.device.replace(':', '-')}-{torch.get_num_threads()}.json"
    path = cache_folder() / "profiles" / name
    try:
        kept = Profile(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):  # not there, half-written, or of an older version
        kept = None
    with torch.inference_mode():
        if kept is not None and not _is_too_slow(kept, model):
            return kept
        profile = measure(model)
    _write(path, json.dumps(asdict(profile)))
    return profile


def _write(path: Path, text: str) -> None:
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text)
        beside.replace(path)
    except OSError:  # a read-only cache folder costs a second at every start, nothing else
        beside.unlink(missing_ok=True)
