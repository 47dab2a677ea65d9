"""The loss of every token is that of plain transformers, whole and in windows, and its units are each other's."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from analyses import _readout
from analyses._steps import Profile
from analyses.loss import Loss, cost_loss, loss_by_context, loss_steps, run_loss, windows
from tests.tiny import PROMPT

LONG = tuple((7 * i * i + 3 * i) % 300 for i in range(90))  # more than the 64 tokens of a tiny model's context


def of_plain(plain, ids):
    """Losses by transformers alone."""
    logits = plain(torch.tensor([ids])).logits[0].float()
    return cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none").numpy()


# Softcap, output scale, side by side, experts, ALiBi, norms after: whatever stands between the stream and the loss.
@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gemma2", "granite", "cohere", "gptj", "mixtral", "bloom", "olmo2"]
)
def test_every_token_costs_what_transformers_says(tiny, family):
    pair = tiny(family)
    logits = pair.plain(torch.tensor([PROMPT])).logits[0, :-1]
    loss = run_loss(pair.model, PROMPT, top_k=3)
    np.testing.assert_allclose(loss.loss_nats, of_plain(pair.plain, PROMPT), atol=1e-4)
    target = torch.tensor(PROMPT[1:])[:, None]
    assert loss.rank.tolist() == (logits > logits.gather(-1, target)).sum(-1).tolist()
    top = logits.log_softmax(-1).topk(3)
    np.testing.assert_allclose(loss.top_log_probability, top.values, atol=1e-4)
    assert loss.top_ids.tolist() == top.indices.tolist()
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose(loss.entropy_nats, entropy, atol=1e-4)


def test_a_model_without_a_readout_is_read_from_its_logits(tiny, monkeypatch):
    model = tiny("gemma2").model
    usual = run_loss(model, PROMPT).loss_nats
    monkeypatch.setattr(model, "capabilities", {**model.capabilities, "readout": "it does not say"})
    np.testing.assert_allclose(run_loss(model, PROMPT).loss_nats, usual, atol=1e-5)


def test_a_few_rows_at_a_time_are_the_same(tiny, monkeypatch):
    model = tiny("llama").model
    whole = run_loss(model, PROMPT)
    monkeypatch.setattr(_readout, "CHUNK_BYTES", 4 * 5 * 300 * 2)  # two rows
    apart = run_loss(model, PROMPT)
    for name in ("loss_nats", "rank", "entropy_nats", "top_ids"):
        np.testing.assert_allclose(getattr(apart, name), getattr(whole, name), atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("window", "stride"), [(16, 8), (16, 15), (10, 3), (64, 32)])
def test_windows_are_many_plain_passes(tiny, window, stride):
    """The other way round: for each token, the one piece of text that ends with it and has the context it must have had."""
    pair = tiny("llama")
    loss = run_loss(pair.model, LONG, window=window, stride=stride)
    assert len(loss.loss_nats) == len(LONG) - 1 and loss.target_ids.tolist() == list(LONG[1:])
    places = {1, window - 1, window, window + stride - 1, window + stride, len(LONG) - 1}
    for target in (place for place in places if place < len(LONG)):
        begin = 0 if target < window else stride * -(-(target + 1 - window) // stride)
        assert loss.context[target - 1] == target - begin
        last = of_plain(pair.plain, LONG[begin : target + 1])[-1]
        assert loss.loss_nats[target - 1] == pytest.approx(last, abs=1e-4), target
    assert (loss.context[window - 1 :] >= window - stride).all()
    assert (loss.context[: window - 1] == np.arange(1, window)).all()


def test_a_text_that_fits_is_read_in_one_pass_whatever_the_stride(tiny):
    model = tiny("gpt2").model
    plain = run_loss(model, PROMPT)
    assert (plain.n_passes, plain.window, plain.stride) == (1, 64, 32)
    for window, stride in ((12, 12), (12, 1), (64, 5)):
        same = run_loss(model, PROMPT, window=window, stride=stride)
        assert same.n_passes == 1
        np.testing.assert_array_equal(same.loss_nats, plain.loss_nats)


def test_windows_by_hand():
    assert windows(10, 4, 2) == ((0, 4, 1), (2, 6, 4), (4, 8, 6), (6, 10, 8))
    assert windows(9, 4, 3) == ((0, 4, 1), (3, 7, 4), (6, 9, 7))
    assert windows(4, 4, 2) == ((0, 4, 1),)


def test_the_numbers_of_smollm2_by_transformers(smol, smol_hf):
    """Token-weighted, three passages: 2.6925 nats, 3.8845 bits, 14.769, 0.814 bits per byte without each first token."""
    plain, tokenizer = smol_hf
    texts = json.loads((Path(__file__).parents[1] / "data" / "deletion_smol.json").read_text("utf-8"))["paragraphs"]
    ids = [tuple(tokenizer(text, add_special_tokens=False).input_ids) for text in texts]
    found = [run_loss(smol, each) for each in ids]
    np.testing.assert_allclose(found[0].loss_nats, of_plain(plain, ids[0]), atol=1e-3)
    together = found[0].__class__(
        **{name: np.concatenate([getattr(f, name) for f in found]) for name in ARRAYS},
        **{name: getattr(found[0], name) for name in ("window", "stride", "n_passes", "uniform_loss_nats")},
    )
    assert together.mean_nats == pytest.approx(2.6925, abs=2e-3)
    assert together.mean_bits == pytest.approx(3.8845, abs=3e-3)
    assert together.perplexity == pytest.approx(14.769, abs=0.03)
    n_bytes = sum(len(text.encode()) - len(tokenizer.decode(i[:1])) for text, i in zip(texts, ids, strict=True))
    assert together.bits_per_byte(n_bytes) == pytest.approx(0.814, abs=1e-3)
    assert together.uniform_loss_nats == pytest.approx(10.8027, abs=1e-4)
    stream = sum(ids, ())
    slid = run_loss(smol, stream, window=128, stride=64)
    assert (len(stream), len(slid.loss_nats), slid.n_passes) == (312, 311, 4)
    assert slid.mean_nats == pytest.approx(2.699, abs=2e-3), "in one pass it is 2.653"


ARRAYS = ("loss_nats", "entropy_nats", "rank", "target_ids", "top_ids", "top_log_probability", "context")


def by_hand(losses, context=None):
    n = len(losses)
    whole = np.zeros(n, dtype=np.int32)
    return Loss(
        loss_nats=np.array(losses, dtype=np.float32),
        entropy_nats=np.zeros(n, dtype=np.float32),
        rank=whole,
        target_ids=whole,
        top_ids=whole[:, None],
        top_log_probability=np.zeros((n, 1), dtype=np.float32),
        context=np.arange(1, n + 1, dtype=np.int32) if context is None else np.array(context, dtype=np.int32),
        window=64,
        stride=32,
        n_passes=1,
        uniform_loss_nats=math.log(300),
    )


def test_units_by_hand():
    loss = by_hand([0.0, math.log(4), math.log(16)])
    assert loss.mean_bits == pytest.approx(2, abs=1e-6), "0, 2 and 4 bits"
    assert loss.perplexity == pytest.approx(4, abs=1e-5)
    assert loss.probability == pytest.approx([1, 1 / 4, 1 / 16], abs=1e-6)
    assert loss.bits_per_byte(12) == pytest.approx(0.5, abs=1e-6)
    assert loss.to_frame()["loss_bits"].tolist() == pytest.approx([0, 2, 4], abs=1e-6)
    assert loss.to_frame()["position"].tolist() == [1, 2, 3]
    assert by_hand([800.0]).perplexity == math.inf
    with pytest.raises(ValueError, match="needs the number of bytes"):
        loss.bits_per_byte(0)


def test_bins_double_and_lose_no_token():
    bins = loss_by_context(by_hand([9, 4, 6, 1, 2, 3, 2, 5, 7]))
    assert bins.first.tolist() == [1, 2, 4, 8] and bins.last.tolist() == [1, 3, 7, 9]
    assert bins.n_targets.tolist() == [1, 2, 4, 2]
    assert bins.mean_nats.tolist() == [9, 5, 2, 6]
    assert math.isnan(bins.error_nats[0]) and bins.error_nats[1:] == pytest.approx([1, math.sqrt(2 / 3) / 2, 1])
    weighted = (bins.mean_nats * bins.n_targets).sum() / bins.n_targets.sum()
    assert weighted == pytest.approx(39 / 9)


@pytest.mark.parametrize(
    ("ids", "options", "sentence"),
    [
        ((3,), {}, "needs at least 2 tokens; found 1"),
        ("text", {}, "needs token ids; found text"),
        (PROMPT, {"window": 65}, r"needs a window from 2 to 64 tokens \(the model's context\); found 65"),
        (PROMPT, {"window": 1}, "needs a window from 2"),
        (LONG, {"window": 16, "stride": 16}, "needs a stride from 1 to 15, .* found 16"),
        (PROMPT, {"stride": 0}, "needs a stride from 1"),
        (PROMPT, {"top_k": 301}, "needs a top-k from 1 to 300; found 301"),
        ((*LONG, 300), {}, "needs ids from 0 to 299; found 300"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_forward_pass(tiny, ids, options, sentence):
    model, ran = tiny("llama").model, []
    model.interrupt = lambda: ran.append(1)
    try:
        with pytest.raises(ValueError, match=sentence):
            run_loss(model, ids, **options)
    finally:
        del model.interrupt
        model.interrupt = lambda: None
    assert not ran


def test_progress_counts_windows_and_leaves_no_hook(tiny):
    model = tiny("llama").model
    steps = loss_steps(model, LONG, window=16, stride=8)
    seen = []
    with torch.inference_mode():
        for progress in steps:
            seen.append((progress.done, progress.total))
            assert model.hook_count() == 0
    assert seen == [(i, 11) for i in range(11)]


def test_the_cost_grows_with_windows_not_with_the_whole_text_squared():
    profile = Profile(0.01, 1e-3, 1e-6, 2e-3, 30, 9, 576, 49152, 8192)
    once = cost_loss(profile, 512, {"window": 512})
    assert once.seconds == pytest.approx(0.01 + 0.512 + 512**2 * 1e-6 + 513 * 2e-3)
    slid = cost_loss(profile, 5120, {"window": 512, "stride": 256})
    assert slid.seconds == pytest.approx(19 * profile.forward_seconds(512) + 5139 * 2e-3)
    assert slid.peak_bytes == once.peak_bytes
