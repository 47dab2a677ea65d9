"""Gradients of toy models with the norm before or after each part, into analyses/data/norm_order.json (about a minute).

.venv/bin/python -m benchmarks.norm_order
"""

import json

import numpy as np

from analyses.norm_order import DEPTHS, FILE, SEEDS, gradient_lengths


def main() -> None:
    """Measure, print and write."""
    measured: dict[str, dict[str, list[float]]] = {}
    for name, pre in (("pre", True), ("post", False)):
        last, first = [], []
        for depth in DEPTHS:
            mean = np.mean([gradient_lengths(depth, pre=pre, seed=seed) for seed in range(SEEDS)], axis=0)
            last.append(round(float(mean[-1]), 4))
            first.append(round(float(mean[0]), 4))
            print(f"{name}-norm, {depth} layers: last block {last[-1]}, first {first[-1]}")
        measured[name] = {"last_block": last, "first_block": first}
    FILE.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
