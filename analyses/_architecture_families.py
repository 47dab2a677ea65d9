"""What a config.json leaves to the code of its family: default values, other names of fields, and the shape of a block.

Sources: the configuration and modelling files of transformers 5.23 (tests/analyses/test_anatomy.py builds every family and
compares). A family that is not in FAMILIES is refused, because its code may hold parts that no field names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """One model_type. A default of None means: derived by a rule (analyses/_architecture.py)."""

    name: str
    defaults: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # field -> the names it may have in the file
    nullable: frozenset[str] = frozenset()  # fields with a default that may be null, which means: derived
    norm: str = "RMSNorm"  # RMSNorm: a gain; LayerNorm: gain and bias; "LayerNorm without parameters": neither
    norms: int = 2  # per block, of the stream's width
    norm_place: str = "before"  # or "after", "both": where a block's norms stand
    embedding_norm: bool = False
    qk_norm: str = (
        ""  # "head": gains of one head's size; "width": of all heads together; "layernorm": gain and bias per head
    )
    qkv_bias: bool | str = False  # True, False, or the name of the field that says so
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    unembedding_bias: bool = False
    gated: bool = True  # three matrices (gate, up, down) instead of two
    positions: str = "rotary"
    position_offset: int = 0  # rows of the position table that no position uses
    parallel: bool | str = False  # attention and MLP read the same stream
    windows: str = ""  # which layers see a window only: "all", "late", "alternate early", "pattern"; "": none
    experts: str = ""  # "all": every layer has experts; "some": decoder_sparse_step and mlp_only_layers say which
    shared_expert: bool = False


def _defaults(
    layers: int, width: int, heads: int, mlp: int | None, vocab: int, context: int | None, **more: Any
) -> Any:
    shape = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads, "intermediate_size": mlp}
    return shape | {"vocab_size": vocab, "max_position_embeddings": context, "tie_word_embeddings": False} | more


_GQA = {"num_key_value_heads": None, "head_dim": None, "hidden_act": "silu"}
_WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "layer_types": None}
_SPARSE = {"decoder_sparse_step": 1, "mlp_only_layers": None}
_GEMMA = {"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "attention_bias": False, "tie_word_embeddings": True}
_GEMMA_NAMES = {"hidden_act": ("hidden_activation", "hidden_act")}
_BY_FIELD: dict[str, Any] = dict(qkv_bias="attention_bias", output_bias="attention_bias")
_BIASED: dict[str, Any] = dict(qkv_bias=True, output_bias=True, mlp_bias=True, norm="LayerNorm", gated=False)

FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        "GPT-2",
        _defaults(12, 768, 12, None, 50257, 1024, tie_word_embeddings=True, hidden_act="gelu_new"),
        names={
            "hidden_size": ("n_embd", "hidden_size"),
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "max_position_embeddings": ("n_positions", "max_position_embeddings"),
            "intermediate_size": ("n_inner",),
            "hidden_act": ("activation_function",),
        },
        positions="learned",
        **_BIASED,
    ),
    "gpt_neox": Family(
        "GPT-NeoX",
        _defaults(44, 6144, 64, 24576, 50432, 2048, hidden_act="gelu", attention_bias=True, use_parallel_residual=True),
        parallel="use_parallel_residual",
        **_BIASED | _BY_FIELD,
    ),
    "llama": Family(
        "Llama",
        _defaults(32, 4096, 32, 11008, 32000, 2048, **_GQA, attention_bias=False, mlp_bias=False),
        mlp_bias="mlp_bias",
        **_BY_FIELD,
    ),
    "mistral": Family(
        "Mistral",
        _defaults(32, 4096, 32, 14336, 32000, 131072, **_GQA | {"num_key_value_heads": 8}, sliding_window=4096),
        windows="all",
    ),
    "mixtral": Family(
        "Mixtral",
        _defaults(32, 4096, 32, 14336, 32000, 131072, **_GQA | {"num_key_value_heads": 8}, sliding_window=None)
        | {"num_experts": 8, "num_experts_per_tok": 2},
        names={"num_experts": ("num_local_experts", "num_experts")},
        windows="all",
        experts="all",
    ),
    "qwen2": Family(
        "Qwen2",
        _defaults(32, 4096, 32, 22016, 151936, 32768, **_GQA | {"num_key_value_heads": 32}, **_WINDOW),
        qkv_bias=True,
        nullable=frozenset({"num_key_value_heads"}),
        windows="late",
    ),
    "qwen2_moe": Family(
        "Qwen2-MoE",
        _defaults(24, 2048, 16, 5632, 151936, 32768, **_GQA | {"num_key_value_heads": 16}, **_WINDOW, **_SPARSE)
        | {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
        | {"shared_expert_intermediate_size": 5632, "qkv_bias": True},
        qkv_bias="qkv_bias",
        nullable=frozenset({"num_key_value_heads"}),
        windows="alternate early",
        experts="some",
        shared_expert=True,
    ),
    "qwen3": Family(
        "Qwen3",
        _defaults(32, 4096, 32, 22016, 151936, 32768, **_GQA | {"num_key_value_heads": 32, "head_dim": 128}, **_WINDOW)
        | {"attention_bias": False},
        nullable=frozenset({"num_key_value_heads"}),
        qk_norm="head",
        windows="late",
        **_BY_FIELD,
    ),
    "qwen3_moe": Family(
        "Qwen3-MoE",
        _defaults(24, 2048, 32, 6144, 151936, 32768, **_GQA | {"num_key_value_heads": 4}, **_SPARSE)
        | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "attention_bias": False}
        | {"use_sliding_window": False, "sliding_window": 4096},
        names={"num_experts": ("num_experts", "num_local_experts")},
        qk_norm="head",
        windows="all",
        experts="some",
        **_BY_FIELD,
    ),
    "gemma": Family(
        "Gemma",
        _defaults(28, 3072, 16, 24576, 256000, 8192, num_key_value_heads=16) | _GEMMA,
        names=_GEMMA_NAMES,
        **_BY_FIELD,
    ),
    "gemma2": Family(
        "Gemma 2",
        _defaults(26, 2304, 8, 9216, 256000, 8192, num_key_value_heads=4, sliding_window=4096, layer_types=None)
        | _GEMMA
        | {"sliding_window_pattern": 2},
        names=_GEMMA_NAMES | {"sliding_window_pattern": ()},  # every other layer, whatever the file says
        norms=4,
        norm_place="both",
        windows="pattern",
        **_BY_FIELD,
    ),
    "gemma3_text": Family(
        "Gemma 3 (text)",
        _defaults(26, 2304, 8, 9216, 262208, 131072, num_key_value_heads=4, sliding_window=4096, layer_types=None)
        | _GEMMA
        | {"sliding_window_pattern": 6},
        names=_GEMMA_NAMES,
        norms=4,
        norm_place="both",
        qk_norm="head",
        windows="pattern",
        **_BY_FIELD,
    ),
    "phi": Family(
        "Phi",
        _defaults(24, 2048, 32, 8192, 51200, 2048, **_GQA | {"hidden_act": "gelu_new"}, qk_layernorm=False),
        norms=1,
        qk_norm="layernorm",
        unembedding_bias=True,
        parallel=True,
        **_BIASED,
    ),
    "phi3": Family("Phi-3", _defaults(32, 3072, 32, 8192, 32064, 4096, **_GQA, sliding_window=None), windows="all"),
    "olmo": Family(
        "OLMo",
        _defaults(32, 4096, 32, 11008, 50304, 2048, **_GQA, attention_bias=False),
        norm="LayerNorm without parameters",
        **_BY_FIELD,
    ),
    "olmo2": Family(
        "OLMo-2",
        _defaults(32, 4096, 32, 11008, 50304, 2048, **_GQA, attention_bias=False),
        norm_place="after",
        qk_norm="width",
        **_BY_FIELD,
    ),
    "opt": Family(
        "OPT",
        _defaults(12, 768, 12, 3072, 50272, 2048, tie_word_embeddings=True, hidden_act="relu", word_embed_proj_dim=None)
        | {"enable_bias": True, "layer_norm_elementwise_affine": True}
        | {"do_layer_norm_before": True, "_remove_final_layer_norm": False},
        names={"intermediate_size": ("ffn_dim",), "hidden_act": ("activation_function",)},
        positions="learned",
        position_offset=2,
        **_BIASED | {"qkv_bias": "enable_bias", "output_bias": "enable_bias", "mlp_bias": "enable_bias"},
    ),
    "bloom": Family(
        "Bloom",
        _defaults(2, 64, 8, None, 250880, None, tie_word_embeddings=True, hidden_act="gelu"),
        names={
            "hidden_size": ("hidden_size", "n_embed"),
            "num_hidden_layers": ("n_layer", "num_hidden_layers"),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "max_position_embeddings": ("seq_length",),
            "intermediate_size": (),  # four times the width, always
            "hidden_act": (),
        },
        embedding_norm=True,
        positions="alibi",
        **_BIASED,
    ),
}

# Fields that carry architecture in some family. Where one stands in the file and the family does not read it, that is said.
CARRIES = frozenset(name for family in FAMILIES.values() for name in family.defaults) | frozenset(
    "num_local_experts n_inner ffn_dim n_routed_experts n_shared_experts first_k_dense_replace kv_lora_rank q_lora_rank "
    "qk_rope_head_dim qk_nope_head_dim v_head_dim num_nextn_predict_layers layer_types attention_chunk_size "
    "num_kv_shared_layers multi_query new_decoder_architecture qk_norm use_qk_norm use_bias bias attn_bias".split()
)

# Fields of transformers' configs that change neither the shape of a weight nor what the cache keeps.
HARMLESS = frozenset(
    "_name_or_path _attn_implementation architectures auto_map transformers_version torch_dtype dtype model_type "
    "use_cache return_dict output_attentions output_hidden_states output_router_logits chunk_size_feed_forward "
    "is_decoder is_encoder_decoder problem_type id2label label2id bos_token_id eos_token_id pad_token_id unk_token_id "
    "sep_token_id decoder_start_token_id initializer_range init_std rms_norm_eps layer_norm_eps layer_norm_epsilon "
    "attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop dropout layerdrop classifier_dropout "
    "rope_theta rope_scaling rope_parameters rope_interleaved rotary_pct rotary_emb_base partial_rotary_factor "
    "rope_local_base_freq original_max_position_embeddings n_ctx summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout scale_attn_weights scale_attn_by_inverse_layer_idx "
    "reorder_and_upcast_attn add_cross_attention task_specific_params pretraining_tp router_aux_loss_coef "
    "router_jitter_noise norm_topk_prob query_pre_attn_scalar final_logit_softcapping attn_logit_softcapping "
    "cache_implementation use_bidirectional_attention clip_qkv slow_but_exact activation_dropout prefix "
    "apply_residual_connection_post_layernorm attention_softmax_in_fp32 masked_softmax_fusion bias_dropout_fusion "
    "offset_alibi skip_bias_add skip_bias_add_qkv unk_token_id n_embed hidden_act hidden_activation "
    "activation_function is_llama_config mm_tokens_per_image boi_token_index eoi_token_index image_token_index "
    "text_config vision_config quantization_config pruned_heads _sliding_window_pattern embd_layer_norm "
    "use_cache_quantization max_window_layers gradient_checkpointing".split()
)
