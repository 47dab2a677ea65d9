"""What does it take to run a model of this shape? Memory, cache, operations and bounds, from its config alone.

Sources: Kwon and others 2023, "PagedAttention" (the cache is what limits the users of one card); Williams, Waterman and
Patterson 2009, "Roofline"; Pope and others 2022, "Efficiently Scaling Transformer Inference" (prefill and decode); the data
sheets named in CARDS.

Identities: the cache is the sum over layers of keys and values of the tokens that the layer still sees, equal to what a cache
of transformers holds; operations equal torch's FlopCounterMode to the last digit.

Limit: bounds from arithmetic. Real servers reach a fraction of them. Not counted: activations, scales of quantised weights,
memory that is lost to fragmentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyses._architecture import read_architecture
from analyses._architecture_json import shown
from analyses.anatomy import count_parameters

# Bits per weight. The 4-bit formats in use add scales: 4.25 to 5 bits per weight in files of this kind.
BITS: Mapping[str, int] = {"float32": 32, "bfloat16": 16, "int8": 8, "4 bits": 4}
RESERVE = (
    0.1  # of a card, kept free for activations and the driver: what vLLM keeps by default (gpu_memory_utilization 0.9)
)
GIB = 2**30


@dataclass(frozen=True)
class Card:
    """An accelerator, by its maker's data sheet."""

    gib: int  # data sheets write GB; drivers report GiB of that number, or a little less (81,920 MiB on an A100 80GB)
    bytes_per_second: float
    flops_per_second: float  # bfloat16 with float32 sums, dense: half of what sheets print "with sparsity"
    source: str


CARDS: Mapping[str, Card] = {
    "NVIDIA H100 SXM": Card(80, 3.35e12, 989e12, "NVIDIA H100 Tensor Core GPU data sheet"),
    "NVIDIA H200 SXM": Card(141, 4.8e12, 989e12, "NVIDIA H200 Tensor Core GPU data sheet"),
    "NVIDIA A100 SXM 80GB": Card(80, 2.039e12, 312e12, "NVIDIA A100 Tensor Core GPU data sheet"),
    "NVIDIA L4": Card(24, 0.3e12, 121e12, "NVIDIA L4 Tensor Core GPU data sheet"),
    "NVIDIA RTX 4090": Card(24, 1.008e12, 165.2e12, "NVIDIA Ada GPU architecture white paper"),
    "AMD MI300X": Card(192, 5.3e12, 1307.4e12, "AMD Instinct MI300X data sheet"),
}


def kv_cache_bytes(config: Any, n_tokens: Any, users: Any = 1, bytes_per_value: Any = 2) -> int:
    """Bytes of keys and values that a cache holds.

    A layer with a sliding window keeps its window only. (transformers' dynamic cache drops one token more between two
    steps; while a step is computed the whole window is there.)

    Args:
        config: as for `count_parameters`.
        n_tokens: of each user's text.
        users: texts kept at the same time.
        bytes_per_value: 2 for bfloat16, 4 for float32, 1 for 8 bits.

    Raises:
        ValueError: as `count_parameters`, or a number that is not a whole one above zero.
    """
    architecture = read_architecture(config)
    _whole(n_tokens=n_tokens, users=users, bytes_per_value=bytes_per_value)
    kept = sum(min(n_tokens, window) if window else n_tokens for window in architecture.windows)
    return users * kept * 2 * architecture.n_kv_heads * architecture.d_head * bytes_per_value


def multi_head_cache_bytes(config: Any, n_tokens: int, users: int = 1, bytes_per_value: int = 2) -> int:
    """The same if every query head had its own key and value head."""
    a = read_architecture(config)
    return kv_cache_bytes(a, n_tokens, users, bytes_per_value) // a.n_kv_heads * a.n_heads


def weight_bytes(config: Any, stored: str = "bfloat16") -> int:
    """Bytes of all parameters in a number format of BITS; scales of quantised formats are not counted.

    Raises:
        ValueError: as `count_parameters`, or an unknown format.
    """
    if stored not in BITS:
        raise ValueError(f"needs a number format of {', '.join(BITS)}; found {shown(stored)}; choose one of these.")
    return -(-count_parameters(config).total * BITS[stored] // 8)


def users_that_fit(
    config: Any, *, card_gib: Any, n_tokens: Any, stored: str = "bfloat16", bytes_per_value: int = 2
) -> int:
    """Users with `n_tokens` each whose caches fit beside the weights on one card, `RESERVE` of it kept free.

    Raises:
        ValueError: as `kv_cache_bytes`, or a card without memory.
    """
    if not isinstance(card_gib, (int, float)) or not 0 < card_gib <= 10**6:
        raise ValueError(f"needs a card of 1 to 1,000,000 GiB; found {shown(card_gib)}; correct the number.")
    room = int(card_gib * (1 - RESERVE) * GIB) - weight_bytes(config, stored)
    return max(0, room // kv_cache_bytes(config, n_tokens, 1, bytes_per_value))


def prefill_flops(config: Any, n_tokens: int) -> int:
    """Operations of one forward pass over `n_tokens`, as eager attention computes it: all pairs, a readout at every token.

    A multiplication and an addition are two operations. Norms, softmax and rotations are not counted.
    """
    a, count = read_architecture(config), count_parameters(config)
    _whole(n_tokens=n_tokens)
    matrices = count.active_block_matrices + a.d_vocab * a.d_embedding
    return 2 * n_tokens * matrices + 4 * a.n_layers * a.n_heads * a.d_head * n_tokens**2


def causal_prefill_flops(config: Any, n_tokens: int) -> int:
    """Operations of one prompt where masked pairs are spared and the last token alone is read out.

    Not the least possible: in the last block, earlier tokens need their keys and values alone.
    """
    a, count = read_architecture(config), count_parameters(config)
    _whole(n_tokens=n_tokens)
    pairs = sum(_pairs(n_tokens, window or n_tokens) for window in a.windows)
    matrices = n_tokens * count.active_block_matrices + a.d_vocab * a.d_embedding
    return 2 * matrices + 4 * a.n_heads * a.d_head * pairs


def decode_flops(config: Any, context: int) -> int:
    """Operations of one more token, when `context` tokens are seen, itself included."""
    a, count = read_architecture(config), count_parameters(config)
    _whole(context=context)
    seen = sum(min(context, window) if window else context for window in a.windows)
    return 2 * (count.active_block_matrices + a.d_vocab * a.d_embedding) + 4 * a.n_heads * a.d_head * seen


def read_per_step_bytes(config: Any, stored: str = "bfloat16") -> int:
    """Weights that one decode step must read: all active ones, of an untied embedding only a row, of positions too.

    For a batch of several users a model with experts reads more, up to all of them.
    """
    a, count = read_architecture(config), count_parameters(config)
    looked_up = count.position + (0 if a.tied else count.embedding)
    return -(-(count.active - looked_up) * BITS[stored] // 8)


def decode_bound(
    config: Any, card: Card, *, context: int, users: int = 1, stored: str = "bfloat16", bytes_per_value: int = 2
) -> float:
    """Tokens per second, all users together, that the card's bandwidth and its arithmetic allow at most."""
    moved = read_per_step_bytes(config, stored) + kv_cache_bytes(config, context, users, bytes_per_value)
    seconds = max(moved / card.bytes_per_second, users * decode_flops(config, context) / card.flops_per_second)
    return users / seconds


def intensity(
    config: Any, *, context: int, users: int = 1, stored: str = "bfloat16", bytes_per_value: int = 2
) -> float:
    """Operations per byte moved in a decode step; below a card's ridge its bandwidth is the limit."""
    moved = read_per_step_bytes(config, stored) + kv_cache_bytes(config, context, users, bytes_per_value)
    return users * decode_flops(config, context) / moved


def ridge(card: Card) -> float:
    """Operations per byte at which a card's arithmetic becomes the limit."""
    return card.flops_per_second / card.bytes_per_second


def _pairs(n_tokens: int, window: int) -> int:
    """Pairs of a token and what it sees, itself included."""
    full = min(n_tokens, window)
    return full * (full + 1) // 2 + (n_tokens - full) * window


def _whole(**numbers: Any) -> None:
    for name, number in numbers.items():
        if type(number) is not int or not 1 <= number <= 10**12:
            raise ValueError(f"needs {name} to be a whole number above zero; found {shown(number)}; correct it.")
