"""Numbers of the page "Anatomy" in words: one way to write bytes, one to write counts."""

from analyses._architecture import Architecture
from analyses.anatomy import ParameterCount

LETTERS = {
    "L": "layers",
    "Ld": "layers without experts",
    "Ls": "layers with experts",
    "d": "numbers per token in the stream (C)",
    "H": "query heads",
    "K": "KV heads",
    "h": "size of a head",
    "f": "width of the MLP",
    "V": "tokens of the vocabulary",
    "P": "rows of the position table",
    "E": "experts",
    "k": "experts that a token uses",
    "fe": "width of an expert",
    "fs": "width of the shared expert",
    "e": "width of the embedding",
}

PARTS = {
    "embedding": "embedding",
    "position": "positions",
    "projection": "projection",
    "query": "attention Q",
    "key": "attention K",
    "value": "attention V",
    "output": "attention O",
    "attention_bias": "attention biases",
    "dense_mlp": "MLP",
    "experts": "experts",
    "shared_expert": "shared expert",
    "mlp_bias": "MLP biases",
    "router": "router",
    "norm": "norms",
    "unembedding": "unembedding",
    "unembedding_bias": "unembedding bias",
}

_UNITS = ("", "k", "M", "G", "T", "P", "E")


def write_bytes(n_bytes: int) -> str:
    """A number of bytes in powers of 1024 and, where they differ in name, in powers of 1000: never one for the other."""
    if n_bytes < 1024:
        return f"{n_bytes:,} byte{'' if n_bytes == 1 else 's'}"
    binary = next(power for power in range(len(_UNITS) - 1, 0, -1) if n_bytes >= 1024**power)
    decimal = next(power for power in range(len(_UNITS) - 1, 0, -1) if n_bytes >= 1000**power)
    two = f"{_digits(n_bytes / 1024**binary)} {_UNITS[binary].upper()}iB"
    return f"{two} = {_digits(n_bytes / 1000**decimal)} {_UNITS[decimal]}B"


def three(value: float) -> str:
    """Three digits, more where the whole part has more."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def _digits(value: float) -> str:
    """Always three digits: 40.0, 320, and 1,023 where the unit holds so many."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:#.3g}".rstrip(".")


def share(part: int, whole: int) -> str:
    """A share in per cent, with three digits."""
    return f"{_digits(100 * part / whole)} %"


def operations(flops: float) -> str:
    """Floating-point operations with a decimal prefix."""
    power = next((power for power in range(len(_UNITS) - 1, 0, -1) if flops >= 1000**power), 0)
    return f"{three(flops / 1000**power)} {_UNITS[power]}FLOP"


def ask_words(name: str) -> list[str]:
    """The sentence before the answer is revealed; it holds no number of it."""
    return [
        f"Guess first, from the fields of {name} below: how many parameters, what share of them in the MLPs, "
        "how many bytes does one token add to the cache? Then reveal."
    ]


def answer_words(count: ParameterCount, token_bytes: int, guess_mlp: float | None) -> list[str]:
    """The sentence after it."""
    said = "" if guess_mlp is None else f" (you said {three(guess_mlp)} %)"
    uses = "" if count.active == count.total else f"; one token uses {count.active:,} of them"
    return [
        f"{count.total:,} parameters{uses}; the MLPs hold {share(count.mlp, count.total)}{said}. "
        f"One token adds {write_bytes(token_bytes)} to the cache."
    ]


def letters_of(architecture: Architecture, count: ParameterCount) -> str:
    """The letters that the working uses, with their numbers."""
    used = {letter for row in count.working for letter in row[2].split(" × ")} | {"K"}
    numbers = {
        letter: number
        for row in count.working
        for letter, number in zip(row[2].split(" × "), row[3].split(" × "), strict=True)
    }
    numbers |= {"K": f"{architecture.n_kv_heads:,}", "k": f"{architecture.n_active_experts:,}"}
    known = [letter for letter in LETTERS if letter in used or (letter == "k" and architecture.n_experts)]
    return " · ".join(f"{letter} = {numbers[letter]} {LETTERS[letter]}" for letter in known)
