"""The door to the model: what it refuses, and that it leaves nothing behind."""

import threading
from types import SimpleNamespace

import pytest
import torch

from analyses._steps import Cancelled
from analyses.capabilities import probe
from tests.tiny import PROMPT


@pytest.fixture
def llama(tiny):
    model = tiny("llama").model
    yield model
    assert model.hook_count() == 0


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ((), "at least 1 token"),
        ("text", "found text"),
        ((3, 300), "found 300"),
        ((1,) * 65, "at most 64"),
        (torch.tensor([[3, -1]]), "found -1"),
        (torch.tensor([3, 4]), r"\[batch, pos\]"),
        (torch.tensor([[0.5]]), "int64"),
        (torch.zeros(0, 3, dtype=torch.int64), "at least one text"),
        (torch.zeros(2, 0, dtype=torch.int64), "at least 1 token"),
        (torch.zeros(2, 65, dtype=torch.int64), "at most 64"),
    ],
)
def test_wrong_ids_are_refused_before_anything_is_computed(llama, monkeypatch, ids, words):
    monkeypatch.setattr(llama, "interrupt", lambda: pytest.fail("a block ran"))
    with pytest.raises(ValueError, match=words):
        llama.forward(ids)


def test_tokens_objects_lists_and_tensors_are_ids_too(llama):
    expected = llama.forward(PROMPT)
    for ids in (list(PROMPT), SimpleNamespace(ids=PROMPT), torch.tensor([PROMPT])):
        assert torch.equal(llama.forward(ids), expected)


def test_generation_must_fit_the_context(llama):
    with pytest.raises(ValueError, match=r"context of 64; found 12 \+ 53"):
        llama.generate_ids(PROMPT, 53)
    assert len(llama.generate_ids(PROMPT, 52)) == 52


def test_greedy_generation_is_the_argmax_of_plain_transformers(tiny, llama):
    text = list(PROMPT)
    for _ in range(6):
        text.append(int(tiny("llama").plain(torch.tensor([text])).logits[0, -1].argmax()))
    assert llama.generate_ids(PROMPT, 6) == tuple(text[12:])
    assert llama.generate_ids(PROMPT, 6, use_cache=False) == tuple(text[12:])
    assert llama.generate_ids(PROMPT, 0) == ()


def test_only_one_text_is_captured(llama):
    with pytest.raises(ValueError, match="one text; found 2"):
        llama.capture_calls(torch.tensor([PROMPT, PROMPT]))


# ---- hooks ----


def test_a_misspelt_hook_is_refused_with_the_nearest_name(llama):
    with pytest.raises(ValueError, match=r"found 'blocks.1.hook_resid_prr'.*mean 'blocks.\d.hook_resid_pre'"):
        with llama.hooks(("blocks.0.hook_resid_pre", lambda t, hook: 0 * t), ("blocks.1.hook_resid_prr", print)):
            pass
    with pytest.raises(ValueError, match=r"did you mean 'pattern'\?"):
        llama.hook_name("patern", 0)
    with pytest.raises(ValueError, match="layer from 0 to 2; found 3"):
        llama.hook_name("pattern", 3)


def test_hooks_are_counted_and_gone_after_an_error(llama):
    expected = llama.forward(PROMPT)
    with pytest.raises(ZeroDivisionError):
        with llama.hooks(*((llama.hook_name("mlp_out", i), lambda t, hook: 0 * t) for i in range(3))):
            assert llama.hook_count() == 3
            assert not torch.allclose(llama.forward(PROMPT), expected, atol=0.1)
            raise ZeroDivisionError
    assert llama.hook_count() == 0
    assert torch.equal(llama.forward(PROMPT), expected)


def test_a_hook_steers_as_adding_to_the_stream_does_in_plain_transformers(tiny, llama):
    vector = torch.linspace(-1, 1, 32)
    plain = tiny("llama").plain
    handle = plain.model.layers[1].register_forward_pre_hook(lambda m, args: (args[0] + vector, *args[1:]))
    expected = plain(torch.tensor([PROMPT])).logits
    handle.remove()
    with llama.hooks((llama.hook_name("resid_pre", 1), lambda t, hook: t + vector)):
        assert torch.allclose(llama.forward(PROMPT), expected, atol=1e-4)
    assert not torch.allclose(llama.forward(PROMPT), expected, atol=0.1)


# ---- stopping ----


@pytest.mark.parametrize("compute", ["forward", "capture_calls"])
def test_an_interrupt_stops_at_the_next_block_and_leaves_nothing(llama, monkeypatch, compute):
    expected, calls = llama.forward(PROMPT), 0

    def stop():
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    ran = []
    with pytest.raises(Cancelled):
        with llama.hooks(*((llama.hook_name("resid_post", i), lambda t, hook, i=i: ran.append(i)) for i in range(3))):
            getattr(llama, compute)(PROMPT)
    assert ran == [0]  # blocks 1 and 2 never ran
    assert llama.hook_count() == 0
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    monkeypatch.undo()
    assert torch.equal(llama.forward(PROMPT), expected)
    assert torch.equal(llama.capture_calls(PROMPT).logits, expected)


def test_replayed_blocks_and_loops_are_interrupted_too(llama, monkeypatch):
    calls = llama.capture_calls(PROMPT)

    def stop():
        raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    with pytest.raises(Cancelled):
        llama.run_block(1, calls.resid[1], calls)
    with pytest.raises(Cancelled):
        llama.check()


def test_cancelling_during_the_probe_is_not_taken_for_a_missing_capability(llama, monkeypatch):
    def stop():
        raise Cancelled

    monkeypatch.setattr(llama, "interrupt", stop)
    with pytest.raises(Cancelled):
        probe(llama)


# ---- gradients ----


def test_no_thread_builds_a_graph(llama):
    """Grad mode is per thread and on in every new one: 1.4 GB at 512 tokens on the embedded model."""
    found = []
    thread = threading.Thread(target=lambda: found.append((torch.is_grad_enabled(), llama.forward(PROMPT))))
    thread.start()
    thread.join()
    enabled, logits = found[0]
    assert enabled and not logits.requires_grad
    assert torch.equal(logits, llama.forward(PROMPT))


def test_gradients_can_still_be_asked_for(tiny, llama):
    """The probe ran under inference mode; a table it left behind would make this fail."""
    streams = []

    def track(tensor, hook):
        streams.append(tensor.detach().requires_grad_(True))
        return streams[0]

    with llama.hooks((llama.hook_name("resid_pre", 1), track)):
        llama.forward(PROMPT)[0, -1, 7].backward()
    plain, kept = tiny("llama").plain, []
    handle = plain.model.layers[1].register_forward_pre_hook(
        lambda m, args: (kept.append(args[0].detach().requires_grad_(True)), (kept[0], *args[1:]))[1]
    )
    plain(torch.tensor([PROMPT])).logits[0, -1, 7].backward()
    handle.remove()
    assert kept[0].grad.abs().max() > 0.01
    assert torch.allclose(streams[0].grad, kept[0].grad, atol=1e-5)
