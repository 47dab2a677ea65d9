"""What does a config.json say a model is? Every field that carries the architecture, and how it was found.

A field is read under its name or under the family's own name for it, derived by a rule, or left to the default of the
family's configuration class in transformers 5.23. What cannot be known is refused or said in `remarks`, never guessed.

Limit: the file says shapes and switches. Code that a repository adds, weights and tokenizer are not in it.
"""

from dataclasses import dataclass
from typing import Any

from analyses._architecture_json import parse_config, shown
from analyses._architecture_reader import LARGEST, Reader, remarks_of, text_part

MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Architecture:
    """A decoder-only model's shape."""

    family: str  # model_type in the config
    family_name: str
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_mlp: int  # of a layer without experts
    d_vocab: int
    n_ctx: int | None  # None: the file does not say
    tied: bool  # one matrix reads tokens in and out
    activation: str
    gated: bool
    norm: str
    norms_per_block: int
    norm_place: str  # "before", "after" or "both"
    final_norm: bool
    embedding_norm: bool
    qk_norm: str  # "", "head", "width" or "layernorm" (see Family)
    positions: str  # "rotary", "learned" or "alibi"
    position_rows: int  # of the learned table; 0 without one
    parallel: bool  # attention and MLP read the same stream
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    unembedding_bias: bool
    d_embedding: int  # of the token embedding; differs from d_model in OPT-350M
    n_experts: int  # in a layer with experts; 0: none
    n_active_experts: int
    d_expert: int
    shared_expert: bool
    d_shared: int
    sparse: tuple[bool, ...]  # per layer: whether it has experts
    windows: tuple[int, ...]  # per layer: tokens it sees; 0: all of them
    found: tuple[tuple[str, str, str], ...]  # field, value, how it was found
    remarks: tuple[str, ...]  # what the file says that is not in the count


def read_architecture(config: Any) -> Architecture:
    """The architecture that a config.json describes.

    Args:
        config: text or bytes of a config.json, or the mapping in it.

    Raises:
        ValueError: not a config.json, a family that is not known here, or a field that cannot be.
    """
    if isinstance(config, Architecture):
        return config
    mapping, remarks = text_part(parse_config(config))
    return _build(Reader(mapping, remarks))


def _build(read: Reader) -> Architecture:
    family = read.family
    layers = read.whole("num_hidden_layers", high=MOST_LAYERS)
    d_model = read.whole("hidden_size")
    heads = read.whole("num_attention_heads")
    kv_heads, d_head = _heads(read, d_model, heads)
    d_mlp = read.whole("intermediate_size", (4 * d_model, f"4 × hidden_size = 4 × {d_model:,} = {4 * d_model:,}"))
    d_vocab = read.whole("vocab_size")
    context = read.whole("max_position_embeddings") if _says_context(read) else None
    experts = _experts(read, layers, d_mlp)
    learned = family.positions == "learned"
    affine = read.flag("layer_norm_elementwise_affine") if read.has("layer_norm_elementwise_affine") else True
    first = read.flag("do_layer_norm_before") if read.has("do_layer_norm_before") else True
    removed = read.has("_remove_final_layer_norm") and read.flag("_remove_final_layer_norm")
    final = first and not removed
    qk_norm = family.qk_norm if not read.has("qk_layernorm") or read.flag("qk_layernorm") else ""
    same = (d_model, f"as wide as the stream: {d_model:,}")
    shape = dict(
        family=read.model_type,
        family_name=family.name,
        n_layers=layers,
        d_model=d_model,
        n_heads=heads,
        n_kv_heads=kv_heads,
        d_head=d_head,
        d_mlp=d_mlp,
        d_vocab=d_vocab,
        n_ctx=context,
        tied=read.flag("tie_word_embeddings"),
        activation=read.word("hidden_act"),
        gated=family.gated,
        norm=family.norm if affine else "LayerNorm without parameters",
        norms_per_block=family.norms,
        norm_place=family.norm_place if first else "after",
        final_norm=final,
        embedding_norm=family.embedding_norm,
        qk_norm=qk_norm,
        positions=family.positions,
        position_rows=(context or 0) + family.position_offset if learned else 0,
        parallel=read.flag(family.parallel),
        qkv_bias=read.flag(family.qkv_bias),
        output_bias=_again(read, family.output_bias, family.qkv_bias),
        mlp_bias=_again(read, family.mlp_bias, family.qkv_bias),
        unembedding_bias=family.unembedding_bias,
        d_embedding=read.whole("word_embed_proj_dim", same) if read.has("word_embed_proj_dim") else d_model,
        windows=_windows(read, layers),
    )
    remarks = remarks_of(read)
    return Architecture(**shape, **experts, found=tuple(read.found), remarks=tuple(remarks))


def _again(read: Reader, field: bool | str, before: bool | str) -> bool:
    """A flag that may have been read and noted already."""
    return read.raw(field) if isinstance(field, str) and field == before else read.flag(field)


def _says_context(read: Reader) -> bool:
    """Bloom's positions have no table, so its file need not name a context."""
    known = read.family.defaults["max_position_embeddings"] is not None
    if known or read.raw("max_position_embeddings") is not None:
        return True
    read.note("max_position_embeddings", "not said", "not in the file, and ALiBi needs none")
    return False


def _heads(read: Reader, d_model: int, heads: int) -> tuple[int, int]:
    """KV heads and the size of one head."""
    kv_heads = heads
    if read.has("num_key_value_heads"):
        rule = (heads, f"as many as num_attention_heads = {heads:,}")
        kv_heads = read.whole("num_key_value_heads", rule)
    each = d_model // heads
    rounded = "" if d_model % heads == 0 else ", rounded down"
    rule = (each, f"hidden_size / num_attention_heads = {d_model:,} / {heads:,} = {each:,}{rounded}")
    fixed = not read.has("head_dim")
    if heads % kv_heads:
        raise ValueError(
            f"needs num_attention_heads to be a multiple of num_key_value_heads; found {heads:,} and {kv_heads:,}; "
            "correct one of them."
        )
    if fixed and rounded:
        raise ValueError(
            f"needs hidden_size to be a multiple of num_attention_heads in {read.family.name}; found {d_model:,} and "
            f"{heads:,}; correct one of them."
        )
    if not fixed:
        return kv_heads, read.whole("head_dim", rule)
    read.note("head_dim", f"{each:,}", f"derived: {rule[1]}")
    return kv_heads, each


def _experts(read: Reader, layers: int, d_mlp: int) -> dict[str, Any]:
    """The fields of layers with experts."""
    none = dict(n_experts=0, n_active_experts=0, d_expert=0, shared_expert=False, d_shared=0)
    if not read.family.experts:
        return none | {"sparse": (False,) * layers}
    some = read.family.experts == "some"
    n_experts = read.whole("num_experts", low=0 if some else 1)
    active = read.whole("num_experts_per_tok")
    if n_experts and active > n_experts:
        raise ValueError(
            f"needs num_experts_per_tok of at most num_experts; found {active:,} of {n_experts:,}; correct one of them."
        )
    d_expert = read.whole("moe_intermediate_size") if some else d_mlp
    shared = read.family.shared_expert
    d_shared = read.whole("shared_expert_intermediate_size", low=0) if shared else 0
    sparse = (True,) * layers
    if some:
        step = read.whole("decoder_sparse_step", high=LARGEST)
        dense = _layer_list(read, "mlp_only_layers")
        sparse = tuple(layer not in dense and n_experts > 0 and (layer + 1) % step == 0 for layer in range(layers))
    if not any(sparse):
        return none | {"sparse": sparse}
    return dict(
        n_experts=n_experts,
        n_active_experts=active,
        d_expert=d_expert,
        shared_expert=shared,
        d_shared=d_shared,
        sparse=sparse,
    )


def _layer_list(read: Reader, field: str) -> frozenset[int]:
    value = read.raw(field)
    value = [] if value is None else value
    if not isinstance(value, (list, tuple)) or not all(type(item) is int for item in value):
        raise ValueError(f"needs {field} to be a list of layers; found {shown(value)}; correct that field.")
    read.note(field, f"{len(value)} layers" if value else "none", "read" if field in read.config else "default: none")
    return frozenset(value)


def _windows(read: Reader, layers: int) -> tuple[int, ...]:
    """Per layer, how many tokens its attention sees; 0 for all."""
    rule = read.family.windows
    everything = (0,) * layers
    if not rule or (read.has("use_sliding_window") and not read.flag("use_sliding_window")):
        read.read_names.update(("sliding_window", "layer_types", "max_window_layers") if rule else ())
        return everything
    kinds = read.raw("layer_types") if read.has("layer_types") else None
    if kinds is not None:
        windowed = _layer_types(kinds, layers)
        read.note("layer_types", f"{sum(windowed)} of {layers} layers see a window", "read")
    elif rule == "all":
        windowed = (True,) * layers
    elif rule == "pattern":
        every = read.whole("sliding_window_pattern")
        windowed = tuple((layer + 1) % every != 0 for layer in range(layers))
    else:
        border = read.whole("max_window_layers", low=0)
        late = tuple(layer >= border for layer in range(layers))
        early = tuple((layer + 1) % 2 != 0 and layer < border for layer in range(layers))
        windowed = late if rule == "late" else early
    if not any(windowed):
        return everything
    if read.raw("sliding_window") is None and rule == "all":
        read.note("sliding_window", "null", "no window: every layer sees all tokens")
        return everything
    window = read.whole("sliding_window")
    return tuple(window if inside else 0 for inside in windowed)


def _layer_types(kinds: Any, layers: int) -> tuple[bool, ...]:
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, (list, tuple)) or len(kinds) != layers or not all(kind in known for kind in kinds):
        raise ValueError(
            f"needs layer_types to be a list of {layers:,} names, each full_attention or sliding_attention; "
            f"found {shown(kinds)}; correct that field."
        )
    return tuple(kind == "sliding_attention" for kind in kinds)
