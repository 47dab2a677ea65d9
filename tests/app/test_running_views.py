"""What the page "Running it" says and keeps, worked by hand: sizes, the finding, where figures come from, the budget."""

from types import SimpleNamespace

import numpy as np
import pytest

from analyses.batch_timing import BatchTiming
from analyses.chat_marks import ChatMarks
from analyses.context_budget import ContextBudget
from analyses.timing import Timing
from app.figures.running import batch_figure, budget_figure, cache_figure, timing_figure
from app.views.running_batch import batch_words
from app.views.running_context import TALK, build_parts, context_words
from app.views.running_live import Measured
from app.views.running_page import lengths_up_to, longest_choices, quick_params
from app.views.running_words import (
    budget_words,
    facts,
    finding_words,
    gain_words,
    origin_words,
    seconds_words,
    size_words,
    two_digits,
)

# Made up so that every number below can be checked by hand: 1 layer, 2 KV heads of 3 values, 48 bytes a token.
SHAPE = {"n_layers": 1, "n_heads": 2, "n_kv_heads": 2, "d_head": 3, "d_model": 6, "d_mlp": 10, "d_vocab": 50}
CONFIG = SimpleNamespace(**SHAPE, gated_mlp=False, tied=True, n_parameters=570, dtype="float32", fingerprint="f")


def timing(**changed):
    fields = {
        "lengths": np.array([1, 100], np.int32),
        "prefill_seconds": np.array([0.0125, 0.5], np.float32),
        "cached_seconds": np.array([0.02, 0.04], np.float32),
        "uncached_seconds": np.array([0.01, 0.48], np.float32),
        "prefill_cpu_seconds": np.array([0.02, 1.0], np.float32),
        "cached_cpu_seconds": np.array([0.04, 0.08], np.float32),
        "uncached_cpu_seconds": np.array([0.02, 0.96], np.float32),
        "repeats": np.array([3, 2], np.int32),
        "cache_tokens": np.array([1, 2, 100], np.int32),
        "cache_bytes": np.array([48, 96, 4800], np.int64),
        "formula_bytes": np.array([48, 96, 4800], np.int64),
        "read_bytes": 1200,
        "read_seconds": 0.1,
        "planned": (1, 100, 200),
        "planned_repeats": 3,
        "budget_seconds": 20.0,
        "spent_seconds": 2.25,
        "ended_early": True,
        "measured_at": 3661.0,
        "n_threads": 2,
    }
    return Timing(**fields | changed)


NOTHING = {"lengths": np.array([], np.int32), "repeats": np.array([], np.int32)}
NOTHING |= {
    f"{kind}_{name}": np.array([], np.float32)
    for kind in ("prefill", "cached", "uncached")
    for name in ("seconds", "cpu_seconds")
}
NOTHING |= {name: np.array([], np.int64) for name in ("cache_bytes", "formula_bytes")}
NOTHING |= {"cache_tokens": np.array([], np.int32)}


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [(384, "384 bytes"), (1000, "1.00 kB"), (1024, "1.02 kB"), (23_592_960, "23.6 MB"), (537_999_999, "538 MB")]
    + [(999_700, "1.00 MB"), (2**30, "1.07 GB"), (40 * 2**30, "42.9 GB")],
)
def test_sizes_are_powers_of_a_thousand(n_bytes, words):
    assert size_words(n_bytes) == words


def test_times_have_the_digits_that_are_true():
    assert [seconds_words(s) for s in (1.62, 0.0894, 0.9961, 12.4, float("nan"))] == [
        "1.6 s",
        "89 ms",
        "1.0 s",
        "12 s",
        "-",
    ]
    assert [two_digits(v) for v in (11.2, 2.56, 0.0894, 9.96, 1234.0, 0.0)] == [
        "11",
        "2.6",
        "0.089",
        "10",
        "1,200",
        "-",
    ]


def test_the_finding_and_what_the_cache_is_worth():
    words = "100 tokens in 500 ms, then 25 tokens/s; the cache holds 4.80 kB (float32), as the formula says."
    assert finding_words(CONFIG, timing()) == words
    assert gain_words(timing()) == "After 100 tokens, a token without the cache takes 12 times as long."
    differs = timing(formula_bytes=np.array([48, 96, 4801], np.int64))
    assert finding_words(CONFIG, differs).endswith("where the formula says 4.80 kB.")
    none = np.full(2, np.nan, np.float32)
    empty = {name: NOTHING[name] for name in ("cache_tokens", "cache_bytes", "formula_bytes")}
    bare = timing(cached_seconds=none, **empty)
    assert finding_words(CONFIG, bare) == "100 tokens in 500 ms, then 2.1 tokens/s without a cache."
    assert gain_words(bare) == ""
    assert "Nothing has been measured" in finding_words(CONFIG, timing(**NOTHING))


def test_when_it_was_measured_and_what_is_missing():
    assert origin_words(Measured(timing())) == "Measured at 01:01:01 UTC on 2 threads, 2.2 s of computing."
    assert "stored result" in origin_words(Measured(timing(), cached=True))
    early = budget_words(Measured(timing()))
    assert "The budget of 20 s ended it" in early and "not measured: 200 tokens" in early and "2 of 3 repeats" in early
    assert budget_words(Measured(timing(), stopped=True)).startswith("Stopped by hand; not measured: 200 tokens.")
    assert budget_words(Measured(timing(planned=(1, 100), ended_early=False))) == ""


def test_every_row_of_the_table_says_how_it_is_known():
    table = facts(CONFIG, timing())
    rows = {row[0]: row[1:] for row in zip(*table.values(), strict=True)}
    assert rows["tokens per second"] == ("200", "25", "measured")
    # Matrices: Q, K, V, O of 6 x 6 and an MLP of 2 * 6 * 10: 264 values; unembedding 300; 564 of 570 parameters.
    # Prefill: 2 * 100 * 264 + 2 * 300 + 4 * 6 * 100 * 100 = 293,400 FLOPs. Decode: 528 + 600 + 4 * 6 * 101 = 3,552.
    assert rows["FLOPs"][:2] == ("0.00029 GFLOP", "0.0000036 GFLOP")
    assert rows["KV cache"] == ("writes 4.80 kB", "reads 4.80 kB", "measured, and computed: equal")
    assert rows["all weights"] == ("2.28 kB", "2.28 kB", "computed from the parameters")
    # 1200 bytes in 0.1 s; 2,280 of weights and 4,800 of cache for every token.
    assert rows["bytes per second from memory"][1] == "12.0 kB/s"
    assert rows["what that allows at most"][1] == "1.7 tokens/s"
    assert all(row[-1].startswith(("measured", "computed", "read from")) for row in rows.values())
    with_experts = SimpleNamespace(**{**vars(CONFIG), "n_parameters": 2000})
    assert "not computed" in facts(with_experts, timing())["how it is known"][-1]
    assert facts(CONFIG, timing(**NOTHING)) is None


def test_the_lengths_that_are_asked_for_fit_the_context():
    assert longest_choices(8192) == ["64", "128", "256", "512", "1024", "2048"]
    assert longest_choices(64) == ["61"]
    assert lengths_up_to(512) == [1, 16, 64, 128, 256, 512]
    assert lengths_up_to(61) == [1, 16, 61]
    assert quick_params(64)["lengths"] == [16] and quick_params(8)["lengths"] == [6]
    assert quick_params(8192)["budget_seconds"] == 2


def batch(**changed):
    fields = {
        "rows": np.array([1, 4], np.int32),
        "prefill_seconds": np.array([1, 3], np.float32),
        "step_seconds": np.array([0.1, 0.2], np.float32),
        "step_cpu_seconds": np.array([0.2, 0.4], np.float32),
        "cache_bytes": np.array([1000, 4000], np.int64),
        "formula_bytes": np.array([1000, 4000], np.int64),
        "length": 64,
        "new_tokens": 8,
        "planned": (1, 4, 8),
        "budget_seconds": 20.0,
        "spent_seconds": 6.0,
        "ended_early": True,
        "measured_at": 0.0,
        "n_threads": 1,
    }
    return BatchTiming(**fields | changed)


def test_a_batch_in_words():
    words = batch_words(Measured(batch()))
    assert "1 row: 10 tokens/s. 4 rows: 20 tokens/s in total (2.0 times as many), 5.0 for each." in words
    assert "4.00 kB, as the formula says" in words and words.endswith("not measured: 8 rows.")


def budget(
    kept, difference=0.0, same=None, names=("instruction", "exchange 1", "question"), sizes=(10, 30, 20), other=None
):
    ids = np.arange(sum(kept), dtype=np.int32)
    top, share = np.array([1], np.int32), np.array([0.5], np.float32)
    return ContextBudget(
        names=names,
        n_tokens=np.array(sizes, np.int32),
        n_kept=np.array(kept, np.int32),
        other_n_tokens=12,
        other_n_kept=np.array(kept if other is None else other, np.int32),
        window=70,
        answer=15,
        policy="oldest first",
        ids=ids,
        other_ids=ids,
        same_ids=not kept[0] if same is None else same,
        max_logit_difference=difference,
        kl_nats=difference / 10,
        top_ids=top,
        top_probability=share,
        other_top_ids=top,
        other_top_probability=share,
    )


def test_the_budget_in_words():
    gone = context_words(budget((0, 30, 20)))
    assert gone.startswith("60 tokens and 15 for the answer make 75; the window holds 70. Fell out: instruction. ")
    assert gone.endswith("their logits are the same bit for bit: largest difference 0.")
    inside = context_words(budget((10, 30, 20), difference=2.5))
    assert "Everything fits. With the other instruction the logits change by up to 2.50 (KL 0.250 nats)" in inside
    one_gone = context_words(budget((10, 30, 20), difference=2.5, other=(0, 30, 20)))
    assert "The other one is longer and falls out. With the other" in one_gone
    assert one_gone.endswith("(KL 0.250 nats): this one is read.")
    this_gone = context_words(budget((0, 30, 20), difference=2.5, other=(12, 30, 20), same=False))
    assert this_gone.endswith("(KL 0.250 nats): the other one is read.") and "Fell out: instruction." in this_gone
    moved = context_words(budget((10, 30, 20), difference=2.5, other=(12, 0, 20)))
    assert moved.endswith("but not by the instruction alone: of exchange 1 other tokens are kept.")
    both = context_words(budget((10, 30, 20), difference=2.5, other=(0, 30, 18)))
    assert "falls out" in both and both.endswith("of question other tokens are kept.") and "is read" not in both
    assert "Both instructions are the same tokens" in context_words(budget((10, 30, 20), same=True))
    assert "lost its first 5 tokens" in context_words(budget((0, 0, 15)))


def test_parts_are_messages_between_marks_and_the_newest_exchange_comes_last(monkeypatch):
    class Bytes:
        def tokenize(self, text, *, bos, plain):
            assert bos == "none"
            return SimpleNamespace(ids=tuple(text.encode()))

    monkeypatch.setattr("app.views.running_context.get_backend", Bytes)
    choices = {"instruction": "Do", "other": "Go", "document": "none", "turns": 2}
    marks = ChatMarks(("[s]", "[u]", "[a]"), ("/", "/", "/"), "[a]", "")
    parts, other = build_parts(marks, "Why?", choices)
    asked, said = TALK[-1]
    assert [bytes(part.ids).decode() for part in parts[::3]] == ["[s]Do/", "[u]Why?/[a]"]
    assert bytes(parts[2].ids).decode() == f"[u]{asked}/[a]{said}/"
    assert bytes(other.ids).decode() == "[s]Go/"
    assert [part.n_marks for part in parts] == [4, 8, 8, 7]
    bare, _ = build_parts(ChatMarks(("",) * 3, ("",) * 3, "", "no template"), "Why?", choices)
    assert bytes(bare[0].ids).decode() == "Do\n\n" and bare[0].n_marks == 0


def test_figures_draw_what_was_measured():
    figure = timing_figure(timing(uncached_seconds=np.full(2, np.nan, np.float32)))
    assert [trace.name for trace in figure.data] == [
        "the prompt, until the first token",
        "one more token, with the cache",
    ]
    assert list(figure.layout.yaxis.range) == [-2, 0], "whole decades around 12.5 and 500 ms"
    weighed = cache_figure(timing()).data
    assert list(weighed[0].x) == [0, 1, 2, 100] and weighed[1].y[-1] == pytest.approx(4.8e-3)
    assert batch_figure(batch()).data[0].y.tolist() == pytest.approx([10, 20])
    bars = budget_figure(budget((0, 30, 20))).data
    assert [(bar.base[0], bar.x[0]) for bar in bars] == [(-10, 10), (0, 30), (30, 20), (50, 15)]
    assert bars[0].marker.pattern.shape == "/" and not bars[1].marker.pattern.shape
    assert budget_figure(budget((10, 30, 20), names=("<b>x</b>", "a", "b"))).data[0].name == "&lt;b&gt;x&lt;/b&gt;"
