"""Tiny configs of every family, plain and odd, and the models that transformers builds from them on the meta device."""

from typing import Any

_SHAPE = dict(num_hidden_layers=3, hidden_size=32, num_attention_heads=4, intermediate_size=48, vocab_size=100)
_LLAMA = _SHAPE | dict(num_key_value_heads=2, max_position_embeddings=64)
_GPT2 = dict(n_layer=3, n_embd=32, n_head=4, n_positions=64, vocab_size=100)
_OPT = {name: value for name, value in _SHAPE.items() if name != "intermediate_size"} | dict(ffn_dim=40)
_MOE = _LLAMA | dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20)
_SHARED = dict(shared_expert_intermediate_size=28)
_ODD = dict(head_dim=12, attention_bias=True)
_SPECIAL = dict(bos_token_id=0, eos_token_id=0, pad_token_id=0)

CASES: dict[str, dict[str, Any]] = {
    "gpt2": dict(model_type="gpt2", **_GPT2),
    "gpt2 untied, n_inner": dict(model_type="gpt2", n_inner=40, tie_word_embeddings=False, **_GPT2),
    "gpt2 in other words": dict(model_type="gpt2", **_LLAMA),
    "neox": dict(model_type="gpt_neox", **_SHAPE),
    "neox tied, no bias": dict(model_type="gpt_neox", attention_bias=False, tie_word_embeddings=True, **_SHAPE),
    "llama": dict(model_type="llama", **_SHAPE),
    "llama odd": dict(model_type="llama", mlp_bias=True, tie_word_embeddings=True, **_LLAMA | _ODD),
    "mistral": dict(model_type="mistral", **_LLAMA),
    "mistral head_dim": dict(model_type="mistral", **_LLAMA | dict(head_dim=10)),
    "mixtral": dict(model_type="mixtral", **_LLAMA),
    "mixtral odd": dict(model_type="mixtral", num_experts=3, tie_word_embeddings=True, **_LLAMA | dict(head_dim=6)),
    "qwen2": dict(model_type="qwen2", **_LLAMA | dict(num_key_value_heads=None)),
    "qwen2 tied, head_dim": dict(model_type="qwen2", tie_word_embeddings=True, **_LLAMA | dict(head_dim=12)),
    "qwen2 moe": dict(model_type="qwen2_moe", **_MOE | _SHARED),
    "qwen2 moe, some": dict(model_type="qwen2_moe", qkv_bias=False, decoder_sparse_step=2, **_MOE | _SHARED),
    "qwen2 moe, one dense": dict(model_type="qwen2_moe", mlp_only_layers=[0, 9], **_MOE | _SHARED),
    "qwen3": dict(model_type="qwen3", **_LLAMA | dict(num_key_value_heads=None)),
    "qwen3 odd": dict(model_type="qwen3", tie_word_embeddings=True, **_LLAMA | _ODD),
    "qwen3 moe": dict(model_type="qwen3_moe", **_MOE),
    "qwen3 moe odd": dict(model_type="qwen3_moe", mlp_only_layers=[1], **_MOE | _ODD),
    "gemma": dict(model_type="gemma", **_LLAMA),
    "gemma untied": dict(model_type="gemma", tie_word_embeddings=False, **_LLAMA | _ODD),
    "gemma2": dict(model_type="gemma2", **_LLAMA),
    "gemma2 untied": dict(model_type="gemma2", tie_word_embeddings=False, **_LLAMA | _ODD),
    "gemma3": dict(model_type="gemma3_text", **_LLAMA),
    "gemma3 untied": dict(model_type="gemma3_text", tie_word_embeddings=False, **_LLAMA | _ODD),
    "phi": dict(model_type="phi", **_LLAMA),
    "phi odd": dict(model_type="phi", qk_layernorm=True, tie_word_embeddings=True, **_LLAMA),
    "phi3": dict(model_type="phi3", **_SHAPE),
    "phi3 tied, GQA": dict(model_type="phi3", tie_word_embeddings=True, **_LLAMA),
    "olmo": dict(model_type="olmo", **_SHAPE),
    "olmo odd": dict(model_type="olmo", tie_word_embeddings=True, **_LLAMA | _ODD),
    "olmo2": dict(model_type="olmo2", **_SHAPE),
    "olmo2 odd": dict(model_type="olmo2", tie_word_embeddings=True, **_LLAMA | _ODD),
    "opt": dict(model_type="opt", **_OPT),
    "opt after": dict(model_type="opt", word_embed_proj_dim=20, do_layer_norm_before=False, enable_bias=False, **_OPT),
    "opt bare": dict(model_type="opt", layer_norm_elementwise_affine=False, _remove_final_layer_norm=True, **_OPT),
    "opt untied": dict(model_type="opt", word_embed_proj_dim=20, tie_word_embeddings=False, **_OPT),
    "bloom": dict(model_type="bloom", n_layer=3, hidden_size=32, n_head=4, vocab_size=100),
    "bloom untied": dict(
        model_type="bloom", n_layer=3, n_embed=32, n_head=4, vocab_size=100, tie_word_embeddings=False
    ),
}


def hf_config(config: dict[str, Any], **more: Any) -> Any:
    """The configuration object of transformers."""
    from transformers import CONFIG_MAPPING

    fields = _SPECIAL | config | more
    return CONFIG_MAPPING[fields.pop("model_type")](**fields)


def on_meta(config: dict[str, Any]) -> dict[str, Any]:
    """Name -> parameter of the model that transformers builds, without memory; a tensor used twice stands once."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf_config(config))
    model.tie_weights()
    return dict(model.named_parameters())  # torch leaves repeats out
