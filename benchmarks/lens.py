"""The logit lens against TransformerLens' own, and what it takes beside a plain forward pass.

    OMP_WAIT_POLICY=PASSIVE .venv/bin/python benchmarks/lens.py [repeats]

CPU seconds (`time.process_time`) on one thread, SmolLM2, all in one process, the repeats interleaved, medians. The two lenses
read the same depths (31), positions (128) and outputs (top-10 and entropy); ours also gives rank, KL and the next token's loss.
Memory: each case in a process of its own, highest resident size (the kernel's VmHWM, set back before the call) above the size
before it; the second call counts, so that the weights have been paged in.
"""

import gc
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LENGTH, LONG, TOP_K = 128, 512, 10


def model_and_ids(n: int) -> tuple[Any, tuple[int, ...]]:
    """The embedded model, and the first tokens of a text that is here anyway."""
    import torch

    from analyses import load_model, run_tokenization

    torch.set_num_threads(1)
    model = load_model()
    return model, run_tokenization(model, (ROOT / "docs/architecture.md").read_text()[: 8 * n]).ids[:n]


def theirs(model: Any, ids: tuple[int, ...]) -> Any:
    import torch
    from transformer_lens.tools.analysis import logit_lens

    tokens = torch.tensor([ids])
    return logit_lens(model._bridge, tokens, positions=None, top_k=TOP_K, return_type="log_probs")


def cases(model: Any, ids: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    import torch

    from analyses.logit_lens import run_logit_lens

    def forward() -> Any:
        with torch.inference_mode():
            return model.forward(ids)

    return {
        "plain forward": forward,
        "TransformerLens, all positions": lambda: theirs(model, ids),
        "ours exact, all positions": lambda: run_logit_lens(model, ids, positions="all", top_k=TOP_K),
        "ours fast, all positions": lambda: run_logit_lens(model, ids, positions="all", top_k=TOP_K, exact=False),
        "ours exact, last 32 positions": lambda: run_logit_lens(model, ids, top_k=TOP_K),
        "ours exact, last position": lambda: run_logit_lens(model, ids, positions="last", top_k=TOP_K),
    }


def speed(repeats: int) -> None:
    """One table of times, and whether the tokens are the same."""
    model, ids = model_and_ids(LENGTH)
    runs = cases(model, ids)
    times: dict[str, list[float]] = {name: [] for name in runs}
    results = {name: run() for name, run in runs.items()}  # also the first call, which converts and pages in
    for _ in range(repeats):
        for name, run in runs.items():
            begun = time.process_time()
            run()
            times[name].append(time.process_time() - begun)
    seconds = {name: statistics.median(found) for name, found in times.items()}
    forward, whole = seconds["plain forward"], seconds["TransformerLens, all positions"]
    print(f"{'':34}{'CPU s':>8}{'x forward':>11}{'x theirs':>10}")
    for name, value in seconds.items():
        print(f"{name:34}{value:8.2f}{value / forward:11.2f}{value / whole:10.2f}")
    compare(results)


def compare(results: dict[str, Any]) -> None:
    """Tokens at every cell, and the largest difference of log-probabilities (nats)."""
    import numpy as np

    other = results["TransformerLens, all positions"]
    ids, values = other.readout.top_ids[:, 0].numpy(), other.values[:, 0].numpy()
    for name in ("ours exact, all positions", "ours fast, all positions"):
        ours = results[name]
        differ, n_cells = int((ours.top_ids != ids).any(-1).sum()), ids[..., 0].size
        gap = float(np.abs(ours.top_log_probability - values).max())
        how = "float32" if ours.exact else "bfloat16, rescored in float32"
        print(
            f"{name} ({how}): other top-{TOP_K} ids in {differ} of {n_cells:,} cells; log-probabilities within {gap:.2g}"
        )


def peak_mb(name: str) -> float:
    """Extra memory of one case (MB), measured in this process."""
    import ctypes

    model, ids = model_and_ids(LONG)
    run = cases(model, ids)[name]
    run()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    run()
    return (status("VmHWM") - before) / 1e3


def status(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return float(line.split()[1])  # kB


def memory() -> None:
    """Extra memory of each case in a process of its own."""
    names = ("plain forward", "ours exact, all positions", "ours fast, all positions", "TransformerLens, all positions")
    found = {}
    for name in names:
        command = [sys.executable, __file__, "memory", name]
        found[name] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        more = found[name] - found["plain forward"]
        print(f"{name:34}{found[name]:8.0f} MB{more:+9.0f} beyond the forward pass, T={LONG}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["memory"]:
        print(peak_mb(sys.argv[2]))
    else:
        print("load", os.getloadavg())
        speed(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
        memory()
