"""Where are the parameters? Counted part by part from a config.json alone, without a model.

Every part is a product of a few whole numbers. `working` keeps these products, so that the page shows the arithmetic that gave
the total, not a second version of it.

Sources: Vaswani and others 2017, "Attention Is All You Need" (the block); Shazeer 2020, "GLU Variants Improve Transformer"
(three matrices); Ainslie and others 2023, "GQA" (fewer KV heads); the modelling files of transformers 5.23.

Identity: `total` is the sum of the parts, and the number of parameters of the model that transformers builds from the same
config, a tensor used twice counted once. `active` is the same with the experts that one token uses.

Limit: a count says nothing about what the parameters do. It is for the unquantised model, and for the families in
analyses/_architecture_families.py only.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from analyses._architecture import Architecture, read_architecture

Factors = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by part. Matrices and biases are kept apart; `attention` and `mlp` hold both."""

    total: int
    active: int  # that one token uses: fewer than the total where there are experts
    embedding: int
    position: int  # a learned table of positions
    projection: int  # between embedding and stream, where their widths differ (OPT-350M)
    query: int
    key: int
    value: int
    output: int
    attention_bias: int
    dense_mlp: int  # of layers without experts
    experts: int
    active_experts: int
    shared_expert: int
    mlp_bias: int
    router: int  # what chooses the experts, and the gate of the shared one
    norm: int
    unembedding: int  # 0 where the embedding is used for it
    unembedding_bias: int
    working: tuple[tuple[str, str, str, str, int, int], ...]  # part, what, letters, numbers, parameters, active ones

    @property
    def attention_matrices(self) -> int:
        """Q, K, V and O of all layers."""
        return self.query + self.key + self.value + self.output

    @property
    def mlp_matrices(self) -> int:
        """The matrices of all MLPs and experts."""
        return self.dense_mlp + self.experts + self.shared_expert

    @property
    def attention(self) -> int:
        """Q, K, V and O with their biases; norms of queries and keys count as norms."""
        return self.attention_matrices + self.attention_bias

    @property
    def mlp(self) -> int:
        """All matrices and biases of the MLPs, experts included; the router is not."""
        return self.mlp_matrices + self.mlp_bias

    @property
    def mlp_share(self) -> float:
        """Of the whole model, 0 to 1."""
        return self.mlp / self.total

    @property
    def mlp_share_of_blocks(self) -> float:
        """Of the matrices in the blocks, 0 to 1: what "two thirds" is said of."""
        return self.mlp_matrices / (self.mlp_matrices + self.attention_matrices)

    @property
    def active_block_matrices(self) -> int:
        """Weights of the blocks that multiply one token's vectors: attention, MLP, router, projections."""
        used = self.dense_mlp + self.active_experts + self.shared_expert
        return self.attention_matrices + used + self.router + self.projection

    def to_frame(self) -> Any:
        """A pandas table, one row per product: part, what, letters, numbers, parameters, active."""
        import pandas as pd

        return pd.DataFrame(self.working, columns=["part", "what", "letters", "numbers", "parameters", "active"])


def count_parameters(config: Any) -> ParameterCount:
    """Exact parameters of the model that a config describes.

    Args:
        config: mapping, text or bytes of a config.json, or an `Architecture`.

    Raises:
        ValueError: not a config.json, a family that is not known here, or a field that cannot be.
    """
    terms = _terms(read_architecture(config))
    working = tuple((part, what, *_written(all_), _value(all_), _value(used)) for part, what, all_, used in terms)
    sums = {name: sum(_value(term[2]) for term in terms if term[0] == name) for name in _PARTS}
    active_experts = sum(_value(term[3]) for term in terms if term[0] == "experts")
    total = sum(sums.values())
    return ParameterCount(
        total=total,
        active=total - sums["experts"] + active_experts,
        active_experts=active_experts,
        working=working,
        **sums,
    )


_PARTS = (
    "embedding position projection query key value output attention_bias dense_mlp experts shared_expert mlp_bias router "
    "norm unembedding unembedding_bias"
).split()
_Term = tuple[str, str, Factors, Factors]  # part, what, its factors, the factors of what one token uses


def _value(factors: Factors) -> int:
    return prod(number for _, number in factors)


def _written(factors: Factors) -> tuple[str, str]:
    return " × ".join(name for name, _ in factors), " × ".join(f"{number:,}" for _, number in factors)


def _term(part: str, what: str, *factors: tuple[str, int] | int, active: Factors | None = None) -> _Term:
    """A product; a bare number is written as itself."""
    named = tuple((str(factor), factor) if isinstance(factor, int) else factor for factor in factors)
    return part, what, named, named if active is None else active


def _terms(a: Architecture) -> list[_Term]:
    d, vocab, e = ("d", a.d_model), ("V", a.d_vocab), ("e", a.d_embedding)
    wide = d if a.d_embedding == a.d_model else e
    terms = [_term("embedding", "a vector per token of the vocabulary", vocab, wide)]
    if a.position_rows:
        terms.append(_term("position", "a vector per position", ("P", a.position_rows), d))
    if wide is e:
        terms.append(_term("projection", "embedding to stream and back", 2, d, e))
    terms += _attention_terms(a) + _mlp_terms(a) + _norm_terms(a)
    if not a.tied:
        terms.append(_term("unembedding", "a vector per token of the vocabulary, to read out", vocab, wide))
    if a.unembedding_bias:
        terms.append(_term("unembedding_bias", "a bias per logit", vocab))
    return [term for term in terms if _value(term[2])]


def _attention_terms(a: Architecture) -> list[_Term]:
    layers, d = ("L", a.n_layers), ("d", a.d_model)
    heads, kv_heads, size = ("H", a.n_heads), ("K", a.n_kv_heads), ("h", a.d_head)
    terms = [
        _term("query", "the stream to H queries of size h", layers, d, heads, size),
        _term("key", "the stream to K keys of size h", layers, d, kv_heads, size),
        _term("value", "the stream to K values of size h", layers, d, kv_heads, size),
        _term("output", "H mixtures of size h to the stream", layers, heads, size, d),
    ]
    if a.qkv_bias:
        terms.append(_term("attention_bias", "of Q", layers, heads, size))
        terms.append(_term("attention_bias", "of K and V", layers, 2, kv_heads, size))
    if a.output_bias:
        terms.append(_term("attention_bias", "of O", layers, d))
    return terms


def _mlp_terms(a: Architecture) -> list[_Term]:
    n_sparse = sum(a.sparse)
    mixed = 0 < n_sparse < a.n_layers
    dense = ("Ld" if mixed else "L", a.n_layers - n_sparse)
    sparse = ("Ls" if mixed else "L", n_sparse)
    d, f, fe, fs = ("d", a.d_model), ("f", a.d_mlp), ("fe", a.d_expert), ("fs", a.d_shared)
    matrices = 3 if a.gated else 2
    kinds = "gate, up and down" if a.gated else "up and down"
    one = (("3", 3), d, fe)
    terms = [_term("dense_mlp", kinds, dense, matrices, d, f)]
    if a.mlp_bias:
        terms.append(_term("mlp_bias", "of the matrices to f", dense, matrices - 1, f))
        terms.append(_term("mlp_bias", "of the matrix back", dense, d))
    if n_sparse:
        used = (sparse, ("k", a.n_active_experts), *one)
        terms.append(_term("experts", f"E of them, {kinds} each", sparse, ("E", a.n_experts), *one, active=used))
        terms.append(_term("router", "a score per expert", sparse, ("E", a.n_experts), d))
    if n_sparse and a.shared_expert:
        terms.append(_term("shared_expert", f"for every token: {kinds}", sparse, 3, d, fs))
        terms.append(_term("router", "how much of the shared expert", sparse, d))
    return terms


def _norm_terms(a: Architecture) -> list[_Term]:
    layers, d, size = ("L", a.n_layers), ("d", a.d_model), ("h", a.d_head)
    vectors = {"RMSNorm": 1, "LayerNorm": 2}.get(a.norm, 0)  # a gain; a gain and a bias; neither
    if not vectors and not a.qk_norm:
        return []
    kind = {1: "a gain", 2: "a gain and a bias"}.get(vectors, "")
    gains = () if vectors == 1 else (vectors,)
    terms = [_term("norm", f"in a block, {kind} each", layers, a.norms_per_block, *gains, d)]
    if a.qk_norm == "head":
        terms.append(_term("norm", "of queries and keys, shared by the heads", layers, 2, size))
    if a.qk_norm == "layernorm":
        terms.append(_term("norm", "of queries and keys, a gain and a bias", layers, 2, 2, size))
    if a.qk_norm == "width":
        terms.append(_term("norm", "of all queries", layers, ("H", a.n_heads), size))
        terms.append(_term("norm", "of all keys", layers, ("K", a.n_kv_heads), size))
    if a.embedding_norm:
        terms.append(_term("norm", f"of the embedding, {kind}", *gains, d))
    if a.final_norm:
        terms.append(_term("norm", f"the final one, {kind}", *gains, d))
    return terms
