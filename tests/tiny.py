"""Tiny random models of several families, built in memory, and what each must be able to do.

One row per family in `FAMILIES`. Norm gains and biases are random (a one or a zero would hide a missing term), and
weights are large enough for every part to show in the logits. A row says which of `CAPABILITIES` must be missing and a
word their reason must contain; all others must be there. It also says what the family does to its logits after the
unembedding. Written from the families' papers and transformers' code, not from what our probe reports.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PROMPT = (7, 3, 250, 11, 7, 3, 99, 41, 250, 5, 18, 260)  # longer than every window below
WINDOW = 5
TEXT = "The cat sat on the mat. The dog sat on the log. One two three four, and then five: six! What is next?"


# What every model is asked for at load; a family has them all unless its row says otherwise.
CAPABILITIES = (
    "pattern",
    "pattern_writable",
    "scores",
    "resid_writable",
    "resid_mid",
    "head_output",
    "attn_out",
    "mlp_out",
    "rotary",
    "rows_sum_to_one",
    "replay",
    "readout",
    "kv_cache",
)


def _unchanged(logits: Any) -> Any:
    return logits


@dataclass(frozen=True)
class Family:
    config: Callable[[int], Any]  # vocabulary size -> transformers config
    missing: dict[str, str] = field(default_factory=dict)  # capability -> word in the reason
    facts: dict[str, Any] = field(default_factory=dict)  # fields of ModelConfig
    output: Callable[[Any], Any] = _unchanged  # unembedded stream -> logits: softcap or scale


def _llama_like(name: str, **more: Any) -> Callable[[int], Any]:
    def config(d_vocab: int) -> Any:
        import transformers

        shape = dict(num_hidden_layers=3, hidden_size=32, num_attention_heads=4, num_key_value_heads=2)
        shape |= dict(intermediate_size=48, max_position_embeddings=64, vocab_size=d_vocab)
        return getattr(transformers, name)(**shape | SPECIAL | more)

    return config


def _gpt_like(name: str, **more: Any) -> Callable[[int], Any]:
    """Families that spell the same shape in their own words."""

    def config(d_vocab: int) -> Any:
        import transformers

        return getattr(transformers, name)(vocab_size=d_vocab, **SPECIAL, **more)

    return config


def _softcap(limit: float) -> Callable[[Any], Any]:
    return lambda logits: limit * (logits / limit).tanh()


SPECIAL = dict(bos_token_id=0, eos_token_id=0, pad_token_id=0)
SHAPE = dict(num_hidden_layers=3, hidden_size=32, num_attention_heads=4)
GPT_SHAPE = dict(n_layer=3, n_embd=32, n_head=4, n_positions=64)

# Positions are added to the embedding or to the scores; or queries are rotated inside a step that has no hook.
NO_ROTATION = {"rotary": "rotated queries"}
# Attention and MLP both read the stream before the block: there is no stream between them.
SIDE_BY_SIDE = {"resid_mid": "side by side"}
# Attention runs inside transformers: its map can be seen, not replaced, and its scores are not shown.
READ_ONLY_MAPS = {"pattern_writable": "ignored", "scores": "already the attention map"}
SINKS = {"rows_sum_to_one": "attention sinks"}
WINDOWED = dict(sliding_window=WINDOW, head_dim=8)

FAMILIES = {
    "llama": Family(
        _llama_like("LlamaConfig"),
        facts=dict(family="llama", n_kv_heads=2, d_mlp=48, norm="RMSNorm", positions="rotary", gated_mlp=True)
        | dict(tied=False, activation="silu", sliding_window=None, logit_softcap=None),
    ),
    "mistral": Family(
        _llama_like("MistralConfig", **WINDOWED),
        facts=dict(family="mistral", sliding_window=WINDOW, d_head=8),
    ),
    "mixtral": Family(
        _llama_like("MixtralConfig", num_local_experts=4),
        facts=dict(family="mixtral", d_mlp=48, norm="RMSNorm", sliding_window=None),
    ),
    "qwen2": Family(
        _llama_like("Qwen2Config", sliding_window=WINDOW, use_sliding_window=False),  # as its published configs
        facts=dict(family="qwen2", n_kv_heads=2, sliding_window=None, tied=False),
    ),
    "qwen3": Family(
        _llama_like("Qwen3Config", head_dim=16),
        facts=dict(family="qwen3", d_head=16, norm="RMSNorm", activation="silu"),
    ),
    "gemma": Family(
        _llama_like("GemmaConfig", head_dim=16),
        facts=dict(family="gemma", d_head=16, tied=True, norm="RMSNorm", logit_softcap=None),
    ),
    "gemma2": Family(
        _llama_like("Gemma2Config", sliding_window=WINDOW, head_dim=16, final_logit_softcapping=2.0),
        facts=dict(family="gemma2", logit_softcap=2.0, d_head=16, tied=True, activation="gelu_pytorch_tanh"),
        output=_softcap(2.0),
    ),
    "gemma3": Family(
        _llama_like("Gemma3TextConfig", sliding_window=WINDOW, head_dim=16),
        facts=dict(family="gemma3_text", sliding_window=WINDOW, d_head=16, tied=True, logit_softcap=None),
    ),
    "olmo2": Family(
        _llama_like("Olmo2Config"),
        facts=dict(family="olmo2", norm="RMSNorm", n_kv_heads=2, tied=False),
    ),
    "granite": Family(
        _llama_like("GraniteConfig", logits_scaling=4.0, residual_multiplier=0.5, embedding_multiplier=3.0),
        facts=dict(family="granite", norm="RMSNorm", logit_softcap=None),
        output=lambda logits: logits / 4.0,
    ),
    "cohere": Family(
        _llama_like("CohereConfig", logit_scale=0.25),
        missing=SIDE_BY_SIDE,
        facts=dict(family="cohere", norm="LayerNorm", tied=True, positions="rotary", gated_mlp=True),
        output=lambda logits: 0.25 * logits,
    ),
    "stablelm": Family(
        _llama_like("StableLmConfig"),
        facts=dict(family="stablelm", norm="LayerNorm", gated_mlp=True, positions="rotary"),
    ),
    "smollm3": Family(
        _llama_like("SmolLM3Config", no_rope_layers=[1, 1, 1]),
        facts=dict(family="smollm3", tied=True, norm="RMSNorm"),
    ),
    "gpt_oss": Family(
        _llama_like("GptOssConfig", num_local_experts=4, **WINDOWED),
        missing=SINKS,
        facts=dict(family="gpt_oss", sliding_window=WINDOW),
    ),
    "phi3": Family(
        _llama_like("Phi3Config"),
        missing=NO_ROTATION,
        facts=dict(family="phi3", norm="RMSNorm", positions="rotary", n_kv_heads=2),
    ),
    "phi": Family(
        _gpt_like("PhiConfig", **SHAPE, intermediate_size=48, max_position_embeddings=64),
        missing=SIDE_BY_SIDE,
        facts=dict(family="phi", norm="LayerNorm", positions="rotary", gated_mlp=False, n_ctx=64),
    ),
    "gpt2": Family(
        _gpt_like("GPT2Config", **GPT_SHAPE),
        missing=NO_ROTATION,
        facts=dict(family="gpt2", n_kv_heads=4, d_mlp=128, norm="LayerNorm", positions="learned", gated_mlp=False)
        | dict(tied=True, activation="gelu_new", n_ctx=64),
    ),
    "gpt_neo": Family(
        _gpt_like(
            "GPTNeoConfig",
            num_layers=4,
            attention_types=[[["global", "local"], 2]],
            hidden_size=32,
            num_heads=4,
            max_position_embeddings=64,
            window_size=WINDOW,
        ),
        missing=NO_ROTATION | READ_ONLY_MAPS,
        facts=dict(family="gpt_neo", sliding_window=WINDOW, positions="learned", d_mlp=128),
    ),
    "gptj": Family(
        _gpt_like("GPTJConfig", **GPT_SHAPE, rotary_dim=4),
        missing=NO_ROTATION | READ_ONLY_MAPS | SIDE_BY_SIDE,
        facts=dict(family="gptj", positions="rotary", d_mlp=128, tied=False, norm="LayerNorm"),
    ),
    "gpt_neox": Family(
        _gpt_like("GPTNeoXConfig", **SHAPE, intermediate_size=48, max_position_embeddings=64),
        missing=NO_ROTATION | SIDE_BY_SIDE,
        facts=dict(family="gpt_neox", positions="rotary", d_mlp=48, norm="LayerNorm"),
    ),
    "opt": Family(
        _gpt_like("OPTConfig", **SHAPE, ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=64),
        missing=NO_ROTATION | READ_ONLY_MAPS,
        facts=dict(family="opt", positions="learned", d_mlp=48, activation="relu", tied=True, norm="LayerNorm"),
    ),
    "bloom": Family(
        _gpt_like("BloomConfig", n_layer=3, hidden_size=32, n_head=4),
        missing=NO_ROTATION,
        facts=dict(family="bloom", positions="alibi", d_mlp=128, activation="gelu"),
    ),
    "falcon": Family(
        _gpt_like("FalconConfig", **SHAPE, new_decoder_architecture=False, multi_query=True, parallel_attn=True),
        missing=NO_ROTATION | SIDE_BY_SIDE,
        facts=dict(family="falcon", n_kv_heads=1, positions="rotary", tied=True, norm="LayerNorm"),
    ),
}


def tiny_tokenizer() -> Any:
    """A byte-level BPE tokenizer trained on one line of text; adds no BOS."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        [TEXT],
        trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<|end|>"], initial_alphabet=sorted(alphabet), show_progress=False
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", pad_token="<|end|>")


def tiny_hf_model(family: str, *, seed: int = 0) -> Any:
    """A random transformers model of a family, eager attention, eval mode."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = FAMILIES[family].config(300)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
                else:
                    parameter.mul_(8)  # 0.16: about one over the root of the width
    return model
