"""What the contract tests share: waiting without a fixed sleep, and a second way to a steered number."""

import time

from app.backend.protocol import Request, Who
from tests.tiny import PROMPT

ANN, BOB = Who("ann", "page"), Who("bob", "page")


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
    return found


def wait_until_running(job):
    while (event := job.poll(60)).kind != "progress":
        assert event.kind == "queued", event


def clean(backend):
    """No job left, no hook on the model, no grad mode: read after a small request, so after the owner's last turn."""
    backend.submit(Request("steer", PROMPT, {"amount": float(time.monotonic())}), Who("check", "clean")).result(60)
    return wait_until(lambda: (found := backend.stats()).waiting == 0 and found)


def steered(model, amount, layer=1):
    """The same number without our hooks: transformers' own module, a torch hook of our own."""

    def add(module, arguments, keywords):
        return (arguments[0] + amount, *arguments[1:]), keywords

    import torch

    block = model._bridge.blocks[layer]
    handle = block.register_forward_pre_hook(add, with_kwargs=True)
    try:
        with torch.inference_mode():
            return model.forward(PROMPT, last_only=True)[0, -1].numpy()
    finally:
        handle.remove()
