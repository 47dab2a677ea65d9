"""Where does the norm stand? Before each part (pre-norm) or after each sum (post-norm), and what that does to gradients.

post: x = norm(x + part(x)), as in Vaswani et al. 2017, "Attention Is All You Need"; pre: x = x + part(norm(x)), as in GPT-2 and
in nearly every model since. With a norm after each sum nothing passes by unscaled: the stream is no longer a plain sum.
Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture": at initialisation the gradients of a post-norm
model near the output are large whatever the depth, which is why it needs a warm-up of the learning rate; those of a pre-norm
model shrink with the depth, as one over its root.

Here: random toy models (width 64, 4 heads, ReLU, 256 random tokens, 8 seeds), and the length of the gradient of the last block's
second MLP matrix. `MEASURED` was written by benchmarks/norm_order.py.

Limit: a toy at initialisation, with LayerNorm; it shows the claim about gradients, not which of the two learns better. Some
models put a norm on both sides (Gemma 2), or after the part but before the sum (OLMo 2), which keeps the sum plain.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WIDTH, HEADS, VOCABULARY, LENGTH, TEXTS = 64, 4, 100, 32, 8
DEPTHS, SEEDS = (2, 6, 12, 24), 8
FILE = Path(__file__).parent / "data" / "norm_order.json"
# "pre" and "post": per depth, the gradient's length in the last and in the first block, means over the seeds.
MEASURED: Mapping[str, Mapping[str, list[float]]] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}


def gradient_lengths(n_layers: int, *, pre: bool, seed: int) -> list[float]:
    """Length of the gradient of every block's second MLP matrix, in a random model that predicts random tokens.

    Args:
        n_layers: blocks of the toy.
        pre: norms before the parts; else after the sums.
        seed: of the weights, the tokens and the targets.
    """
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    with torch.enable_grad(), torch.random.fork_rng():
        torch.manual_seed(seed)
        embedding = nn.Embedding(VOCABULARY, WIDTH)
        blocks = [_block() for _ in range(n_layers)]
        final = nn.LayerNorm(WIDTH) if pre else nn.Identity()
        unembedding = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.xavier_normal_(unembedding.weight)
        x = embedding(torch.randint(0, VOCABULARY, (TEXTS, LENGTH)))
        for block in blocks:
            for norm, part in ((block["norm1"], _attention), (block["norm2"], _mlp)):
                x = x + part(block, norm(x)) if pre else norm(x + part(block, x))
        targets = torch.randint(0, VOCABULARY, (TEXTS * LENGTH,))
        cross_entropy(unembedding(final(x)).view(-1, VOCABULARY), targets).backward()
        return [float(block["out"].weight.grad.norm()) for block in blocks]


def _block() -> Any:
    from torch import nn

    block = nn.ModuleDict()
    for name, n_in, n_out in (
        ("qkv", WIDTH, 3 * WIDTH),
        ("o", WIDTH, WIDTH),
        ("in", WIDTH, 4 * WIDTH),
        ("out", 4 * WIDTH, WIDTH),
    ):
        block[name] = nn.Linear(n_in, n_out, bias=False)
    for name in ("qkv", "o", "in", "out"):
        nn.init.xavier_normal_(block[name].weight)
    block["norm1"], block["norm2"] = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
    return block


def _attention(block: Any, x: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = block["qkv"](x).view(TEXTS, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
    return block["o"](mixed.transpose(1, 2).reshape(TEXTS, LENGTH, WIDTH))


def _mlp(block: Any, x: Any) -> Any:
    return block["out"](block["in"](x).relu())
