"""The loaded model in words a student understands: facts, self-checks, capabilities as rows of tables."""

from typing import Any

from app.backend.protocol import ModelInfo
from app.ui.token_text import powers

ACTIVATIONS = {"silu": "SiLU", "gelu": "GELU", "gelu_new": "GELU", "gelu_pytorch_tanh": "GELU", "relu": "ReLU"}

CAPABILITIES = {
    "pattern": "Where every head looks can be read",
    "resid_writable": "The stream can be changed between layers",
    "pattern_writable": "Where a head looks can be changed",
    "scores": "Attention scores before the softmax can be read",
    "resid_mid": "The stream between attention and MLP can be read",
    "head_output": "Single heads can be switched off",
    "attn_out": "What attention adds can be read and left out",
    "mlp_out": "What an MLP adds can be read and left out",
    "rotary": "Queries and keys after the rotation can be read",
    "rows_sum_to_one": "Attention rows sum to one",
    "replay": "Single blocks can be run again (fast sweeps)",
    "readout": "Any layer can be read as logits",
    "kv_cache": "Generation can keep keys and values",
}


def check_rows(model: ModelInfo) -> dict[str, list[Any]]:
    """One row per self-check."""
    return {
        "result": ["passed" if check.passed else "failed" for check in model.checks],
        "what was tried": [powers(check.sentence) for check in model.checks],
    }


def capability_rows(model: ModelInfo) -> dict[str, list[Any]]:
    """One row per capability."""
    rows = {
        "works": ["no" if reason else "yes" for reason in model.capabilities.values()],
        "what": [CAPABILITIES.get(name, name) for name in model.capabilities],
    }
    return rows | ({"why not": list(model.capabilities.values())} if any(model.capabilities.values()) else {})


def fact_rows(model: ModelInfo) -> dict[str, list[str]]:
    """One row per fact: its name, its value, what it means."""
    config = model.config
    share = config.n_heads // config.n_kv_heads if config.n_kv_heads else 1
    grouped = (
        f"{share} query heads share one key-value head (grouped-query attention)"
        if share > 1
        else "every head has its own keys and values"
    )
    width = config.d_mlp / config.d_model
    activation = ACTIVATIONS.get(config.activation, config.activation)
    matrices = "gated: three matrices" if config.gated_mlp else "two matrices"
    facts = [
        (
            "source",
            {
                "embedded": "comes with the app",
                "shipped": "comes with the app",
                "local": "a local folder",
                "hub": "the Hugging Face hub",
            }.get(config.kind, config.kind),
            config.note or ("as found in the folder" if config.kind == "local" else "as published"),
        ),
        ("family", f"{config.family} ({config.architecture})", "which published design it follows"),
        ("parameters", f"{config.n_parameters:,}", "numbers that were learned; shared ones count once"),
        ("layers (blocks)", f"{config.n_layers}", "each adds attention and an MLP to the stream, counted from zero"),
        ("attention heads", f"{config.n_heads} per layer", f"{config.d_head} numbers wide each"),
        ("key-value heads", f"{config.n_kv_heads} per layer", grouped),
        ("stream width (d_model)", f"{config.d_model:,}", "numbers that carry one token through all layers"),
        (
            "MLP width (d_mlp)",
            f"{config.d_mlp:,}",
            f"{width:.3g} times the stream; {matrices}; between them {activation}, a bent curve",
        ),
        ("context", f"{config.n_ctx:,} tokens", _window(config.sliding_window)),
        (
            "vocabulary",
            f"{config.d_vocab:,} tokens",
            f"{model.vocabulary.kind}: frequent sequences were merged into one token",
        ),
        (
            "embedding",
            "tied" if config.tied else "not tied",
            "the same matrix reads tokens in and out" if config.tied else "tokens are read in and out by two matrices",
        ),
        ("normalisation", config.norm, "brings the stream, or what is added to it, to one scale"),
        ("positions", config.positions, _positions(config.positions)),
        (
            "softcap",
            "none" if config.logit_softcap is None else f"{config.logit_softcap:g}",
            "no limit on the logits" if config.logit_softcap is None else "a limit that logits approach but never pass",
        ),
        ("device, number format", f"{config.device}, {config.dtype}", "where and with how many digits it computes"),
    ]
    return {
        "what": [row[0] for row in facts],
        "value": [row[1] for row in facts],
        "in words": [row[2] for row in facts],
    }


def _window(window: int | None) -> str:
    return "every layer sees all of it" if window is None else f"some or all layers see only the last {window:,} tokens"


def _positions(kind: str) -> str:
    return {
        "rotary": "queries and keys are turned by an angle that grows with the position; nothing is added to the stream",
        "learned": "a learned vector per position is added to the embedding",
        "alibi": "scores get a penalty that grows with the distance",
        "none": "order is known from the causal mask alone",
    }.get(kind, "how the model knows the order of its tokens")
