"""The pictures of the page "Anatomy", top to bottom."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from analyses._architecture_costs import kv_cache_bytes, weight_bytes
from analyses._architecture_shapes import stream_shapes
from app.components.finding import finding
from app.figures.anatomy import parts_figure, stream_figure
from app.ui.controls import segments
from app.ui.export import python_code, take_with_you
from app.ui.frame import Frame
from app.ui.words import say_note, show_figure, show_table
from app.views.anatomy_choices import PASTED, Counted
from app.views.anatomy_fields import field_rows
from app.views.anatomy_memory import draw_memory
from app.views.anatomy_reveal import ask_guess, draw_working, guess_rows
from app.views.anatomy_words import answer_words, ask_words, share, write_bytes

DETAILS = ("Shapes", "Fields", "Memory", "Comparison")
FIRST_REVEAL = "This holds the answer. Reveal it first."


def draw_page(frame: Frame, counted: Counted, other: Counted | None, answer: Any) -> None:
    """Guess, answer, arithmetic and details; `answer` is where the finding goes."""
    guess, revealed = ask_guess()
    with answer:
        token = kv_cache_bytes(counted.architecture, 1)
        words = answer_words(counted.count, token, guess.mlp) if revealed else ask_words(counted.name)
        finding(words, key="finding")
    for remark in counted.architecture.remarks:
        say_note(remark)
    shown = {counted.name: counted.count} | ({other.name: other.count} if other else {})
    if revealed:
        alt = f"Shares of the parameters of {', '.join(shown)}; the numbers stand in the table below."
        show_figure(parts_figure(shown), key="anatomy.parts", alt=alt)
        show_table(guess_rows(guess, counted))
        st.header("The arithmetic")
        draw_working(counted)
    st.header("What it is made of")
    detail = segments("Detail", DETAILS, key="detail", titled=False)
    if detail in ("Memory", "Comparison") and not revealed:
        st.caption(FIRST_REVEAL)
    elif detail == "Shapes":
        draw_shapes(frame, counted)
    elif detail == "Fields":
        show_table(field_rows(counted.architecture))
    elif detail == "Memory":
        draw_memory(counted)
    else:
        draw_comparison(counted, other)
    _take(frame, counted, shown, revealed)


def draw_shapes(frame: Frame, counted: Counted) -> None:
    """The stream with the person's own prompt in it."""
    n_tokens, width = len(frame.tokens.ids), f"{counted.architecture.d_model:,}"
    if n_tokens:
        say_note(f"B = 1 text, T = {n_tokens:,} tokens (your prompt, by the open model's tokenizer), C = {width}.")
    else:
        say_note(f"Your prompt is empty; drawn is one token. C = {width}.")
    if counted.architecture.n_ctx and n_tokens > counted.architecture.n_ctx:
        say_note(f"The config names a context of {counted.architecture.n_ctx:,} tokens: this prompt does not fit.")
    shapes = stream_shapes(counted.architecture, max(1, n_tokens))
    left, right = st.columns([1, 1.15])
    with left:
        alt = "; ".join(f"{name} {shape}" for name, _, _, shape, _ in shapes)
        figure = stream_figure(shapes, counted.architecture.n_layers)
        show_figure(figure, key="anatomy.stream", alt=f"From ids to logits: {alt}")
    with right:
        show_table(
            {
                "step": [name for name, *_ in shapes],
                "shape": [f"{letters} = ({', '.join(f'{n:,}' for n in shape)})" for _, _, letters, shape, _ in shapes],
                "what happens": [words for *_, words in shapes],
            }
        )


def comparison_rows(first: Counted, second: Counted) -> dict[str, list[str]]:
    """Two configurations side by side; how many times the second, where both are numbers."""
    a, b = first.architecture, second.architecture
    numbers = [
        ("parameters", first.count.total, second.count.total),
        ("of these, one token uses", first.count.active, second.count.active),
        ("layers", a.n_layers, b.n_layers),
        ("width of the stream", a.d_model, b.d_model),
        ("query heads", a.n_heads, b.n_heads),
        ("KV heads", a.n_kv_heads, b.n_kv_heads),
        ("size of a head", a.d_head, b.d_head),
        ("width of the MLP", a.d_expert or a.d_mlp, b.d_expert or b.d_mlp),
        ("vocabulary", a.d_vocab, b.d_vocab),
    ]
    rows = [(name, f"{one:,}", f"{two:,}", _ratio(one, two)) for name, one, two in numbers]
    for name, one, two in (
        ("weights, bfloat16", weight_bytes(a), weight_bytes(b)),
        ("cache per token, bfloat16", kv_cache_bytes(a, 1), kv_cache_bytes(b, 1)),
        ("cache of 8,192 tokens", kv_cache_bytes(a, 8192), kv_cache_bytes(b, 8192)),
    ):
        rows.append((name, write_bytes(one), write_bytes(two), _ratio(one, two)))
    words = [
        ("MLPs hold", share(first.count.mlp, first.count.total), share(second.count.mlp, second.count.total)),
        ("context", _context(a.n_ctx), _context(b.n_ctx)),
        ("embedding used twice", "yes" if a.tied else "no", "yes" if b.tied else "no"),
        ("norm", f"{a.norm}, {a.norm_place}", f"{b.norm}, {b.norm_place}"),
        ("positions", a.positions, b.positions),
        ("MLP", a.activation + (", gated" if a.gated else ""), b.activation + (", gated" if b.gated else "")),
        ("layers with a window", str(sum(map(bool, a.windows))), str(sum(map(bool, b.windows)))),
    ]
    rows += [(*row, "same" if row[1] == row[2] else "") for row in words]
    second_name = second.name if second.name != first.name else f"{second.name} (again)"
    names = ("", first.name, second_name, "second / first")
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}


def _ratio(one: int, two: int) -> str:
    return "same" if one == two else f"{two / one:.3g}"


def _context(n_ctx: int | None) -> str:
    return "not said" if n_ctx is None else f"{n_ctx:,} tokens"


def draw_comparison(counted: Counted, other: Counted | None) -> None:
    """Two configurations in one table."""
    if other is None:
        st.caption('Choose a second configuration under "Compare with".')
        return
    show_table(comparison_rows(counted, other))


def _take(frame: Frame, counted: Counted, shown: Mapping[str, Any], revealed: bool) -> None:
    shapes = stream_shapes(counted.architecture, max(1, len(frame.tokens.ids)))
    figures = {"stream": lambda: stream_figure(shapes, counted.architecture.n_layers)}
    tables: dict[str, Any] = {"fields": lambda: _frame(field_rows(counted.architecture))}
    if revealed:
        figures["parts"] = lambda: parts_figure(shown)
        tables["parameters"] = counted.count.to_frame
    take_with_you(
        frame,
        tables=tables,
        figures=figures,
        code=python_code(frame, "count_parameters, kv_cache_bytes", code_lines(counted)),
    )


def _frame(rows: Mapping[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(rows)


def code_lines(counted: Counted) -> str:
    """Python that gives the numbers of the page."""
    if counted.name == PASTED or isinstance(counted.config, str):
        first = "config = open('config.json', encoding='utf-8').read()  # the file you pasted, or the model's own"
    else:
        first = f"config = {dict(counted.config)!r}"
    return (
        f"{first}\n"
        "parts = count_parameters(config)\n"
        "print(parts.to_frame())\n"
        "print(parts.total, parts.active, parts.mlp_share, kv_cache_bytes(config, n_tokens=1))"
    )
