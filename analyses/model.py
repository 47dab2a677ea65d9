"""The model behind every analysis: what the bridge can do, in the words of the field, and checked when it is loaded.

`HookedModel` is the only door to TransformerLens' TransformerBridge (analyses/_bridge.py holds its particularities).
It computes plain forward passes; logits are the model's own, with softcap and scale, as transformers computes them.

Limit: hooks are global to a model, so one thread owns it. Two threads on one model steer each other's results without
any error (26 of 40 plain passes came back changed when tried).
"""

import difflib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from jaxtyping import Float, Int64

from analyses import _bridge
from analyses._arrays import check_ids
from analyses._batch import batch_of
from analyses._bridge import POINTS, Calls
from analyses._checkpoints import Weights, check_step, copy_weights, read_weights, revision_of, with_checkpoints
from analyses._config import Check, ModelConfig, read_config
from analyses._decompose import LinearParts, linear_parts
from analyses._device import choose_device, choose_dtype, move_and_compare
from analyses._opening import in_words, prepare
from analyses._steps import Progress
from analyses.sources import resolve

__all__ = ["POINTS", "Calls", "Check", "HookedModel", "ModelConfig", "load_model", "wrap_model"]


class HookedModel:
    """A language model whose stream can be read, changed and replayed.

    Attributes:
        config: facts about the model.
        tokenizer: the model's own, as transformers loads it (the bridge's would add a BOS).
        capabilities: name -> "" where this model can do it, else the reason in plain words. Probed at load.
        checks: the self-checks made at load.
        end_ids: tokens after which a text is finished; there may be several.
        weights: stands for the weights as they are now; another object at every checkpoint. What is computed once per model
            and depends on them is kept under it.
        interrupt: called before every block and by `check()`; may raise to stop there. Does nothing by default.
    """

    def __init__(self, bridge: Any, tokenizer: Any, config: ModelConfig) -> None:
        self._bridge = bridge
        self.tokenizer = tokenizer
        self.config = config
        self.capabilities: Mapping[str, str] = {}
        self.checks: tuple[Check, ...] = ()
        self.end_ids = _bridge.end_ids(bridge, tokenizer)
        self.interrupt: Callable[[], None] = _nothing
        self.weights = Weights()
        self._weights, self._parameters = {config.checkpoint: self.weights}, None
        bridge.eval()
        bridge.original_model.requires_grad_(False)  # grad mode is per thread: a new one would build graphs
        self._keeps_last = "logits_to_keep" in inspect.signature(bridge.original_model.forward).parameters
        self._hook_names = frozenset(bridge.hook_dict)
        for block in bridge.blocks:
            block.register_forward_pre_hook(_asking(weakref.ref(self)))

    def at_checkpoint(self, step: int) -> None:
        """Put the weights of another training step in place (0.1 ms); `config` and `weights` say which they are.

        For the thread that owns the model, and never inside `hooks(...)`. Steps of an analysis that uses this must call it
        again after every yield: another request may have left the model elsewhere.

        Raises:
            ValueError: a model without checkpoints (`config.checkpoints` is empty), or a step that is none of them.
        """
        check_step(self.config.name, step, self.config.checkpoints)
        if step != self.config.checkpoint:
            self._parameters = self._parameters or dict(self._bridge.original_model.named_parameters())
            copy_weights(self._parameters, read_weights(self.config.name, step))
            self.config = self.config.at(step)
            self.weights = self._weights.setdefault(step, Weights())

    def check(self) -> None:
        """Stop here if `interrupt` says so; call it in loops that run without the model."""
        self.interrupt()

    def require(self, *capabilities: str) -> None:
        """Refuse what this model cannot do.

        Raises:
            ValueError: one of the capabilities is missing; the sentence carries the reason found at load.
        """
        for name in capabilities:
            if reason := self.capabilities[name]:
                raise ValueError(
                    f"needs a model that offers `{name}`; found that {self.config.name} does not: {reason}; "
                    "choose another view or another model."
                )

    def forward(self, ids: Any, *, last_only: bool = False) -> Float[Any, "batch pos d_vocab"]:
        """Logits of every position, or of the last one only (then pos is 1), on the model's device.

        Args:
            ids: ids of one text (tuple, list or `Tokens`), or a tensor [batch, pos] of texts of equal length.
            last_only: spare the unembedding of all other positions.

        Raises:
            ValueError: no ids, too many, or some outside the vocabulary.
        """
        keep = {"logits_to_keep": 1} if last_only and self._keeps_last else {}
        logits = self._bridge(self._tensor(ids), use_cache=False, **keep)
        return logits[:, -1:] if last_only else logits

    def extend(
        self, ids: Any, cache: Any = None, *, last_only: bool = True
    ) -> tuple[Float[Any, "batch pos d_vocab"], Any]:
        """Logits of the given new tokens after those already in the cache, and the cache that now holds them too.

        The cache is changed in place; `None` starts one. The caller keeps the sum of lengths within the context.
        """
        keep = {"logits_to_keep": 1} if last_only and self._keeps_last else {}
        past = {} if cache is None else {"past_key_values": cache}
        logits, cache = self._bridge(self._tensor(ids), return_type="logits_and_cache", use_cache=True, **past, **keep)
        return (logits[:, -1:] if last_only else logits), cache

    def generate_ids(self, ids: Any, max_new_tokens: int, use_cache: bool = True) -> tuple[int, ...]:
        """The most likely continuation, token by token; only the new ids, no early stop.

        Raises:
            ValueError: prompt and new tokens together do not fit the context.
        """
        text = list(check_ids(ids, d_vocab=self.config.d_vocab, n_ctx=self.config.n_ctx))
        if len(text) + max_new_tokens > self.config.n_ctx:
            raise ValueError(
                f"needs prompt and new tokens within the context of {self.config.n_ctx:,}; found {len(text):,} + "
                f"{max_new_tokens:,}; shorten the prompt or ask for fewer."
            )
        new: list[int] = []
        cache, unread = None, text
        while len(new) < max_new_tokens:
            if use_cache:
                logits, cache = self.extend(unread, cache)
            else:
                logits = self.forward(text + new, last_only=True)
            unread = [int(logits[0, -1].argmax())]
            new += unread
        return tuple(new)

    def hook_name(self, point: str, layer: int) -> str:
        """Name of a place in a block to read or change; the places and their shapes are in `analyses.model.POINTS`.

        Raises:
            ValueError: no such place or layer.
        """
        if point not in POINTS:
            raise ValueError(f"needs one of {', '.join(POINTS)}; found {point!r}; {_nearest(point, POINTS)}.")
        if not 0 <= layer < self.config.n_layers:
            raise ValueError(
                f"needs a layer from 0 to {self.config.n_layers - 1}; found {layer}; layers count from zero."
            )
        return f"blocks.{layer}.{POINTS[point]}"

    def has_hook(self, name: str) -> bool:
        """Whether the model has a hook of this name (it may still never fire: see `capabilities`)."""
        return name in self._hook_names

    @contextmanager
    def hooks(self, *pairs: tuple[str, Callable[..., Any]]) -> Iterator[None]:
        """Within this context, call `function(tensor, hook)` at each named place; what it returns replaces the tensor.

        All are removed at the end, also after an exception. Never yield from a generator inside it, and never write
        into the tensor that is handed in: return a new one, or None to leave it.

        Raises:
            ValueError: an unknown name (a misspelt hook must not run unhooked).
        """
        for name, _ in pairs:
            if not self.has_hook(name):
                raise ValueError(
                    f"needs the name of a hook of this model; found {name!r}; {_nearest(name, self._hook_names)}."
                )
        with self._bridge.hooks(fwd_hooks=list(pairs)) if pairs else nullcontext():  # it lists every hook of the model
            yield

    def hook_count(self) -> int:
        """Hooks that are on the model now, without the permanent ones: 0 outside every context."""
        from transformer_lens.hook_points import HookPoint

        points = (m for m in self._bridge.modules() if isinstance(m, HookPoint))
        mine = sum(len(p.fwd_hooks) + len(p.bwd_hooks) for p in points)
        # capture_calls() uses torch's own hooks on the blocks; one of those per block, the guard, is permanent.
        return mine + sum(len(b._forward_pre_hooks) - 1 + len(b._forward_hooks) for b in self._bridge.blocks)

    def capture_calls(self, ids: Any) -> Calls:
        """One forward pass of one text, recorded so that `run_block` can run single blocks again.

        Raises:
            ValueError: as `forward`, or more than one text.
        """
        tokens = self._tensor(ids)
        if tokens.shape[0] != 1:
            raise ValueError(f"needs one text; found {tokens.shape[0]}; capture each on its own.")
        return _bridge.capture(self._bridge.blocks, lambda: self._bridge(tokens, use_cache=False))

    def run_block(
        self, layer: int, resid: Float[Any, "batch pos d_model"], calls: Calls
    ) -> Float[Any, "batch pos d_model"]:
        """The stream after a block, given the stream before it; any batch size, the captured text's positions.

        Hooks of that block apply. Equal to `forward` where the model has the capability `replay`.
        """
        return _bridge.replay(self._bridge.blocks[layer], layer, resid, calls)

    def readout(self, resid: Float[Any, "*rows d_model"]) -> Float[Any, "*rows d_vocab"]:
        """Logits read from a stream: final norm, unembedding, the family's own output transform (softcap, scale)."""
        logits = self._bridge.unembed(self._bridge.ln_final(resid))
        return self._bridge.adapter.apply_output_logits_transform(logits)

    def linear_parts(self) -> LinearParts:
        """Final norm, unembedding and attention's output matrices: what splits a logit into parts."""
        return linear_parts(self._bridge)

    def _tensor(self, ids: Any) -> Int64[Any, "batch pos"]:
        return batch_of(ids, d_vocab=self.config.d_vocab, n_ctx=self.config.n_ctx, device=self.config.device)


def load_model(
    source: str | None = None,
    *,
    revision: str | None = None,
    checkpoint: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> HookedModel:
    """Load a model, check it, and say what it can do.

    Args:
        source: a catalogue name, a local folder or a hub id; the embedded default when None.
        revision: branch, tag or commit of a hub id.
        checkpoint: a training step: of "tiny-induction", or of a hub model that publishes them (Pythia, Stanford's GPT-2).
        device: "cpu", "cuda", "cuda:1" or "mps"; None takes cuda where there is one, else the CPU, and never mps.
        dtype: "float32" (default), "bfloat16" or "float16".
        on_progress: told how far it is; may raise `Cancelled`.

    Raises:
        ValueError: the source, the device or the dtype is not there, the model does not fit in memory or cannot be read,
            or mps computes something else than the CPU. One sentence says what is needed, what was found and what to do.
    """
    place, number = choose_device(device), choose_dtype(dtype)
    found = resolve(source, revision=revision_of(source, revision, checkpoint))
    folder, tokenizer = prepare(found, dtype=dtype or "float32", device=place, on_progress=on_progress)
    if on_progress:
        on_progress(Progress(0, 1, note="loading the model"))
    # mps has returned wrong numbers without an error (TransformerLens issue 1178): it is compared with the CPU first.
    with in_words(found.name, "the weights"):
        bridge = _bridge.boot(str(folder), device="cpu" if place == "mps" else place, dtype=number)
    if place == "mps":
        move_and_compare(bridge, place)
    with in_words(found.name, "the model"):
        config = read_config(bridge, name=found.name, kind=found.kind, revision=found.revision, note=found.note)
        model = _checked(HookedModel(bridge, tokenizer, with_checkpoints(config, checkpoint)))
    if model.config.checkpoints and checkpoint is not None:
        model.at_checkpoint(checkpoint)
    if on_progress:
        on_progress(Progress(1, 1, note="loading the model"))
    return model


def wrap_model(hf_model: Any, tokenizer: Any, name: str = "model in memory") -> HookedModel:
    """A `HookedModel` around a transformers model in memory.

    The given model is changed in place (its layers become the bridge's, attention becomes eager, gradients are switched
    off): make a deep copy first to compare with.
    """
    bridge = _bridge.wrap(hf_model)
    return _checked(HookedModel(bridge, tokenizer, read_config(bridge, name=name, kind="memory")))


def _checked(model: HookedModel) -> HookedModel:
    from analyses.capabilities import probe  # it imports this module

    model.capabilities, model.checks = probe(model)
    return model


def _asking(model: Callable[[], HookedModel | None]) -> Callable[..., None]:
    # A weak reference: the hook must not keep a model alive that was replaced.
    def ask(module: Any, args: Any) -> None:
        if (owner := model()) is not None:
            owner.interrupt()

    return ask


def _nearest(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"did you mean {near[0]!r}?"


def _nothing() -> None:
    """The interrupt of a model that nobody wants to stop."""
