"""What is particular to TransformerBridge 4.3: hook names, one wrong cache argument, and replaying single blocks.

Only analyses/model.py uses this file.
"""

import copy
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from jaxtyping import Float

from analyses._source import SourceError

# What an analysis may read or change in one block, and how the bridge spells it (`blocks.<layer>.` goes in front).
POINTS: Mapping[str, str] = {
    "resid_pre": "hook_resid_pre",  # [batch, pos, d_model] the stream before the block
    "resid_mid": "hook_resid_mid",  # [batch, pos, d_model] after attention, before the MLP
    "resid_post": "hook_resid_post",  # [batch, pos, d_model] after the block
    "attn_out": "hook_attn_out",  # [batch, pos, d_model] what attention adds
    "mlp_out": "hook_mlp_out",  # [batch, pos, d_model] what the MLP adds
    "scores": "attn.hook_attn_scores",  # [batch, head, query, key] before the softmax, masked with the lowest float
    "pattern": "attn.hook_pattern",  # [batch, head, query, key] after the softmax
    "head_output": "attn.hook_z",  # [batch, pos, head, d_head] before the output matrix
    "query": "attn.hook_q",  # [batch, pos, head, d_head] before rotation
    "key": "attn.hook_k",  # [batch, pos, kv_head, d_head] before rotation, not repeated per query head
    "value": "attn.hook_v",  # [batch, pos, kv_head, d_head]
    "rotated_query": "attn.hook_rot_q",  # [batch, pos, head, d_head]
    "rotated_key": "attn.hook_rot_k",  # [batch, pos, kv_head, d_head]
}

# transformers builds a model under a process-wide "meta" device: of two that load at the same time, one may end up without data.
_one_boot = threading.Lock()


def guard_cache_argument() -> None:
    """Let the bridge's attention find its cache under the name `cache` too. Idempotent.

    transformers 5.24 renamed the argument `past_key_values` to `cache`. TransformerLens 4.3.0 reads only the old name:
    the cache stays empty, every new token attends to itself alone, and nothing is raised ("Paris-------").
    """
    from transformer_lens.model_bridge.generalized_components.attention import AttentionBridge

    original = AttentionBridge._update_kv_cache
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def update(self: Any, k: Any, v: Any, **named: Any) -> Any:
        if named.get("past_key_values") is None and named.get("layer_past") is None:
            named["past_key_values"] = named.get("cache")
        return original(self, k, v, **named)

    AttentionBridge._update_kv_cache = update


def lighten() -> None:
    """Spare what a forward pass without hooks does not need; the numbers stay the same bits. Idempotent.

    TransformerLens 4.3.0 computes every norm twice, once for two hooks that hardly anybody uses; it asks each part whether its
    weights lie on another device, which ours never do; it calls every hook point, also those where nobody waits; and it reads the
    signature of every block's forward anew to see which arguments the block takes. For one new token with a cache, this took a
    quarter of the time (docs/log.md).
    """
    from torch.nn import Module
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
    from transformer_lens.model_bridge.generalized_components.block import BlockBridge
    from transformer_lens.model_bridge.generalized_components.normalization import NormalizationBridge

    whole_norm, whole_call = NormalizationBridge._hf_autograd_forward_with_hooks, GeneralizedComponent.__call__
    whole_filter = BlockBridge._filter_kwargs_for_forward
    if hasattr(whole_norm, "__wrapped__"):
        return

    @functools.wraps(whole_norm)
    def norm(self: Any, x: Any) -> Any:
        if not (_quiet(self.hook_scale) and _quiet(self.hook_normalized)):
            return whole_norm(self, x)
        result = self.original_component(x)
        return result if result.dtype == x.dtype else result.to(x.dtype)

    @functools.wraps(whole_call)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        own = self._modules.get("_original_component")
        if own is None or "_hf_hook" not in own.__dict__:  # accelerate's mark on weights that lie elsewhere
            return Module.__call__(self, *args, **named)
        return whole_call(self, *args, **named)

    def point(self: Any, x: Any) -> Any:
        return x if _quiet(self) else Module.__call__(self, x)

    @functools.wraps(whole_filter)
    def accepted(self: Any, named: dict[str, Any], n_args: int = 0) -> dict[str, Any]:
        own = self._modules.get("_original_component")
        if own is not None and "forward" not in own.__dict__ and _takes_any(type(own).forward):
            return named
        return whole_filter(self, named, n_args)

    NormalizationBridge._hf_autograd_forward_with_hooks = norm
    GeneralizedComponent.__call__ = call
    BlockBridge._filter_kwargs_for_forward = accepted
    HookPoint.__call__ = point


@functools.cache
def _takes_any(function: Callable[..., Any]) -> bool:
    """Whether a function takes keywords of any name."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _quiet(point: Any) -> bool:
    """Whether nothing hangs on a hook point, neither torch's own hooks nor TransformerLens'."""
    return not (point._forward_hooks or point._forward_pre_hooks or point._backward_hooks or point._backward_pre_hooks)


def check_family(architecture: str, model_type: str) -> str:
    """The bridge's name of a family.

    Args:
        architecture: as in config.json, "" when it names none.
        model_type: as in config.json.

    Raises:
        SourceError: a family that the bridge does not know.
    """
    from transformer_lens.model_bridge.sources._hf_format import determine_architecture_from_hf_config

    try:
        return determine_architecture_from_hf_config(
            SimpleNamespace(architectures=[architecture], model_type=model_type)
        )
    except ValueError as error:
        raise _unknown(model_type) from error


def boot(folder: str, *, device: str, dtype: Any) -> Any:
    """Bridge of a folder in Hugging Face format; its weights stay memory-mapped. Never runs code from the folder.

    Raises:
        SourceError: a family that the bridge does not know, one without attention, or weights that lack tensors.
    """
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.model_bridge.sources.transformers import helpers
    from transformers import AutoConfig

    guard_cache_argument()
    lighten()
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    architecture = check_family((config.architectures or [""])[0], config.model_type)
    loader = _Complete(helpers.get_hf_model_class_for_architecture(architecture))
    with _one_boot:
        bridge = TransformerBridge.boot_transformers(
            folder, device=device, dtype=dtype, trust_remote_code=False, model_class=loader
        )
    return _with_attention(bridge, config)


class _Complete:
    """Stands in for a model class of transformers, which gives tensors it does not find random values and only logs it."""

    def __init__(self, model_class: Any) -> None:
        self._model_class = model_class

    def from_pretrained(self, folder: str, **options: Any) -> Any:
        model, info = self._model_class.from_pretrained(
            folder, output_loading_info=True, use_safetensors=True, **options
        )
        if missing := sorted(info["missing_keys"]):
            raise SourceError(
                f"needs a tensor for every part that config.json describes; found none for {missing[0]} "
                f"({len(missing)} missing); complete the copy, or use the config.json that came with the weights."
            )
        return model


def wrap(hf_model: Any) -> Any:
    """Bridge around a transformers model in memory, which it changes in place: its layers become the bridge's.

    Raises:
        SourceError: a family that the bridge does not know, or one without attention.
    """
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    guard_cache_argument()
    lighten()
    architecture, config = type(hf_model).__name__, copy.deepcopy(hf_model.config)
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise _unknown(config.model_type)
    # sdpa returns no attention maps: the families that delegate attention to transformers would then have none.
    hf_model.set_attn_implementation("eager")
    # No tokenizer: the bridge would add a BOS to it, and it only ever sees ids.
    return _with_attention(build_bridge_from_module(hf_model, architecture, hf_config=config), config)


def _with_attention(bridge: Any, config: Any) -> Any:
    if not hasattr(bridge, "blocks") or not getattr(config.get_text_config(), "num_attention_heads", None):
        raise SourceError(
            f"needs a stack of blocks with attention; found the family {config.model_type}; choose a transformer."
        )
    return bridge


def end_ids(bridge: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that ends a text: the tokenizer's own and those of the generation config, which may list several."""
    settings = getattr(bridge.original_model, "generation_config", None)
    found = [tokenizer.eos_token_id, getattr(settings, "eos_token_id", None)]
    flat = [i for item in found for i in (item if isinstance(item, list | tuple) else [item])]
    return frozenset(int(i) for i in flat if i is not None)


def _unknown(model_type: str) -> SourceError:
    return SourceError(
        f"needs a family that TransformerBridge 4.3 knows; found {model_type}; choose another model, for example "
        "one of the families GPT-2, Llama, Mistral, Qwen or Gemma."
    )


@dataclass(frozen=True)
class Calls:
    """One base forward pass, kept so that single blocks can be run again with another stream.

    `arguments[layer]` is everything a block got beside the stream: masks and rotary tables, whatever the family needs.
    """

    arguments: tuple[tuple[tuple[Any, ...], Mapping[str, Any]], ...]
    resid: tuple[Float[Any, "1 pos d_model"], ...]  # by depth: before block 0, 1, ..., then after the last one
    logits: Float[Any, "1 pos d_vocab"]


def capture(blocks: Any, run: Callable[[], Any]) -> Calls:
    """Record what every block receives while `run()` makes one forward pass of one text and returns its logits.

    `run` keeps no cache: a replayed block would write into it.
    """
    arguments: list[Any] = [None] * len(blocks)
    resid: list[Any] = [None] * (len(blocks) + 1)

    def before(layer: int) -> Callable[..., None]:
        def note(module: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            rest = dict(named)
            stream, tail = (args[0], args[1:]) if args else (rest.pop("hidden_states"), ())
            arguments[layer] = (tail, rest)
            resid[layer] = stream

        return note

    def after(module: Any, args: tuple[Any, ...], output: Any) -> None:
        resid[-1] = _stream(output)

    handles = [block.register_forward_pre_hook(before(i), with_kwargs=True) for i, block in enumerate(blocks)]
    handles.append(blocks[-1].register_forward_hook(after))
    try:
        logits = run()
    finally:
        for handle in handles:
            handle.remove()
    return Calls(tuple(arguments), tuple(resid), logits)


def replay(
    block: Any, layer: int, resid: Float[Any, "batch pos d_model"], calls: Calls
) -> Float[Any, "batch pos d_model"]:
    """Run one block on another stream, with the arguments it had in the captured pass spread over the batch."""
    tail, named = calls.arguments[layer]
    batch = resid.shape[0]
    output = block(resid, *(_spread("", t, batch) for t in tail), **{k: _spread(k, v, batch) for k, v in named.items()})
    return _stream(output)


def _stream(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def _spread(name: str, value: Any, batch: int) -> Any:
    """Captured arguments have batch 1: spread them without copying, where they have a batch axis."""
    if isinstance(value, tuple):
        return tuple(_spread(name, v, batch) for v in value)
    if batch == 1 or not hasattr(value, "expand"):
        return value
    if name == "alibi":  # Bloom: [batch * head, 1, key], so the heads of a row must stay together
        return value.repeat(batch, *[1] * (value.ndim - 1))
    # Two axes are positions without a batch, or broadcast anyway; only from three on is the first one surely the batch.
    return value.expand(batch, *value.shape[1:]) if value.ndim >= 3 and value.shape[0] == 1 else value
