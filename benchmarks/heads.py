"""Attention on the embedded model: what a map, all head scores and a sweep over all heads cost, against plain forward passes.

    .venv/bin/python benchmarks/heads.py [sweep | scores | maps]

One thread, CPU seconds, repetitions interleaved, medians. The sweep's other way is one hooked forward pass per head; a part of
the 270 is timed and their numbers are compared cell by cell.
"""

import os
import statistics
import sys
import time
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

PROMPT = "The Eiffel Tower is located in the beautiful city of"  # 11 tokens
TIMES = 5
CELLS = 12  # of the 270, spread over layers and heads


def seconds(run) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


def medians(*runs, times: int = TIMES) -> list[float]:
    """CPU seconds of each, one after the other and again, so that a busy moment meets all."""
    found = [[seconds(run) for run in runs] for _ in range(times)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def sweep(model, ids) -> None:
    import torch

    from analyses.head_ablation import run_head_ablation, silencing

    heads = model.config.n_heads
    cells = [divmod(i * model.config.n_layers * heads // CELLS + i % heads, heads) for i in range(CELLS)]
    following = torch.tensor(ids[1:])[:, None]

    def naive() -> list[tuple[float, float]]:
        found = []
        for layer, head in cells:
            with torch.inference_mode(), model.hooks(*silencing(model, {layer: {None: head}})):
                logits = model.forward(ids)[0]
            loss = -(logits[:-1].gather(-1, following)[:, 0] - logits[:-1].logsumexp(-1)).mean()
            found.append((float(logits[-1, target]), float(loss)))
        return found

    def hooked_last() -> None:
        """The same without unembedding all positions: the best that one pass per head can do."""
        for layer, head in cells:
            with torch.inference_mode(), model.hooks(*silencing(model, {layer: {None: head}})):
                model.forward(ids, last_only=True)

    result = run_head_ablation(model, ids)
    target = result.target_id
    logit, loss = (
        max(abs(pair[k] - base - float(changes[cell])) for pair, cell in zip(naive(), cells, strict=True))
        for k, base, changes in (
            (0, result.baseline_logit, result.logit_change),
            (1, result.baseline_loss_nats, result.loss_change_nats),
        )
    )
    one, last_one, last, everything = medians(
        naive,
        hooked_last,
        lambda: run_head_ablation(model, ids, positions="last"),
        lambda: run_head_ablation(model, ids),
    )
    count = model.config.n_layers * heads
    print(
        f"\n{count} heads, T = {len(ids)}; largest difference in {CELLS} cells: logit {logit:.1e}, loss {loss:.1e} nats"
    )
    print("| sweep | CPU s | of one forward per head |\n|---|---|---|")
    print(f"| one forward per head (from {CELLS} of them) | {one / CELLS * count:.1f} | 1 |")
    print(f"| the same, last position only | {last_one / CELLS * count:.1f} | {last_one / one:.3f} |")
    print(f"| replayed, target's logit only | {last:.2f} | {last / (one / CELLS * count):.3f} (target 0.125) |")
    print(
        f"| replayed, loss over all positions | {everything:.2f} | {everything / (one / CELLS * count):.3f} (target 0.2) |"
    )


def scores(model) -> None:
    import torch

    from analyses._repeated import repeated_tokens
    from analyses.head_scores import run_head_scores

    ids = repeated_tokens(model).ids

    def plain() -> None:
        with torch.inference_mode():
            model.forward(ids)

    needed, ours = medians(plain, lambda: run_head_scores(model, n_seeds=1), times=3)
    print(
        f"\nHead scores, {list(ids.shape)} tokens: forward {needed:.2f} s, all scores {ours:.2f} s: "
        f"{ours / needed:.2f}x (target 1.5)"
    )


def maps(model) -> None:
    import numpy as np
    import torch

    from analyses.attention import run_attention

    print("\n| T | forward s | maps s | block | bytes | zlib bytes |\n|---|---|---|---|---|---|")
    draw = np.random.default_rng(0)
    for n_tokens in (11, 128, 512):
        ids = tuple(draw.integers(1000, 40000, n_tokens).tolist())

        def plain(ids=ids) -> None:
            with torch.inference_mode():
                model.forward(ids, last_only=True)

        forward, ours = medians(plain, lambda ids=ids: run_attention(model, ids), times=3)
        found = run_attention(model, ids)
        size = len(zlib.compress(found.packed.tobytes(), 6))
        print(f"| {n_tokens} | {forward:.2f} | {ours:.2f} | {found.block} | {found.packed.nbytes:,} | {size:,} |")
    full = run_attention(model, ids, layers=[17]).pattern[0]
    side, block = found.pattern.shape[-1], found.block
    padded = np.pad(full, ((0, 0), *[(0, side * block - n_tokens)] * 2))
    exact = (padded.reshape(-1, side, block, side, block).max((2, 4)) == found.pattern[17]).all()
    print(
        f"Layer 17 in full at T = {n_tokens}: {full.nbytes:,} bytes; its block maxima are those of the sheet: {exact}"
    )


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    from analyses import load_model, run_tokenization

    which = sys.argv[1:] or ["sweep", "scores", "maps"]
    the_model = load_model()
    if "sweep" in which:
        sweep(the_model, run_tokenization(the_model, PROMPT).ids)
    if "scores" in which:
        scores(the_model)
    if "maps" in which:
        maps(the_model)
