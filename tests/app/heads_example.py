"""Attention of made-up heads for the tests of the head pictures; it compresses worse than real attention."""

import numpy as np

NASTY = [b"<s>a<b>c</b>$x$", b"\xf0\x9f", b"\x99\x82", b"\n", b" The", b"<img src=x onerror=alert(1)>"]
NASTY += [b"</script><script>alert(2)</script>", "\u202eright".encode(), "مرحبا".encode(), b"&lt;", b"w" * 300, b""]
WORDS = b"the quick brown fox jumps over a lazy dog and then it sleeps in the warm sun for hours".split()


def tokens(n):
    """Bytes of n tokens, the hostile ones first."""
    return [*NASTY, *(b" " + WORDS[i % len(WORDS)] for i in range(n))][:n]


def weights(n_heads, n_tokens, seed=0):
    """Rows that sum to one: softmax of random scores, of every sharpness, most heads with a strong first token."""
    random = np.random.default_rng(seed)
    maps = np.zeros((n_heads, n_tokens, n_tokens), np.float32)
    for i in range(n_heads):
        scores = random.normal(size=(n_tokens, n_tokens)) * random.uniform(0.5, 3)
        if i % 5 == 1:  # looks at the token before
            scores[np.arange(1, n_tokens), np.arange(n_tokens - 1)] += 6
        scores[:, 0] += random.uniform(2, 9) if i % 4 else 0
        scores[np.triu_indices(n_tokens, 1)] = -np.inf
        maps[i] = np.exp(scores - scores.max(-1, keepdims=True))
    return maps / maps.sum(-1, keepdims=True)


def pack(maps):
    """Lower triangles as bytes, as `Attention.packed` has them."""
    return np.rint(255 * maps[:, *np.tril_indices(maps.shape[1])]).astype(np.uint8)


def sheet(n_layers=30, n_heads=9, n_tokens=128, seed=0):
    """Arguments of `head_grid` for a sheet in the order of the layers."""
    maps = weights(n_layers * n_heads, n_tokens, seed)
    previous = np.array([m.diagonal(-1).mean() for m in maps]) if n_tokens > 1 else np.zeros(len(maps))
    return {
        "packed": pack(maps),
        "size": n_tokens,
        "heads": [(layer, head) for layer in range(n_layers) for head in range(n_heads)],
        "columns": n_heads,
        "scores": {
            "previous token": previous,
            "first token": maps[:, :, 0].mean(-1),
            "entropy (nats)": -(maps * np.log(np.maximum(maps, 1e-30))).sum(-1).mean(-1),
        },
        "tint": previous,
        "ranks": np.argsort(np.argsort(-previous)),
        "label": "Attention of all heads",
        "tint_label": "previous token",
    }
