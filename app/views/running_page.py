"""The pictures of the page "Running it", top to bottom."""

from typing import Any

import streamlit as st

from analyses._running_formulas import bytes_per_value
from analyses.model import ModelConfig
from analyses.timing import LENGTHS, MOST_SECONDS, NEW_TOKENS, REPEATS, Timing
from app.components.finding import finding
from app.figures.running import budget_figure, cache_figure, timing_figure
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.ui.run import about, seconds_of
from app.ui.words import say_note, show_figure, show_table
from app.views.running_batch import draw_batch, row_length
from app.views.running_context import draw_context
from app.views.running_live import Measured, measure, new_run
from app.views.running_words import budget_words, facts, finding_words, gain_words, origin_words

SLOT = "running"
QUICK = {"lengths": [16, 64, 128], "new_tokens": 2, "repeats": 1, "budget_seconds": 2.0}
LONGEST = (64, 128, 256, 512, 1024, 2048)
DEFAULT_LONGEST = 512


def some_ids(d_vocab: int) -> tuple[int, ...]:
    """Ids to measure with, the same for everybody: which tokens they are does not change the time."""
    return tuple((7 * i + 3) % d_vocab for i in range(61))


def longest_choices(n_ctx: int) -> list[str]:
    """What the longest prompt may be."""
    return [str(n) for n in LONGEST if n + NEW_TOKENS <= n_ctx] or [str(n_ctx - NEW_TOKENS)]


def lengths_up_to(longest: int) -> list[int]:
    """Prompt lengths from one token to the longest."""
    doubled = [n for n in (*LENGTHS, *LONGEST) if n < longest]
    return sorted({*doubled, longest})


def quick_params(n_ctx: int) -> dict[str, Any]:
    """The first, small measurement: the same for everybody, so that a class makes it once."""
    fit = [n for n in QUICK["lengths"] if n + QUICK["new_tokens"] <= n_ctx] or [n_ctx - QUICK["new_tokens"]]
    return QUICK | {"lengths": fit, "again": 0}


def draw_page(frame: Frame, answer: Any) -> None:
    """Ask for the numbers and draw them; `answer` is where the finding goes."""
    config = frame.model.config
    asked = _draw_controls(frame)
    measured = measure(
        "timing",
        some_ids(config.d_vocab),
        slot=SLOT,
        model=config.fingerprint,
        kind=Timing,
        points=lambda result: len(result.lengths),
        draw=_draw_unfinished,
        **asked,
    )
    if measured is None:
        with answer:
            finding(["Nothing has been measured here yet."], key="finding")
        budget = draw_context(frame)
    else:
        with answer:
            finding([finding_words(config, measured.result)], key="finding")
        _draw_timing(measured)
        _draw_cache(config, measured.result)
        _draw_facts(config, measured.result)
        draw_batch(frame, some_ids(config.d_vocab))
        budget = draw_context(frame)
    _take(frame, measured, budget)


def _draw_controls(frame: Frame) -> dict[str, Any]:
    """The longest prompt and the button; gives the parameters of what is asked for now."""
    config = frame.model.config
    options = longest_choices(config.n_ctx)
    if st.session_state.get("longest") not in options:  # kept from a model with another context
        st.session_state.pop("longest", None)
    default = options.index(str(DEFAULT_LONGEST)) if str(DEFAULT_LONGEST) in options else len(options) - 1
    left, right = st.columns([1, 3], vertical_alignment="bottom")
    with left:
        longest = st.selectbox(
            "Longest prompt (tokens)",
            options,
            index=default,
            key="longest",
            bind="query-params",
            help="Time is measured for prompts of 1 token up to this length.",
        )
    lengths = lengths_up_to(int(longest))
    params = {"lengths": lengths, "new_tokens": NEW_TOKENS, "repeats": REPEATS, "budget_seconds": MOST_SECONDS}
    kept = st.session_state.get(f"asked.{SLOT}")
    seconds = seconds_of("timing", some_ids(config.d_vocab), model=config.fingerprint, **params)
    with right, st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Measure again" if kept else "Measure", key="ask.running", icon=":material/timer:"):
            kept = {"model": config.fingerprint, "params": params | {"again": new_run()}}
            st.session_state[f"asked.{SLOT}"] = kept
        st.caption(
            f"{len(lengths)} lengths, up to {REPEATS} times each, with the cache and without: {about(seconds)} here, never more "
            f"than {MOST_SECONDS:.0f} s of computing, and it can be stopped."
        )
    if kept and kept["model"] == config.fingerprint:
        return kept["params"]
    return quick_params(config.n_ctx)


def _draw_unfinished(result: Timing, points: int) -> None:
    show_figure(timing_figure(result), key=f"running.live.{points}", alt=f"Unfinished: {points} lengths so far")


def _draw_timing(measured: Measured) -> None:
    result = measured.result
    if not len(result.lengths):
        return
    show_figure(
        timing_figure(result),
        key="running.timing",
        alt="Seconds per pass against the length of the prompt; numbers in the table below",
    )
    for words in (gain_words(result), budget_words(measured), origin_words(measured)):
        if words:
            say_note(words)
    say_note(
        "Points are medians of wall seconds. Others may use this machine at the same time: wall seconds far above CPU seconds "
        "divided by the threads say so."
    )
    with st.expander("The numbers: wall and CPU seconds"):
        st.dataframe(result.to_frame(), hide_index=True)


def _draw_cache(config: ModelConfig, result: Timing) -> None:
    st.header(
        "The KV cache",
        help="Keys and values of the tokens read so far, kept so that the next token costs one position instead of all.",
    )
    if not len(result.cache_tokens):
        say_note("This model keeps no cache that can be weighed.")
        return
    equal = int((result.cache_bytes == result.formula_bytes).sum())
    per_token = 2 * config.n_layers * config.n_kv_heads * config.d_head * bytes_per_value(config)
    st.write(
        f"2 × {config.n_layers} layers × {config.n_kv_heads} KV heads × {config.d_head} values × {bytes_per_value(config)} bytes "
        f"= **{per_token:,} bytes per token**."
    )
    show_figure(cache_figure(result), key="running.cache", alt="Bytes of the KV cache, measured and by the formula")
    window, n_sizes = config.sliding_window, len(result.cache_tokens)
    times = "once" if n_sizes == 1 else f"at {n_sizes} sizes"
    say_note(
        f"Weighed {times} while it grew; {equal} of {n_sizes} exactly what the formula gives. The bytes are "
        "measured from the tensors; the factors are read from the config."
        + (f" A layer with a sliding window of {window} keeps {window - 1} tokens at most." if window else "")
    )


def _draw_facts(config: ModelConfig, result: Timing) -> None:
    st.header(
        "Reading a prompt, writing a token",
        help="Prefill reads all tokens of the prompt in one pass and uses every weight for all of them. Decode reads every "
        "weight for a single token: there, memory bandwidth is the limit.",
    )
    table = facts(config, result)
    if table is not None:
        show_table(table)
        say_note(
            "kB, MB and GB are powers of 1000. A floating-point operation (FLOP) is one product or one sum. Bandwidth gives an "
            "upper bound for one text at a time; real programs stay below it."
        )


def _take(frame: Frame, measured: Measured | None, budget: Any) -> None:
    tables: dict[str, Any] = {}
    figures: dict[str, Any] = {}
    if measured is not None and len(measured.result.lengths):
        result = measured.result
        tables |= {"timing": result.to_frame(), "cache": result.cache_frame()}
        figures |= {"timing": lambda: timing_figure(result), "cache": lambda: cache_figure(result)}
    if budget is not None:
        tables["context"] = budget.to_frame()
        figures["context"] = lambda: budget_figure(budget)
    lengths = tuple(measured.result.planned) if measured is not None else LENGTHS
    code = (
        f"timing = run_timing(model, {some_ids(7)[:3]!r}, lengths={lengths!r})\n"
        f"batch = run_batch_timing(model, (3, 10, 17), length={row_length(frame.model.config.n_ctx)})\n"
        "print(timing.to_frame(), timing.cache_frame(), batch.to_frame(), sep='\\n')"
    )
    take_with_you(frame, tables=tables, figures=figures, code=python_code(frame, "run_timing, run_batch_timing", code))
