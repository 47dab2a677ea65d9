"""Steering against what a user would write: CPU seconds on one thread, ratios within one run.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/steering.py [repeats] [model folder]

Live: the next token under a vector, against one plain forward pass with the last position read out (target 1.3).
Sweep: coefficients x layers, against one hooked forward pass per cell and text (target 1/3); a few spread cells are really run
before and after the sweep and scaled to all.
"""

import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PROMPT = 'I went up to my friend and said, "I want to talk about your'
SAMPLED = 3  # cells that are really run one by one, before and after


def cpu_seconds(work) -> tuple[float, object]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


def live(model, ids, vector, words, repeats):
    """Seconds of a plain forward pass and of a slider's move, in turns, and the median of their ratios."""
    import torch

    from analyses.steering import run_steering

    def plain():
        with torch.inference_mode():
            return model.forward(ids, last_only=True)

    def moved():
        return run_steering(model, ids, vector, coefficient=0.3, compare=False, **words)

    plain(), moved()
    rows = [(cpu_seconds(plain)[0], cpu_seconds(moved)[0]) for _ in range(repeats)]
    return *(statistics.median(row[i] for row in rows) for i in (0, 1)), statistics.median(b / a for a, b in rows)


def one_by_one(model, texts, vector, cells):
    """One hooked forward pass per cell and text, all positions read out where the loss is wanted."""
    import torch

    from analyses._steer import read_steer, steer_hooks

    found = []
    with torch.inference_mode():
        for layer, coefficient in cells:
            steer = read_steer(model, vector.wire | {"layer": layer, "coefficient": coefficient})
            for index, ids in enumerate(texts):
                with model.hooks(*steer_hooks(model, steer, start=0, n_prompt=len(ids))):
                    logits = model.forward(ids, last_only=index == 0)[0]
                if index:
                    found.append(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item())
    return found


def sweep(model, ids, vector, words, repeats):
    """Seconds of all cells one by one (scaled) and of the sweep, and the median of their ratios."""
    from analyses.neutral_texts import NEUTRAL_TEXTS
    from analyses.steering_sweep import COEFFICIENTS, TEXTS, run_steering_sweep, spread_layers
    from analyses.tokenization import run_tokenization

    texts = [ids, *(run_tokenization(model, text).ids for text in NEUTRAL_TEXTS[:TEXTS])]
    layers = spread_layers(model.config.n_layers)
    cells = [(layer, c) for layer in layers for c in COEFFICIENTS] + [(vector.layer, c) for c in COEFFICIENTS]
    some = [cells[round(i * (len(cells) - 1) / (SAMPLED - 1))] for i in range(SAMPLED)]
    rows = []
    for _ in range(repeats):
        before = cpu_seconds(lambda: one_by_one(model, texts, vector, some))[0]
        ours = cpu_seconds(lambda: run_steering_sweep(model, ids, vector, **words))[0]
        after = cpu_seconds(lambda: one_by_one(model, texts, vector, some))[0]
        rows.append(((before + after) / 2 / SAMPLED * len(cells), ours))
    return (
        len(cells),
        *(statistics.median(row[i] for row in rows) for i in (0, 1)),
        statistics.median(b / a for a, b in rows),
    )


def main(repeats: str = "3", folder: str | None = None) -> None:
    import torch

    from analyses import load_model, make_steering_vector, run_tokenization

    torch.set_num_threads(1)
    model = load_model(folder)
    print(f"{model.config.name}: {model.config.n_layers} blocks, one thread, load {os.getloadavg()[0]:.1f}")
    texts = {"positive": ["The bride kissed the groom."], "negative": ["The clerk thanked the client."]}
    vector = make_steering_vector(model, layer=model.config.n_layers * 2 // 5, **texts)
    ids = run_tokenization(model, PROMPT).ids
    words = {"targets": [ids[0]], "against": [ids[1]]}
    plain, moved, ratio = live(model, ids, vector, words, 4 * int(repeats))
    print(
        f"live: forward {1000 * plain:.0f} ms, slider {1000 * moved:.0f} ms, ratio {ratio:.2f}, target 1.30", flush=True
    )
    n_cells, naive, ours, ratio = sweep(model, ids, vector, words, int(repeats))
    print(f"sweep of {n_cells} cells: one by one {naive:.1f} s, batched {ours:.1f} s, ratio {ratio:.3f}, target 0.333")


if __name__ == "__main__":
    main(*sys.argv[1:3])
