"""Where and in which number format a model computes; whatever is not there is refused in words."""

from typing import Any

from jaxtyping import Float

DTYPES = ("float32", "bfloat16", "float16")
SAME_AS_CPU_NATS = 5e-3  # KL divergence; the limit of half formats in docs/architecture.md


def choose_device(name: str | None) -> str:
    """The device to compute on; None takes cuda where there is one, else the CPU, and never mps.

    Raises:
        ValueError: a device that is not there.
    """
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    there = ["cpu"] + ["cuda"] * torch.cuda.is_available() + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    there += ["mps"] * torch.backends.mps.is_available()
    if name not in there:
        raise ValueError(
            f"needs a device of this machine ({', '.join(there)}); found {name!r}; leave it out to choose."
        )
    return name


def choose_dtype(name: str | None) -> Any:
    """The torch dtype of a name; None is float32.

    Raises:
        ValueError: another name.
    """
    import torch

    if name is not None and name not in DTYPES:
        raise ValueError(f"needs one of {', '.join(DTYPES)}; found {name!r}; leave it out for float32.")
    return getattr(torch, name or "float32")


def kl_nats(expected: Float[Any, "*pos d_vocab"], found: Float[Any, "*pos d_vocab"]) -> float:
    """Largest KL divergence over the positions between the next-token distributions of two sets of logits, in nats."""
    log_p, log_q = expected.float().cpu().log_softmax(-1), found.float().cpu().log_softmax(-1)
    return float((log_p.exp() * (log_p - log_q)).sum(-1).max())


def check_same_as_cpu(on_cpu: Float[Any, "*pos d_vocab"], here: Float[Any, "*pos d_vocab"], device: str) -> None:
    """Refuse a device that computes something else than the CPU.

    mps has returned wrong numbers without an error (TransformerLens issue 1178), so it is never believed unchecked.

    Raises:
        ValueError: the logits of the same ids differ, or are not finite.
    """
    worst = kl_nats(on_cpu, here)
    if not worst <= SAME_AS_CPU_NATS:  # written so that "not a number" is refused too
        raise ValueError(
            f"needs a device that computes what the CPU computes; found {device} off by {worst:.2g} nats "
            f'(limit {SAME_AS_CPU_NATS}); use device="cpu".'
        )


def move_and_compare(bridge: Any, device: str) -> None:
    """Move a bridge from the CPU to another device, and compare there what it computes.

    Raises:
        ValueError: as `check_same_as_cpu`.
    """
    on_cpu = _some_logits(bridge, "cpu")
    bridge.to(device, print_details=False)
    check_same_as_cpu(on_cpu, _some_logits(bridge, device), device)


def _some_logits(bridge: Any, device: str) -> Any:
    import torch

    with torch.inference_mode():
        return bridge(torch.arange(3, 11, device=device)[None], use_cache=False)[0]
