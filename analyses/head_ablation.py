"""What is lost without each single head? A sweep over layers x heads on the prompt, by leaving one head out at a time.

A head is silenced where it is still apart from the others: before the output matrix, its output is set to zero, or to its mean
over repeated random tokens (which leaves what it always writes). Everything after it then runs on the changed stream.

Identity: row by row these are the model's own forward passes with that head silenced; only the order of the work differs. All
variants of a layer join one batch and no block before a changed layer runs again (_variants.py).

Limit: one head at a time. Later heads may stand in for a missing one, so a small loss does not show that a head does little
(Rushing and Nanda 2024, "Explorations of Self-Repair in Language Models"); and zero is an output that a head may never have, so a
large one can be a shock rather than a missing part: compare the two ways.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

from analyses._arrays import check_ids, to_float32
from analyses._heads import head_name
from analyses._readout import log_probability_of
from analyses._repeated import COPY, SEQUENCES, repeated_tokens
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._targets import token_id
from analyses._variants import Start, replay_cost, row_bytes, rows_at_once, variant_steps

HOW = ("zero", "mean")
MEASURES = ("all", "last")


@dataclass(frozen=True, eq=False)
class HeadAblation:
    """Change of the loss and of one token's logit when a head is silenced; changed minus unchanged."""

    how: str  # "zero" or "mean"
    positions: str  # "all": loss over the whole prompt; "last": only what comes after it
    loss_change_nats: Float32[np.ndarray, "layer head"] | None  # mean over the prompt's next tokens; None for "last"
    logit_change: Float32[np.ndarray, "layer head"]  # of the target, after the last token
    log_probability_change: Float32[np.ndarray, "layer head"]  # nats, of the target
    baseline_loss_nats: float | None
    baseline_logit: float
    baseline_log_probability: float
    target_id: int
    replayed: bool  # False: one hooked forward pass per group of heads, for models whose blocks cannot be run alone

    def to_frame(self) -> Any:
        """A pandas table, one row per head: layer, head, name, the changes."""
        import pandas as pd

        n_layers, n_heads = self.logit_change.shape
        layer, head = np.divmod(np.arange(n_layers * n_heads), n_heads)
        columns: dict[str, Any] = {"layer": layer, "head": head}
        columns["name"] = [head_name(*pair) for pair in zip(layer.tolist(), head.tolist(), strict=True)]
        if self.loss_change_nats is not None:
            columns["loss_change_nats"] = self.loss_change_nats.ravel()
        columns["logit_change"] = self.logit_change.ravel()
        columns["log_probability_change_nats"] = self.log_probability_change.ravel()
        return pd.DataFrame(columns)


def head_ablation_steps(
    model: Any, tokens: Any, *, how: str = "zero", positions: str = "all", target: int | str | None = None
) -> Steps[HeadAblation]:
    """The steps of `run_head_ablation`: one forward pass, then single blocks."""
    import torch

    config = model.config
    for value, known in ((how, HOW), (positions, MEASURES)):
        if value not in known:
            raise ValueError(f"needs {' or '.join(known)}; found {value!r}; choose one of them.")
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx, at_least=2 if positions == "all" else 1)
    wanted = None if target is None else token_id(model, target)
    model.require("head_output")
    yield Progress(0, 1, note="one forward pass")
    calls = model.capture_calls(ids)
    last = calls.logits[0, -1].float()
    wanted = int(last.argmax()) if wanted is None else wanted
    resid = calls.resid
    filled: Any = None
    if how == "mean":
        yield Progress(0, 1, note="the heads' means over repeated random tokens")
        filled = mean_outputs(model)
    places = [(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)]
    # The base is a variant too: the same arithmetic on both sides of every difference.
    starts = [Start(layer, layer) for layer, _ in places] + [Start(config.n_layers, config.n_layers)]
    logit, log_probability, loss = np.zeros((3, len(starts)), dtype=np.float64)
    following = torch.tensor(ids[1:], device=resid[0].device)

    def read(variants: Any, rows: Float[Any, "row pos d_model"]) -> None:
        logits = model.readout(rows[:, -1]).float()
        logit[variants] = to_float32(logits[:, wanted])
        log_probability[variants] = to_float32(logits[:, wanted] - logits.logsumexp(-1))
        if positions == "all":
            given = log_probability_of(model, rows[:, :-1], following.expand(len(rows), -1))
            loss[variants] = to_float32(-given.mean(-1))

    replayed = not model.capabilities["replay"]
    if replayed:

        def run(layer: int, rows: Any, variants: Any) -> Any:
            silent = {row: places[v][1] for row, v in enumerate(variants) if v < len(places) and places[v][0] == layer}
            with model.hooks(*silencing(model, {layer: silent}, filled)):
                return model.run_block(layer, rows, calls)

        # Reading all positions out costs about as much as running them through this many blocks.
        reading = 5.0 if positions == "all" else 0.5
        yield from variant_steps(model, resid, starts, run, read, reading=reading, note="one head at a time")
    else:
        yield from _hooked_steps(model, ids, places, filled, read)
    return _result(
        (loss, logit, log_probability),
        (config.n_layers, config.n_heads),
        how=how,
        positions=positions,
        target_id=wanted,
        replayed=replayed,
    )


def run_head_ablation(
    model: Any, tokens: Any, *, how: str = "zero", positions: str = "all", target: int | str | None = None
) -> HeadAblation:
    """Silence each head in turn.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        how: "zero", or "mean" for each head's mean output over repeated random tokens.
        positions: "all" for the loss over the prompt as well, "last" for the target's logit only (faster).
        target: an id or a text that is one token; None for what the model itself answers.

    Raises:
        ValueError: a model whose heads cannot be silenced, too few tokens, too many, or a target that is not one token.
    """
    return drain(head_ablation_steps(model, tokens, how=how, positions=positions, target=target))


def _result(
    measured: Sequence[Float64[np.ndarray, " variant"]],
    shape: tuple[int, int],
    *,
    how: str,
    positions: str,
    target_id: int,
    replayed: bool,
) -> HeadAblation:
    """Loss, logit and log-probability of every head and, last, of the unchanged run, as changes by layer and head."""
    loss, logit, log_probability = measured
    changes = ((values[:-1] - values[-1]).reshape(shape).astype(np.float32) for values in measured)
    loss_change, logit_change, log_change = changes
    everything = positions == "all"
    return HeadAblation(
        how=how,
        positions=positions,
        loss_change_nats=loss_change if everything else None,
        logit_change=logit_change,
        log_probability_change=log_change,
        baseline_loss_nats=float(loss[-1]) if everything else None,
        baseline_logit=float(logit[-1]),
        baseline_log_probability=float(log_probability[-1]),
        target_id=target_id,
        replayed=replayed,
    )


def silencing(
    model: Any, heads: Mapping[int, Mapping[int | None, Any]], filled: Float[Any, "layer head d_head"] | None = None
) -> list[tuple[str, Callable[..., Any]]]:
    """Hooks that silence heads before the output matrix.

    Args:
        model: a HookedModel.
        heads: layer -> row of the batch -> head, or heads, to silence; the row None stands for all rows.
        filled: what to put in their place; None for zero.
    """

    def editor(layer: int, rows: Mapping[int | None, Any]) -> Callable[..., Any]:
        def silence(tensor: Float[Any, "row pos head d_head"], hook: Any) -> Any:
            changed = tensor.clone()
            for row, silent in rows.items():
                value = 0.0 if filled is None else filled[layer, silent].to(tensor)
                changed[slice(None) if row is None else row, :, silent] = value
            return changed

        return silence

    return [(model.hook_name("head_output", layer), editor(layer, rows)) for layer, rows in heads.items() if rows]


def mean_outputs(model: Any) -> Float[Any, "layer head d_head"]:
    """Each head's mean output over seeded repeated random tokens; the first position, where heads rest, does not count."""
    import torch

    means: dict[int, Any] = {}

    def keep(layer: int) -> Callable[..., None]:
        return lambda tensor, hook: means.update({layer: tensor[:, 1:].mean((0, 1))})

    with model.hooks(*((model.hook_name("head_output", i), keep(i)) for i in range(model.config.n_layers))):
        model.forward(repeated_tokens(model).ids, last_only=True)
    return torch.stack([means[i] for i in sorted(means)])


def _hooked_steps(model: Any, ids: Any, places: Any, filled: Any, read: Callable[..., None]) -> Steps[None]:
    """The same, with whole forward passes: several heads as rows of a batch, each silenced in its row."""
    import torch

    config = model.config
    size = rows_at_once(len(ids), config.n_heads, config.d_model)
    everything = list(range(len(places) + 1))
    for start in range(0, len(everything), size):
        yield Progress(start, len(everything), note="one head at a time")
        variants = everything[start : start + size]
        silent: dict[int, dict[int | None, Any]] = {}
        for row, variant in enumerate(variants):
            if variant < len(places):
                layer, head = places[variant]
                silent.setdefault(layer, {})[row] = head
        found: dict[str, Any] = {}
        name = model.hook_name("resid_post", config.n_layers - 1)
        keep = (name, lambda tensor, hook, found=found: found.update(resid=tensor))
        with model.hooks(*silencing(model, silent, filled), keep):
            model.forward(torch.tensor([ids]).expand(len(variants), -1), last_only=True)
        read(variants, found["resid"])


def cost_head_ablation(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Blocks of the replayed batch, and one readout per head, or one per head and position."""
    starts = [Start(layer, layer) for layer in range(profile.n_layers) for _ in range(profile.n_heads)]
    shape = (n_tokens, profile.n_heads, profile.d_model, profile.bytes_per_value)
    blocks, calls, rows = replay_cost(starts, profile.n_layers, *shape)
    per_row = profile.per_token * n_tokens + profile.per_pair * n_tokens**2
    readouts = len(starts) * (n_tokens if params.get("positions", "all") == "all" else 1)
    seconds = profile.forward_seconds(n_tokens) + (calls * profile.base + blocks * per_row) / profile.n_layers
    if params.get("how") == "mean":
        seconds += profile.forward_seconds(min(1 + 2 * COPY, profile.n_ctx), SEQUENCES)
    return Cost(
        seconds=seconds + profile.per_readout * readouts,
        peak_bytes=profile.forward_bytes(n_tokens, readouts=n_tokens) + rows * row_bytes(*shape) + (96 << 20),
        result_bytes=3 * 4 * profile.n_layers * profile.n_heads,
    )
