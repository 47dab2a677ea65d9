"""Which shape has what runs along the stream, from token ids to logits?

B texts, T tokens, C numbers per token (`d_model`). Only reading ids and reading out change what the stream is; a block reads
a copy, computes, and adds a (B, T, C) to it.

Identity: every shape is that of the activation in the model that transformers builds (tests/analyses/test_anatomy_shapes.py).
"""

from typing import Any

from analyses._architecture import Architecture, read_architecture

# name, where it is ("stream", "attention", "mlp"), letters, numbers, what happens
Shape = tuple[str, str, str, tuple[int, ...], str]


def stream_shapes(config: Any, n_tokens: int, n_texts: int = 1) -> tuple[Shape, ...]:
    """Shapes from ids to logits, a block written once.

    Raises:
        ValueError: as `count_parameters`, or fewer than one token or text.
    """
    a = read_architecture(config)
    if n_tokens < 1 or n_texts < 1:
        raise ValueError(f"needs at least one token and one text; found {n_tokens} and {n_texts}; write a text.")
    b, t = n_texts, n_tokens
    stream = (b, t, a.d_model)
    start: list[Shape] = [("ids", "stream", "(B, T)", (b, t), "a whole number per token")]
    if a.d_embedding != a.d_model:
        looked_up = (b, t, a.d_embedding)
        start.append(("embedding row", "stream", "(B, T, e)", looked_up, "a row of the table, then a matrix to C"))
    start.append(("embedding", "stream", "(B, T, C)", stream, _embedding_words(a)))
    ends = ("final norm", "stream", "(B, T, C)", stream, f"{a.norm}: every token's vector to one scale")
    logits = ("logits", "stream", "(B, T, V)", (b, t, a.d_vocab), "a score for every token of the vocabulary")
    block = (*_attention(a, b, t), *_mlp(a, b, t))
    return (*start, *block, *((ends,) if a.final_norm else ()), logits)


def _embedding_words(a: Architecture) -> str:
    words = "row of the embedding table"
    return f"{words} + row of the position table" if a.position_rows else words


def _attention(a: Architecture, b: int, t: int) -> tuple[Shape, ...]:
    h, k, size, stream = a.n_heads, a.n_kv_heads, a.d_head, (b, t, a.d_model)
    each = h // k
    shared = "each query head has its own" if each == 1 else f"{each} query heads share one"
    windows = sorted({window for window in a.windows if window})
    sees = f"; a layer with a window sees {windows[0]:,} tokens at most" if windows else ""
    before = a.norm_place in ("before", "both")
    return (
        *((("norm", "attention", "(B, T, C)", stream, "a copy of the stream to one scale"),) if before else ()),
        ("Q", "attention", "(B, H, T, h)", (b, h, t, size), f"{h:,} heads ask"),
        ("K, V", "attention", "(B, K, T, h)", (b, k, t, size), f"{k:,} KV heads answer: {shared}"),
        ("scores", "attention", "(B, H, T, T)", (b, h, t, t), f"query · key / √h, causal mask, softmax{sees}"),
        ("mixture", "attention", "(B, H, T, h)", (b, h, t, size), "values, mixed by the softmaxed scores"),
        ("+ attention", "attention", "(B, T, C)", stream, _added(a, "O: all heads side by side, to C")),
    )


def _mlp(a: Architecture, b: int, t: int) -> tuple[Shape, ...]:
    stream = (b, t, a.d_model)
    before = a.norm_place in ("before", "both") and not (a.parallel and a.norms_per_block == 1)
    norm = (("norm", "mlp", "(B, T, C)", stream, "a copy of the stream to one scale"),) if before else ()
    shared = f"; beside them the shared expert, {a.d_shared:,} wide" if a.shared_expert else ""
    if any(a.sparse):
        wide = (
            (
                "router",
                "mlp",
                "(B, T, E)",
                (b, t, a.n_experts),
                f"chooses {a.n_active_experts:,} of {a.n_experts:,} experts",
            ),
            (
                "hidden",
                "mlp",
                "(B, T, k, fe)",
                (b, t, a.n_active_experts, a.d_expert),
                f"in each expert, {a.activation}{shared}",
            ),
        )
    else:
        gate = "gate × up" if a.gated else "up"
        wide = (("hidden", "mlp", "(B, T, f)", (b, t, a.d_mlp), f"{gate}, {a.activation}, token by token"),)
    return (*norm, *wide, ("+ MLP", "mlp", "(B, T, C)", stream, _added(a, "down: back to C")))


def _added(a: Architecture, words: str) -> str:
    norm = ", then a norm" if a.norm_place in ("after", "both") else ""
    return f"{words}{norm}, added to the stream"
