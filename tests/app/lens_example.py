"""Lenses made up for the tests of the lens grid; they compress worse than real ones."""

import re

import numpy as np

WORDS = b"the quick brown fox jumps over a lazy dog and then it sleeps in the warm sun for hours"
NASTY = [b"<s>a<b>c</b>$x$", b"\xf0\x9f", b"\x99\x82", b"\n", b"\x00", b" The", b"<img src=x onerror=alert(1)>"]
NASTY += [b"</script><script>alert(2)</script>", "\u202eright".encode(), "مرحبا".encode(), b"&lt;", b"w" * 300, b""]


def pieces_of(i):
    """The bytes of a token id."""
    return NASTY[i] if i < len(NASTY) else b" " + WORDS.split()[i % 17] + str(i).encode()


def lens(n_rows=31, n_columns=128, k=5, n_tokens=49_152):
    """Arguments of `lens_grid` for a lens that grows sure with depth, from few frequent and many rare tokens."""
    random = np.random.default_rng(0)
    shape = (n_rows, n_columns)
    logits = random.gumbel(size=(*shape, k + 4)) * np.linspace(1, 4, n_rows)[:, None, None]
    logits = np.sort(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[..., ::-1][..., :k].astype(np.float32)
    # SmolLM2's lens of 128 positions has 612 different tokens in its top five; here they are twice as many.
    ids = (1_300 ** random.random((*shape, k))).astype(np.int64) - 1
    rank = (n_tokens ** random.random(shape)).astype(np.int64) - 1
    return {
        "rows": ["embedding", *(f"after {i}" for i in range(n_rows - 1))][:n_rows],
        "columns": (re.findall(rb" ?\w+", WORDS) * (n_columns // 10 + 1))[:n_columns],
        "positions": range(n_columns),
        "top_ids": ids,
        "top_log_probability": logits,
        "pieces": pieces_of,
        "values": {
            "probability of ·the": np.exp(-12 * random.random(shape)).astype(np.float32),
            "entropy": (15 * random.random(shape)).astype(np.float32),
            "rank": rank,
            "KL to the last layer": np.exp(3 - 9 * random.random(shape)).astype(np.float32),
        },
        "shade": np.exp(logits[..., 0]),
        "legend": ("0 %", "100 %"),
        "label": "Logit lens",
        "target": rank == 0,
        "target_label": "·the",
        "units": {"probability of ·the": "%", "entropy": "bits", "KL to the last layer": "nats"},
        "measure": "probability of the token shown",
    }


def nasty():
    """Every hostile token as column and as content, on a diagonal."""
    n = len(NASTY)
    made = lens(n_rows=4, n_columns=n, k=3)
    ids = (np.arange(n)[None, :, None] + np.arange(3)) % n
    return made | {"columns": NASTY, "top_ids": np.broadcast_to(ids, (4, n, 3)).copy(), "target_label": "<b>x</b>"}
