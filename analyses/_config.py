"""What a loaded model is: read from its tensors and modules where these can say it, from its config otherwise."""

import hashlib
import json
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class ModelConfig:
    """Facts about a loaded model; plain values only, because they cross a wire as a dict."""

    name: str
    kind: str  # "embedded", "shipped", "local", "hub" or "memory"
    revision: str | None
    note: str  # what a reader of the numbers must know, e.g. that the weights were dequantised from 4 bits
    family: str  # model_type in the config, e.g. "llama"
    architecture: str  # e.g. "LlamaForCausalLM"
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_mlp: int  # width of one MLP, or of one expert
    d_vocab: int
    n_ctx: int  # tokens
    tied: bool  # the unembedding is the embedding: the same tensor
    norm: str  # "RMSNorm" or "LayerNorm"
    positions: str  # "rotary", "learned", "alibi" or "none"
    activation: str
    gated_mlp: bool
    sliding_window: int | None  # tokens that a windowed layer sees; None when every layer sees all
    logit_softcap: float | None
    n_parameters: int  # a tensor used twice counts once
    device: str
    dtype: str
    fingerprint: str  # changes with whatever decides the numbers
    checkpoints: tuple[int, ...] = ()  # training steps between which the loaded model can be switched, ascending
    checkpoint: int | None = None  # the step it is at, where that is known

    def at(self, checkpoint: int) -> "ModelConfig":
        """The same model at another training step: the fingerprint tells the two apart."""
        base = self.fingerprint.partition("@")[0]
        fingerprint = base if checkpoint == self.checkpoints[-1] else f"{base}@{checkpoint}"
        return replace(self, checkpoint=checkpoint, fingerprint=fingerprint)


@dataclass(frozen=True)
class Check:
    """One self-check made at load (analyses/capabilities.py)."""

    name: str
    passed: bool
    value: float | None  # None: it could not be measured
    limit: float
    sentence: str  # the outcome, for a reader who is new to the field


def read_config(bridge: Any, *, name: str, kind: str, revision: str | None = None, note: str = "") -> ModelConfig:
    """Facts about the model inside a bridge."""
    hf = bridge.original_model
    text = hf.config.get_text_config()
    embedding, unembedding = hf.get_input_embeddings().weight, hf.get_output_embeddings().weight
    tied = unembedding.data_ptr() == embedding.data_ptr()
    dtype = str(embedding.dtype).removeprefix("torch.")
    n_heads, d_model = text.num_attention_heads, text.hidden_size
    return ModelConfig(
        name=name,
        kind=kind,
        revision=revision,
        note=note,
        family=hf.config.model_type,
        architecture=type(hf).__name__,
        n_layers=len(bridge.blocks),
        n_heads=n_heads,
        n_kv_heads=bridge.cfg.n_key_value_heads or n_heads,
        d_model=d_model,
        d_head=getattr(text, "head_dim", None) or d_model // n_heads,
        # n_inner (GPT-2) may be there and None, which means four times the width.
        d_mlp=_first(text, "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner") or 4 * d_model,
        d_vocab=unembedding.shape[0],
        n_ctx=_first(text, "max_position_embeddings", "n_positions", "seq_length") or bridge.cfg.n_ctx,
        tied=tied,
        norm=_norm(hf),
        positions={"standard": "learned"}.get(
            bridge.cfg.positional_embedding_type, bridge.cfg.positional_embedding_type
        ),
        # Bloom and Falcon name no activation in older configs; both are built with GELU.
        activation=_first(text, "hidden_activation", "hidden_act", "activation_function", "activation") or "gelu",
        gated_mlp=bool(bridge.cfg.gated_mlp),
        sliding_window=_window(text),
        logit_softcap=_first(text, "final_logit_softcapping"),
        n_parameters=_count(hf, tied),
        device=str(embedding.device),
        dtype=dtype,
        fingerprint=_fingerprint(hf, name, revision),
    )


def _count(hf: Any, tied: bool) -> int:
    """Parameters of the model as transformers builds it, on the meta device, each tensor once.

    The loaded one cannot be counted: for joint QKV families the bridge keeps split copies beside the joint matrix.
    """
    import torch

    with torch.device("meta"):
        plain = type(hf)(hf.config)
    embedding, unembedding = plain.get_input_embeddings().weight, plain.get_output_embeddings().weight
    # The config says whether the two are tied; the tensors know.
    correction = unembedding.numel() * ((unembedding is embedding) - tied)
    return sum(p.numel() for p in plain.parameters()) + correction


def _first(config: Any, *names: str) -> Any:
    return next((v for v in (getattr(config, n, None) for n in names) if v is not None), None)


def _norm(hf: Any) -> str:
    """Kind of the norm that comes last: the final one. Bridges only wrap, so they are skipped."""
    names = [type(m).__name__ for m in hf.modules()]
    last = [n for n in names if "norm" in n.lower() and not n.endswith("Bridge")][-1]
    return "RMSNorm" if "rms" in last.lower() else "LayerNorm" if "layernorm" in last.lower() else last


def _window(text: Any) -> int | None:
    if getattr(text, "use_sliding_window", True) is False:  # Qwen2: a number is given but not used
        return None
    if "local" in (getattr(text, "attention_layers", None) or ()):  # GPT-Neo
        return text.window_size
    return getattr(text, "sliding_window", None)


def _fingerprint(hf: Any, name: str, revision: str | None) -> str:
    """Short digest of the source, the config, the libraries, the dtype, the device and a few values of each tensor."""
    config = hf.config.to_dict()
    for volatile in ("_name_or_path", "transformers_version"):
        config.pop(volatile, None)
    versions = [version(library) for library in ("torch", "transformers", "transformer-lens")]
    described = [name, revision, versions, str(hf.dtype), hf.device.type, config]
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for weight in hf.parameters():
        # Far-apart values: enough to tell checkpoints apart, little enough not to read a memory-mapped file.
        apart = [slice(None, None, max(1, n // 8)) for n in weight.shape]
        digest.update(weight.detach()[tuple(apart)].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
