"""Timing with a clock made by hand, and the cache weighed against plain transformers; never how long anything took."""

from types import SimpleNamespace

import numpy as np
import pytest

from analyses._bench import fill
from analyses._running_formulas import block_matrices, cache_bytes, decode_bound, is_dense, pass_flops
from analyses._steps import Profile
from analyses.batch_timing import BatchTiming, batch_timing_steps, cost_batch_timing, run_batch_timing
from analyses.timing import Timing, cost_timing, run_timing, timing_steps
from tests.tiny import PROMPT

# Keys and values of one token in all layers that keep it: 2 * layers * kv_heads * d_head * 4 bytes, by hand.
PER_TOKEN = {"llama": 2 * 3 * 2 * 8 * 4, "gpt2": 2 * 3 * 4 * 8 * 4, "falcon": 2 * 3 * 1 * 8 * 4}


class Clock:
    """Time that passes only when somebody says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("analyses._stopwatch.wall_clock", lambda: self.now)
        monkeypatch.setattr("analyses._stopwatch.cpu_clock", lambda: 2 * self.now)


class Counts:
    """A model whose pass takes a second for every token it is given, and that keeps its cache in one tensor pair."""

    config = SimpleNamespace(d_vocab=5, n_ctx=64, n_kv_heads=1, d_head=1, d_model=2, dtype="float32", device="cpu")

    def __init__(self, clock, **missing):
        self.clock, self.passes = clock, []
        self.capabilities = {"kv_cache": "", "readout": "not here"} | missing

    def require(self, *names):
        assert all(not self.capabilities[name] for name in names)

    def forward(self, ids, *, last_only):
        return self._pass(len(ids))

    def extend(self, ids, cache=None):
        import torch

        rows, new = (ids.shape[0], ids.shape[1]) if hasattr(ids, "shape") else (1, len(ids))
        kept = 0 if cache is None else cache.layers[0].keys.shape[2]
        both = torch.zeros(rows, 1, kept + new, 1)
        return self._pass(new, rows), SimpleNamespace(layers=[SimpleNamespace(keys=both, values=both)])

    def _pass(self, n, rows=1):
        import torch

        self.passes.append(n)
        self.clock.now += n
        return torch.zeros(rows, 1, 5)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def drained(steps, between=lambda: None):
    notes = []
    while True:
        try:
            notes.append(next(steps))
            between()
        except StopIteration as stop:
            return notes, stop.value


PLAN = {"lengths": (1, 2, 4), "new_tokens": 1, "repeats": 2}


def test_the_budget_ends_the_measurement_before_a_pass_that_is_not_expected_to_fit(clock):
    # Warm-up 1, then 1 + 1 + 1 and 2 + 1 + 2: 9 s. Four tokens: 1.3 * 2 * 2 s = 5.2 s expected, and 9 + 5.2 > 14.
    short = run_timing(Counts(clock), (3,), **PLAN, budget_seconds=14)
    assert (short.lengths.tolist(), short.spent_seconds, short.ended_early) == ([1, 2], 9, True)
    # With 20: 4 + 1 + 4 more makes 18; the second repeat has 1 + 1, and the next pass would make 21.
    longer = run_timing(Counts(clock), (3,), **PLAN, budget_seconds=20)
    assert (longer.lengths.tolist(), longer.spent_seconds, longer.ended_early) == ([1, 2, 4], 20, True)
    assert longer.repeats.tolist() == [2, 1, 1]
    assert longer.prefill_seconds.tolist() == longer.uncached_seconds.tolist() == [1, 2, 4]
    assert longer.cached_seconds.tolist() == [1, 1, 1]
    assert longer.prefill_cpu_seconds.tolist() == [2, 4, 8], "of all threads, from the other clock"
    whole = run_timing(Counts(clock), (3,), lengths=(1, 2), new_tokens=1, repeats=2, budget_seconds=20)
    assert (whole.spent_seconds, whole.ended_early, whole.repeats.tolist()) == (17, False, [2, 2])


def test_one_point_is_measured_however_small_the_budget(clock):
    found = run_timing(Counts(clock), (3,), **PLAN, budget_seconds=0.5)
    assert (found.lengths.tolist(), found.spent_seconds, found.ended_early) == ([1], 2, True)
    assert np.isnan(found.cached_seconds[0]) and np.isnan(found.uncached_seconds[0])


def test_what_others_compute_between_two_passes_does_not_count(clock):
    def others():
        clock.now += 1000

    model = Counts(clock)
    notes, found = drained(timing_steps(model, (3,), **PLAN, budget_seconds=20), others)
    assert found.spent_seconds == 20 and found.repeats.tolist() == [2, 1, 1]
    assert len(notes) == len(model.passes), "it can be stopped before every pass"


def test_progress_carries_everything_that_is_finished(clock):
    notes, found = drained(timing_steps(Counts(clock), (3,), **PLAN, budget_seconds=20))
    so_far = [Timing(**note.partial) for note in notes]
    counts = [len(each.lengths) for each in so_far]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 3
    assert so_far[-1].prefill_seconds.tolist() == found.prefill_seconds.tolist()
    assert [note.done for note in notes] == sorted(note.done for note in notes)
    assert max(note.done for note in notes) <= notes[0].total == 20


def test_a_model_without_a_cache_is_timed_without_one(clock):
    found = run_timing(Counts(clock, kv_cache="it keeps none"), (3,), **PLAN, budget_seconds=20)
    assert found.uncached_seconds.tolist() == [1, 2, 4]
    assert np.isnan(found.cached_seconds).all() and found.cache_tokens.tolist() == []


@pytest.mark.parametrize("family", sorted(PER_TOKEN))
def test_the_cache_weighs_what_the_formula_says_and_what_plain_transformers_keeps(tiny, family):
    import torch

    pair = tiny(family)
    found = run_timing(pair.model, PROMPT, lengths=(1, 7, 20), new_tokens=2, repeats=1)
    assert found.cache_tokens.tolist() == [1, 2, 3, 7, 8, 9, 20, 21, 22]
    assert found.cache_bytes.tolist() == found.formula_bytes.tolist()
    assert found.cache_bytes.tolist() == [PER_TOKEN[family] * n for n in found.cache_tokens]
    kept = pair.plain(torch.tensor([fill(PROMPT, 22)]), use_cache=True).past_key_values
    assert found.cache_bytes[-1] == sum(4 * (layer.keys.numel() + layer.values.numel()) for layer in kept.layers)
    assert found.read_bytes == 300 * 32 * 4


def test_a_sliding_window_keeps_one_token_fewer_than_the_window(tiny):
    pair = tiny("gemma2")
    full_layers = pair.plain.config.layer_types.count("full_attention")
    assert full_layers == 1
    found = run_timing(pair.model, PROMPT, lengths=(3, 12), new_tokens=2, repeats=1)
    assert found.cache_bytes.tolist() == found.formula_bytes.tolist()
    d_head = pair.model.config.d_head
    for tokens, weight in zip(found.cache_tokens, found.cache_bytes, strict=True):
        kept = full_layers * tokens + (3 - full_layers) * min(tokens, 5 - 1)
        assert weight == 2 * 2 * d_head * 4 * kept


def test_the_formula_gives_the_published_sizes():
    whole = {"n_tokens": 131_072, "bytes_per_value": 2}
    assert cache_bytes(8, 128, limits=[None] * 80, **whole) == 40 * 2**30, "Llama 3 70B, 131,072 tokens: 40 GiB"
    assert cache_bytes(64, 128, limits=[None] * 80, **whole) == 320 * 2**30, (
        "without grouped queries eight times as much"
    )
    assert cache_bytes(2, 8, 9, limits=[4, None], bytes_per_value=4, rows=3) == 2 * 3 * (4 + 9) * 2 * 8 * 4


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma", "phi", "falcon"])
def test_flops_are_those_that_torch_counts(tiny, family):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    pair = tiny(family)
    config = pair.model.config
    assert is_dense(config)
    with torch.inference_mode():
        with FlopCounterMode(display=False) as counter:
            cache = pair.plain(torch.tensor([PROMPT]), use_cache=True).past_key_values
        assert counter.get_total_flops() == pass_flops(config, 12, readouts=12)
        with FlopCounterMode(display=False) as counter:
            pair.plain(torch.tensor([[5]]), past_key_values=cache, use_cache=True)
        assert counter.get_total_flops() == pass_flops(config, 1, past=12)


def test_experts_are_refused_and_the_bound_is_bandwidth_over_bytes(tiny):
    shape = {"n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "d_head": 128, "d_model": 4096, "d_mlp": 14_336}
    shape |= {"d_vocab": 32_000, "gated_mlp": True, "tied": False, "n_parameters": 46_702_792_704}  # Mixtral 8x7B
    mixed = SimpleNamespace(**shape)
    assert not is_dense(mixed)
    assert is_dense(SimpleNamespace(**shape | {"n_parameters": 7_241_732_096})), "Mistral 7B: the same with one MLP"
    with pytest.raises(ValueError, match=r"needs a dense model.*; found .*\(experts, perhaps\); count its active"):
        pass_flops(mixed, 1)
    config = tiny("llama").model.config
    read = (config.n_parameters - 300 * 32) * 4  # not tied: one row of the embedding is read
    assert decode_bound(config, 1e9, 1000) == pytest.approx(1e9 / (read + 1000))
    assert block_matrices(config) == 3 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        (
            {"lengths": (1, 62)},
            r"needs lengths from 1 to 61 tokens .3 new ones follow, within the context of 64.; found",
        ),
        ({"lengths": (0, 5)}, "needs lengths from 1"),
        ({"lengths": ()}, "needs lengths from 1"),
        ({"lengths": (5, 5)}, "needs increasing lengths"),
        ({"new_tokens": 0}, "needs 1 to 63 new tokens; found 0"),
        ({"repeats": 0}, "needs 1 to 100 repeats; found 0"),
        ({"lengths": (1,), "budget_seconds": 21}, "needs a budget above 0 and at most 20 seconds; found 21"),
        ({"lengths": (1,), "budget_seconds": float("nan")}, "needs a budget"),
    ],
)
def test_refusals(clock, params, sentence):
    model = Counts(clock)
    with pytest.raises(ValueError, match=sentence):
        run_timing(model, (3,), **params)
    assert model.passes == [], "before anything is paid for"


def test_a_batch_keeps_one_cache_per_row_and_shares_the_step(clock, tiny):
    found = run_batch_timing(tiny("llama").model, PROMPT, rows=(1, 3), length=9, new_tokens=2)
    assert found.cache_bytes.tolist() == found.formula_bytes.tolist() == [384 * 11, 3 * 384 * 11]
    model = Counts(clock)
    notes, found = drained(batch_timing_steps(model, (3,), rows=(1, 2, 8), length=4, new_tokens=2))
    # Warm-up 1 s; every batch takes 4 s for its prompts and 2 steps of 1 s. Rows of 8 are expected to need 4 times 1.3 times 6 s.
    assert found.rows.tolist() == [1, 2] and found.ended_early and found.spent_seconds == 13
    assert found.step_seconds.tolist() == [1, 1] and found.prefill_seconds.tolist() == [4, 4]
    assert found.tokens_per_second.tolist() == [1, 2]
    assert len(notes) == len(model.passes)
    assert BatchTiming(**notes[-1].partial).rows.tolist() == [1]


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"rows": (2, 1)}, "needs increasing numbers of rows from 1 to 64"),
        ({"rows": (65,)}, "needs increasing numbers of rows"),
        ({"length": 60}, r"within the context of 64; found 60 \+ 8"),
        ({"length": 0}, "needs at least one token"),
    ],
)
def test_refusals_of_a_batch(clock, params, sentence):
    with pytest.raises(ValueError, match=sentence):
        run_batch_timing(Counts(clock), (3,), **{"length": 4, **params})


def test_the_estimate_is_the_budget_at_most():
    profile = Profile(1.0, 0.1, 0.0, 0.0, n_layers=2, n_heads=2, d_model=8, d_vocab=10, n_ctx=64)
    # Twice a pass of 10 tokens (2 s) and one new token (1.1 s), and four short passes (1.1 s).
    params = {"lengths": (10,), "new_tokens": 1, "repeats": 1}
    assert cost_timing(profile, 3, params).seconds == pytest.approx(2 * 2 + 1.1 + 4 * 1.1)
    assert cost_timing(profile, 3, params | {"budget_seconds": 2.0}).seconds == 2
    batch = {"rows": (1, 2), "length": 10, "new_tokens": 1}
    assert cost_batch_timing(profile, 3, batch).seconds == pytest.approx(2 + 1.1 + 3 + 1.2)
