"""Deleting every block in turn: batched replay against one hooked forward pass per block, CPU seconds on one thread.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/deletion.py [lengths, default 16,64,256] [repeats] [model folder]

The hooked side runs a few spread blocks before and after the replay and is scaled to all of them (every one costs a whole
forward pass); the ratio is the median over the repeats. Fastest times would favour the side that is measured in short
pieces, when others use the machine. "last" reads the last position only,
"all" the loss at every position. A changed deletion is one variant without the comparison, against one forward pass.
"""

import functools
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

TARGETS = {16: (0.25, 0.40), 64: (0.35, 0.60), 256: (0.50, 0.75)}
SAMPLED = 3  # hooked forward passes that are really run, per repeat


def cpu_seconds(work) -> tuple[float, object]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


def hooked(model, ids, layers, positions, last_only=False):
    """What a user would write: one forward pass per deleted block, with hooks; `last_only` unembeds one position only."""
    import torch

    from analyses.layer_deletion import deletion_hooks

    found = []
    with torch.inference_mode():
        for layer in layers:
            with model.hooks(*deletion_hooks(model, [layer])):
                logits = model.forward(ids, last_only=last_only)[0]
            if positions == "last":
                found.append(logits[-1].log_softmax(-1).topk(10).values.numpy())
            else:
                found.append(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item())
    return found


def compare(model, ids, positions, repeats):
    """Seconds of all blocks by hooks and by replay, their ratio, and the largest difference between their numbers."""
    import numpy as np

    from analyses.layer_deletion import run_layer_deletion

    n_layers = model.config.n_layers
    layers = [round(i * (n_layers - 1) / (SAMPLED - 1)) for i in range(SAMPLED)]
    naive, ours = [], []
    for _ in range(repeats):
        before, expected = cpu_seconds(lambda: hooked(model, ids, layers, positions))
        seconds, found = cpu_seconds(lambda: run_layer_deletion(model, ids, positions=positions))
        after, _ = cpu_seconds(lambda: hooked(model, ids, layers, positions))
        naive.append((before + after) / 2 * n_layers / SAMPLED)
        ours.append(seconds)
    values = found.top_log_probability if positions == "last" else found.loss_nats
    ratio = statistics.median(a / b for a, b in zip(ours, naive, strict=True))
    return (
        statistics.median(naive),
        statistics.median(ours),
        ratio,
        float(np.abs(values[layers] - np.array(expected)).max()),
    )


def one_change(model, ids, repeats):
    """Seconds of one forward pass, and of loss and predictions without half of the blocks, whole model not run again."""
    import torch

    from analyses.layer_deletion import run_layer_deletion

    def forward():
        with torch.inference_mode():
            return model.forward(ids)

    half = [list(range(0, model.config.n_layers, 2))]
    plain, changed = [], []
    for _ in range(repeats):
        plain.append(cpu_seconds(forward)[0])
        changed.append(cpu_seconds(lambda: run_layer_deletion(model, ids, deleted=half, compare=False))[0])
    return min(plain), min(changed)


def main(lengths: str = "16,64,256", repeats: str = "3", folder: str | None = None) -> None:
    import torch

    from analyses import load_model

    torch.set_num_threads(1)
    model = load_model(folder)
    print(f"{model.config.name}: {model.config.n_layers} blocks, one thread, load {os.getloadavg()[0]:.1f}")
    for n_tokens in map(int, lengths.split(",")):
        generator = torch.Generator().manual_seed(n_tokens)
        ids = tuple(torch.randint(0, model.config.d_vocab, (n_tokens,), generator=generator).tolist())
        for index, positions in enumerate(("last", "all")):
            naive, ours, ratio, difference = compare(model, ids, positions, int(repeats))
            target = f", target {TARGETS[n_tokens][index]:.2f}" if n_tokens in TARGETS else ""
            print(
                f"{n_tokens:4} tokens, {positions:4}: hooked {naive:6.2f} s, replay {ours:6.2f} s, ratio {ratio:.3f}"
                f"{target}, largest difference {difference:.1e}",
                flush=True,
            )
        spared, _ = cpu_seconds(functools.partial(hooked, model, ids, [0, 1, 2], "last", last_only=True))
        plain, changed = one_change(model, ids, int(repeats))
        print(
            f"{n_tokens:4} tokens, hooked with one position unembedded: {spared / 3 * model.config.n_layers:.2f} s\n"
            f"{n_tokens:4} tokens, changed deletion: {changed:.2f} s, one forward pass {plain:.2f} s, ratio {changed / plain:.2f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:4])
