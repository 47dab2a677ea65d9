"""Several texts at once: tokens per second with one, two, four and eight rows."""

import streamlit as st

from analyses.batch_timing import LENGTH, MOST_SECONDS, NEW_TOKENS, ROWS, BatchTiming
from app.figures.running import batch_figure
from app.ui.frame import Frame
from app.ui.run import about, seconds_of
from app.ui.words import say_error, say_note, show_figure
from app.views.running_live import Measured, measure, new_run
from app.views.running_words import size_words, two_digits

SLOT = "running.batch"
REQUIRES = ("kv_cache",)


def row_length(n_ctx: int) -> int:
    """Tokens of every row's prompt."""
    return max(1, min(LENGTH, n_ctx - NEW_TOKENS))


def draw_batch(frame: Frame, ids: tuple[int, ...]) -> None:
    """The button, and the picture once somebody has asked."""
    config = frame.model.config
    st.header("Several texts at once", help="A batch: rows of equal length that go through the model side by side.")
    if missing := frame.model.missing(REQUIRES):
        say_error(f"This is off for {config.name}: {missing}")
        return
    params = {
        "rows": list(ROWS),
        "length": row_length(config.n_ctx),
        "new_tokens": NEW_TOKENS,
        "budget_seconds": MOST_SECONDS,
    }
    kept = st.session_state.get(f"asked.{SLOT}")
    if kept and kept["model"] != config.fingerprint:
        kept = None
    seconds = seconds_of("batch_timing", ids, model=config.fingerprint, **params)
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Measure again" if kept else "Measure batches", key="ask.running.batch", icon=":material/timer:"):
            kept = {"model": config.fingerprint, "params": params | {"again": new_run()}}
            st.session_state[f"asked.{SLOT}"] = kept
        st.caption(
            f"1, 2, 4 and 8 rows of {params['length']} tokens write {NEW_TOKENS} tokens each: {about(seconds)} here, never more "
            f"than {MOST_SECONDS:.0f} s of computing, and it can be stopped."
        )
    if not kept:
        return
    measured = measure(
        "batch_timing",
        ids,
        slot=SLOT,
        model=config.fingerprint,
        kind=BatchTiming,
        points=lambda result: len(result.rows),
        draw=lambda result, n: show_figure(batch_figure(result), key=f"running.batch.live.{n}", alt="Unfinished"),
        **kept["params"],
    )
    if measured is not None:
        _draw(measured)


def batch_words(measured: Measured) -> str:
    """What more rows bring, and what they keep."""
    result: BatchTiming = measured.result
    if not len(result.rows):
        return "Stopped before the first batch was finished."
    total, rows, held = result.tokens_per_second, int(result.rows[-1]), int(result.cache_bytes[-1])
    words = f"1 row: {two_digits(float(total[0]))} tokens/s."
    if rows > 1:
        each, ratio = float(total[-1]) / rows, float(total[-1]) / float(total[0])
        words += (
            f" {rows} rows: {two_digits(float(total[-1]))} tokens/s in total ({two_digits(ratio)} times as many), "
            f"{two_digits(each)} for each."
        )
    equal = "as the formula says" if (result.cache_bytes == result.formula_bytes).all() else "not what the formula says"
    words += f" Their cache holds {size_words(held)}, {equal}: rows share the weights, never the cache."
    left = [str(n) for n in result.planned if n not in result.rows]
    if left:
        why = (
            "Stopped by hand"
            if measured.stopped
            else f"The budget of {result.budget_seconds:g} s was not expected to suffice"
        )
        words += f" {why}; not measured: {' and '.join(left)} rows."
    return words


def _draw(measured: Measured) -> None:
    say_note(batch_words(measured))
    if len(measured.result.rows):
        show_figure(batch_figure(measured.result), key="running.batch", alt="Tokens per second by rows; numbers below")
        with st.expander("The numbers: every batch"):
            st.dataframe(measured.result.to_frame(), hide_index=True)
