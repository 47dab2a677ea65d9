"""Tiny random models of several families, built in memory, and what each must be able to do.

One row per family in `FAMILIES`. Norm gains and biases are random (a one or a zero would hide a missing term), and
weights are large enough for every part to show in the logits. A row says which capabilities must be missing and a word
their reason must contain; all others must be there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PROMPT = (7, 3, 250, 11, 7, 3, 99, 41, 250, 5, 18, 260)  # longer than every window below
WINDOW = 5
TEXT = "The cat sat on the mat. The dog sat on the log. One two three four, and then five: six! What is next?"


@dataclass(frozen=True)
class Family:
    config: Callable[[int], Any]  # vocabulary size -> transformers config
    missing: dict[str, str] = field(default_factory=dict)  # capability -> word in the reason
    facts: dict[str, Any] = field(default_factory=dict)  # fields of ModelConfig


def _llama_like(name: str, **more: Any) -> Callable[[int], Any]:
    def config(d_vocab: int) -> Any:
        import transformers

        shape = dict(num_hidden_layers=3, hidden_size=32, num_attention_heads=4, num_key_value_heads=2)
        shape |= dict(intermediate_size=48, max_position_embeddings=64, vocab_size=d_vocab)
        return getattr(transformers, name)(**shape | SPECIAL | more)

    return config


def _other(name: str, **fields: Any) -> Callable[[int], Any]:
    def config(d_vocab: int) -> Any:
        import transformers

        return getattr(transformers, name)(vocab_size=d_vocab, **SPECIAL, **fields)

    return config


SPECIAL = dict(bos_token_id=0, eos_token_id=0, pad_token_id=0)
NO_ROTATION = {"rotary": "rotated queries"}
READ_ONLY_MAPS = {"pattern_writable": "ignored", "scores": "already the attention map"}

FAMILIES = {
    "llama": Family(
        _llama_like("LlamaConfig"),
        facts=dict(family="llama", n_kv_heads=2, d_mlp=48, norm="RMSNorm", positions="rotary", gated_mlp=True)
        | dict(tied=False, activation="silu", sliding_window=None, logit_softcap=None),
    ),
    "gpt2": Family(
        _other("GPT2Config", n_layer=3, n_embd=32, n_head=4, n_positions=64),
        missing=NO_ROTATION,
        facts=dict(family="gpt2", n_kv_heads=4, d_mlp=128, norm="LayerNorm", positions="learned", gated_mlp=False)
        | dict(tied=True, activation="gelu_new", n_ctx=64),
    ),
    "mistral": Family(
        _llama_like("MistralConfig", sliding_window=WINDOW, head_dim=8),
        facts=dict(family="mistral", sliding_window=WINDOW, d_head=8),
    ),
    "gemma2": Family(
        _llama_like("Gemma2Config", sliding_window=WINDOW, head_dim=16, final_logit_softcapping=2.0),
        facts=dict(family="gemma2", logit_softcap=2.0, d_head=16, tied=True, activation="gelu_pytorch_tanh"),
    ),
    "gpt_neo": Family(
        _other(
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
    "gpt_neox": Family(
        _other(
            "GPTNeoXConfig",
            num_hidden_layers=3,
            hidden_size=32,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=64,
        ),
        missing=NO_ROTATION | {"resid_mid": "side by side"},
        facts=dict(family="gpt_neox", positions="rotary", d_mlp=48, norm="LayerNorm"),
    ),
    "bloom": Family(
        _other("BloomConfig", n_layer=3, hidden_size=32, n_head=4),
        missing=NO_ROTATION,
        facts=dict(family="bloom", positions="alibi", d_mlp=128, activation="gelu"),
    ),
    "gpt_oss": Family(
        _llama_like("GptOssConfig", num_local_experts=4, head_dim=8, sliding_window=WINDOW),
        missing={"rows_sum_to_one": "attention sinks"},
        facts=dict(family="gpt_oss", sliding_window=WINDOW),
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
