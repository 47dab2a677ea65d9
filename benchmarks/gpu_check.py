"""What a CUDA machine has to show: the app chooses cuda by itself, the numbers agree with the CPU, and how much faster it is.

    .venv/bin/python benchmarks/gpu_check.py

Exit code 0 when everything agrees, 1 when something does not, 2 (with one sentence) where there is no CUDA device.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PROMPT = "The capital of France is"
LENGTHS = (16, 128, 512)
LARGEST_KL = {"float32": 1e-5, "bfloat16": 5e-3}  # nats, against float32 on the CPU (tolerances: docs/architecture.md)


def milliseconds(model, n_tokens: int) -> float:
    """Median of ten forward passes after a warm-up."""
    import torch

    ids = tuple((7 * i + 3) % model.config.d_vocab for i in range(n_tokens))
    times = []
    with torch.inference_mode():
        for _ in range(12):
            begun = time.perf_counter()
            model.forward(ids, last_only=True)
            if model.config.device.startswith("cuda"):
                torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times[2:])


def main() -> int:
    import torch

    from analyses import load_model, run_next_token, run_tokenization

    if not torch.cuda.is_available():
        print("needs a CUDA device; found none; run this on a machine with one.")
        return 2
    print(torch.cuda.get_device_name(0), "torch", torch.__version__)
    chosen = load_model()
    good = chosen.config.device.startswith("cuda")
    print("chosen by itself:", chosen.config.device, chosen.config.dtype)
    models = {
        "cuda float32": chosen,
        "cuda bfloat16": load_model(dtype="bfloat16"),
        "cpu float32": load_model(device="cpu"),
    }
    ids = run_tokenization(chosen, PROMPT).ids
    with torch.inference_mode():
        logits = {name: model.forward(ids)[0].float().cpu() for name, model in models.items()}
    for name, model in models.items():
        reference = logits["cpu float32"].log_softmax(-1)
        divergence = (reference.exp() * (reference - logits[name].log_softmax(-1))).sum(-1).max().item()
        difference = (logits[name] - logits["cpu float32"]).abs().max().item()
        failed = [check.sentence for check in model.checks if not check.passed]
        after = run_next_token(model, ids)
        print(f"{name}: largest logit difference {difference:.2e}, KL {divergence:.2e}, failed checks {failed}")
        print(f"   P({after.ids[0]}) {after.probability[0]:.4f}")
        print("   ms per forward pass", {n: round(milliseconds(model, n), 2) for n in LENGTHS})
        good &= not failed and divergence < LARGEST_KL[model.config.dtype]
    print("agreement with the CPU:", "yes" if good else "NO")
    print("peak GPU memory MB", round(torch.cuda.max_memory_allocated() / 1e6))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
