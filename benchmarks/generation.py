"""Streaming 64 new tokens on the embedded model against transformers' own cached `generate`.

    .venv/bin/python benchmarks/generation.py [loop | parts | rows]

`loop`: greedy, 64 new tokens after 64; `parts`: where the time of one step goes; `rows`: several samples as rows of one batch
against one after the other. One thread, CPU seconds, repetitions alternating, medians. Wanted: the loop at most 1.3 times
`generate`.
"""

import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

N_PROMPT = N_NEW = 64
TIMES = 5


def seconds(run) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


def medians(*runs, times: int = TIMES) -> list[float]:
    """CPU seconds of each, one after the other and again, so that a busy moment meets all."""
    found = [[seconds(run) for run in runs] for _ in range(times)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def loop(model, ids, plain, times: int = TIMES) -> None:
    """Ours is drained step by step, as a worker does."""
    import torch

    from analyses.generation import run_generation

    model.end_ids = frozenset()
    tensor = torch.tensor([ids])
    texts = {}

    def theirs(name) -> None:
        with torch.inference_mode():
            out = plain[name].generate(
                tensor, attention_mask=torch.ones_like(tensor), max_new_tokens=N_NEW, do_sample=False, eos_token_id=None
            )
        texts[name] = out[0, N_PROMPT:].tolist()

    def ours() -> None:
        texts["ours"] = run_generation(model, ids, max_new_tokens=N_NEW).ids.tolist()

    runs = {name: lambda name=name: theirs(name) for name in plain} | {"ours": ours}
    for run in runs.values():
        run()
    found = dict(zip(runs, medians(*runs.values(), times=times), strict=True))
    print(f"\n{N_NEW} tokens after {N_PROMPT}; same tokens: {len({tuple(text) for text in texts.values()}) == 1}")
    print("| | CPU s | ms per token | ours |\n|---|---|---|---|")
    for name, spent in found.items():
        print(f"| {name} | {spent:.2f} | {1000 * spent / N_NEW:.1f} | {found['ours'] / spent:.2f}x |")


def parts(model, ids) -> None:
    import torch

    from analyses._decoding import Written

    with torch.inference_mode():
        logits, cache = model.extend(ids)
        row = logits[:, -1].float().numpy()

        def step() -> None:
            nonlocal cache
            for _ in range(N_NEW):
                _, cache = model.extend(torch.tensor([[5]]), cache)
            cache.crop(-N_NEW)

        def inside() -> None:
            """The transformers model that the bridge wraps, called without the bridge's own forward."""
            nonlocal cache
            inner = model._bridge.original_model
            for _ in range(N_NEW):
                inner(input_ids=torch.tensor([[5]]), past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache.crop(-N_NEW)

        def noting() -> None:
            written = Written(1, N_NEW, 5, frozenset())
            for _ in range(N_NEW):
                written.add(row, [5])
                written.texts(model.tokenizer, ids)

        found = medians(step, inside, noting, times=3)
    for name, spent in zip(("extend", "the wrapped model alone", "noting and text"), found, strict=True):
        print(f"{name}: {1000 * spent / N_NEW:.2f} ms per token")


def rows(model, ids) -> None:
    from analyses.generation import run_generation

    model.end_ids = frozenset()
    settings = {"max_new_tokens": 16, "temperature": 1.0}
    apart, together = medians(
        lambda: [run_generation(model, ids, seed=seed, **settings) for seed in range(4)],
        lambda: run_generation(model, ids, samples=4, **settings),
        times=3,
    )
    print(f"\n4 samples of 16 tokens: apart {apart:.2f} s, as rows {together:.2f} s: {together / apart:.2f}x")


if __name__ == "__main__":
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    from analyses import load_model, run_tokenization
    from analyses.passages import PASSAGES
    from analyses.sources import fetch, resolve

    which = sys.argv[1:] or ["loop", "parts", "rows"]
    the_model = load_model()
    prompt = run_tokenization(the_model, PASSAGES["plain English"]).ids[:N_PROMPT]
    if "loop" in which:
        folder = fetch(resolve(None))
        kinds = ("eager", "sdpa")
        loop(
            the_model,
            prompt,
            {
                f"transformers {kind}": AutoModelForCausalLM.from_pretrained(folder, attn_implementation=kind)
                for kind in kinds
            },
        )
    if "parts" in which:
        parts(the_model, prompt)
    if "rows" in which:
        rows(the_model, prompt)
