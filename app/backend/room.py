"""How much memory there is, and whether a second model fits beside the one that is open."""

from analyses._source import Source
from analyses._weights import expected, free_bytes
from app.backend.admission import size
from app.backend.limits import Limits

# A model's process without its weights: libraries, tokenizer, vocabulary (0.43 GB measured, docs/log.md).
PROCESS_BYTES = 430_000_000
SHARE = 0.8  # of the free memory for one request: the rest is for what the estimate does not see


def request_bytes(limits: Limits, device: str) -> int:
    """Extra memory that one request may take; asked when the model is loaded."""
    return limits.bytes or int(SHARE * free_bytes(device))


def loaded_bytes(source: Source, dtype: str | None) -> int:
    """What a model's process will take, estimated from the bytes of its files and the number format it is read in."""
    return expected(source).bytes_as(dtype or "float32") + PROCESS_BYTES


def check_room(name: str, needed: int, beside: int, *, model_bytes: int, free: int, device: str) -> None:
    """Refuse a second model that does not fit beside the open one.

    Args:
        name: of the new model.
        needed: its bytes, as `loaded_bytes` estimates them.
        beside: bytes of the open model's weights.
        model_bytes: what all models together may take; 0 = no such limit.
        free: bytes that the system calls free. On the CPU that includes the open model's weights: they are mapped files, which
            the system could drop, and would have to read again at once. On cuda it does not.
        device: where the new model will compute.

    Raises:
        ValueError: the two do not fit; the sentence names both.
    """
    if model_bytes and needed + beside > model_bytes:
        found = f"a limit of {size(model_bytes)} for both (STREAMSCOPE_LIMIT_MODEL_BYTES)"
    elif needed > (room := free if device.startswith("cuda") else free - beside):
        found = f"{size(max(0, room))} free"
    else:
        return
    raise ValueError(
        f"needs about {size(needed)} for {name} beside the {size(beside)} of the open model; found {found}; choose a "
        "smaller model, or start the server with this one alone."
    )
