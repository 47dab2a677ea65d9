"""Do these heads matter? Chosen heads silenced together, against as many random heads of the same layers.

Measured on repeated random tokens (the loss on the second copy, where induction is the only way) and on the prompt. A score names
suspects; this is the check. In SmolLM2 the previous-token head L16H0 alone costs more of the second copy than the best induction
head does: it tells the heads of the next layers what each token followed (Olsson et al. 2022, "In-context Learning and Induction
Heads"; K-composition, Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").

Identity: with no head silenced every figure is the baseline's.

Limit: a control is a draw, not a proof. Single random heads can cost much as well (L0H5 does here), so every draw is returned and
none is averaged away; and later heads may stand in for the missing ones (Rushing and Nanda 2024, "Explorations of Self-Repair in
Language Models").
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int32

from analyses._arrays import check_ids, to_float32
from analyses._heads import head_name, parse_heads
from analyses._readout import log_probability_of
from analyses._repeated import COPY, SEQUENCES, Repeated, copy_losses, repeated_tokens
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses._targets import token_id
from analyses.head_ablation import HOW, mean_outputs, silencing

Heads = tuple[tuple[int, int], ...]
MOST_DRAWS = 20


@dataclass(frozen=True, eq=False)
class HeadCheck:
    """Figures of the unchanged model, of the model without the chosen heads, and of each control draw."""

    heads: tuple[str, ...]
    how: str  # "zero" or "mean"
    controls: tuple[tuple[str, ...], ...]  # the heads of each draw
    controls_reason: str  # why there are none
    seed: int
    # nats per token; the second copy without its first token
    baseline_first_copy: float
    baseline_second_copy: float
    first_copy: float
    second_copy: float
    control_second_copy: Float32[np.ndarray, " draw"]
    baseline_prompt: float | None  # None for a prompt of one token
    prompt: float | None
    control_prompt: Float32[np.ndarray, " draw"] | None
    # what comes after the prompt
    target_id: int
    baseline_logit: float
    logit: float
    control_logit: Float32[np.ndarray, " draw"]
    baseline_top_ids: Int32[np.ndarray, " k"]
    baseline_top_log_probability: Float32[np.ndarray, " k"]
    top_ids: Int32[np.ndarray, " k"]
    top_log_probability: Float32[np.ndarray, " k"]

    def to_frame(self) -> Any:
        """A pandas table: one row for the baseline, one for the chosen heads, one for each draw."""
        import pandas as pd

        n = len(self.controls)
        columns: dict[str, Any] = {"silenced": ["", " ".join(self.heads), *(" ".join(draw) for draw in self.controls)]}
        columns["kind"] = ["baseline", "chosen", *["control"] * n]
        columns["second_copy_loss_nats"] = [self.baseline_second_copy, self.second_copy, *self.control_second_copy]
        if self.control_prompt is not None:
            columns["prompt_loss_nats"] = [self.baseline_prompt, self.prompt, *self.control_prompt]
        columns["target_logit"] = [self.baseline_logit, self.logit, *self.control_logit]
        return pd.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class Figures:
    """What is measured with some heads silenced; losses in nats per token."""

    first_copy: float
    second_copy: float
    prompt: float | None
    log_probability: Float32[np.ndarray, " d_vocab"]  # after the prompt
    logits: Float32[np.ndarray, " d_vocab"]


def head_check_steps(
    model: Any,
    tokens: Any,
    *,
    heads: Sequence[Any],
    how: str = "zero",
    draws: int = 4,
    seed: int = 0,
    exclude: Sequence[Any] = (),
    target: int | str | None = None,
    top_k: int = 10,
) -> Steps[HeadCheck]:
    """The steps of `run_head_check`: two forward passes for the baseline, two for the heads and two for each draw."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    chosen, spared = _chosen(config, heads, exclude)
    _check_params(how, draws, top_k, config.d_vocab)
    wanted = None if target is None else token_id(model, target)
    controls, reason = draw_controls(chosen, spared, config.n_heads, draws, seed)
    model.require("head_output")
    text = repeated_tokens(model, seed=seed)
    groups: list[Heads] = [(), chosen, *controls]
    filled = None
    if how == "mean":
        yield Progress(0, len(groups), note="the heads' means over repeated random tokens")
        filled = mean_outputs(model)
    found: list[Figures] = []
    for done, group in enumerate(groups):
        note = f"without {', '.join(head_name(*head) for head in group)}" if group else "the unchanged model"
        yield Progress(done, len(groups), note=note)
        first, second = without_on_copies(model, text, group, filled)
        yield Progress(done + 0.5, len(groups), note=note)
        prompt, logits = without_on_prompt(model, ids, group, filled)
        log_probability = to_float32(logits.log_softmax(-1))
        found.append(Figures(first, second, prompt, log_probability, to_float32(logits)))
    return _result(found, chosen, controls, how=how, reason=reason, seed=seed, target=wanted, top_k=top_k)


def run_head_check(
    model: Any,
    tokens: Any,
    *,
    heads: Sequence[Any],
    how: str = "zero",
    draws: int = 4,
    seed: int = 0,
    exclude: Sequence[Any] = (),
    target: int | str | None = None,
    top_k: int = 10,
) -> HeadCheck:
    """Silence heads together and compare with random heads of the same layers.

    Args:
        model: a HookedModel.
        tokens: the prompt: ids, or the `Tokens` of `run_tokenization`.
        heads: such as "L18H6" or (18, 6).
        how: "zero", or "mean" for each head's mean output over repeated random tokens.
        draws: control groups of as many heads, each from the layer of the head it stands for.
        seed: of the repeated tokens and of the draws.
        exclude: heads that no control may contain, for instance other heads with a high score.
        target: an id or a text that is one token, after the prompt; None for what the model itself answers.
        top_k: how many of the most probable next tokens to list, before and after.

    Raises:
        ValueError: a model whose heads cannot be silenced, no heads, one that is not there, or a parameter out of range.
    """
    named = dict(heads=heads, how=how, draws=draws, seed=seed, exclude=exclude, target=target, top_k=top_k)
    return drain(head_check_steps(model, tokens, **named))


def _chosen(config: Any, heads: Sequence[Any], exclude: Sequence[Any]) -> tuple[Heads, frozenset[tuple[int, int]]]:
    """The heads to silence, and those that no control may contain."""
    chosen = parse_heads(config, heads)
    if not chosen:
        raise ValueError("needs at least one head; found none; tick a head.")
    return chosen, frozenset(parse_heads(config, exclude))


def _check_params(how: str, draws: int, top_k: int, d_vocab: int) -> None:
    if how not in HOW:
        raise ValueError(f"needs {' or '.join(HOW)}; found {how!r}; choose one of them.")
    if not 0 <= draws <= MOST_DRAWS:
        raise ValueError(f"needs 0 to {MOST_DRAWS} draws; found {draws}; choose another number.")
    if not 1 <= top_k <= d_vocab:
        raise ValueError(f"needs a top-k from 1 to {d_vocab:,}; found {top_k:,}; choose how many to list.")


def _result(
    found: Sequence[Figures],
    chosen: Heads,
    controls: Sequence[Heads],
    *,
    how: str,
    reason: str,
    seed: int,
    target: int | None,
    top_k: int,
) -> HeadCheck:
    """The figures of the unchanged model, the chosen heads and the draws, in this order."""
    base, without, drawn = found[0], found[1], found[2:]
    wanted = int(base.logits.argmax()) if target is None else target
    prompts = [figures.prompt for figures in drawn]
    top = {name: np.argsort(-f.logits, kind="stable")[:top_k] for name, f in (("base", base), ("without", without))}
    return HeadCheck(
        heads=tuple(head_name(*head) for head in chosen),
        how=how,
        controls=tuple(tuple(head_name(*head) for head in draw) for draw in controls),
        controls_reason=reason,
        seed=seed,
        baseline_first_copy=base.first_copy,
        baseline_second_copy=base.second_copy,
        first_copy=without.first_copy,
        second_copy=without.second_copy,
        control_second_copy=np.array([figures.second_copy for figures in drawn], dtype=np.float32),
        baseline_prompt=base.prompt,
        prompt=without.prompt,
        control_prompt=None if base.prompt is None else np.array(prompts, dtype=np.float32),
        target_id=wanted,
        baseline_logit=float(base.logits[wanted]),
        logit=float(without.logits[wanted]),
        control_logit=np.array([figures.logits[wanted] for figures in drawn], dtype=np.float32),
        baseline_top_ids=top["base"].astype(np.int32),
        baseline_top_log_probability=base.log_probability[top["base"]],
        top_ids=top["without"].astype(np.int32),
        top_log_probability=without.log_probability[top["without"]],
    )


def draw_controls(
    chosen: Heads, spared: frozenset[Any], n_heads: int, draws: int, seed: int
) -> tuple[list[Heads], str]:
    """Groups of heads that are not chosen, each head from the layer of the one it stands for; or none, and why."""
    rng = random.Random(seed)
    free = {
        layer: [head for head in range(n_heads) if (layer, head) not in spared and (layer, head) not in chosen]
        for layer in {layer for layer, _ in chosen}
    }
    needed = {layer: sum(other == layer for other, _ in chosen) for layer in free}
    for layer in sorted(free):
        if len(free[layer]) < needed[layer]:
            return [], f"layer {layer} has {len(free[layer])} other heads and {needed[layer]} are needed"
    found: list[Heads] = []
    for _ in range(50 * draws):  # the same group twice would look like an agreement
        group = tuple(
            (layer, head) for layer in sorted(free) for head in sorted(rng.sample(free[layer], needed[layer]))
        )
        if group not in found and len(found) < draws:
            found.append(group)
    return found, "" if len(found) == draws else f"only {len(found)} different groups exist in these layers"


def without_on_copies(model: Any, text: Repeated, heads: Heads, filled: Any = None) -> tuple[float, float]:
    """Losses (nats) on the first and on the second copy of repeated tokens, with heads silenced."""
    _, resid = _without(model, text.ids, heads, filled)
    return copy_losses(model, resid, text)


def without_on_prompt(
    model: Any, ids: tuple[int, ...], heads: Heads, filled: Any = None
) -> tuple[float | None, Float[Any, " d_vocab"]]:
    """Mean loss (nats) on a prompt, None for one token, and the logits after it, with heads silenced."""
    import torch

    logits, resid = _without(model, ids, heads, filled)
    loss = None
    if len(ids) > 1:
        following = torch.tensor([ids[1:]], device=logits.device)
        loss = -float(log_probability_of(model, resid[:, :-1], following).mean())
    return loss, logits[0, -1].float()


def _without(model: Any, ids: Any, heads: Heads, filled: Any) -> tuple[Any, Any]:
    """Last logits and the stream after the last layer."""
    silent: dict[int, dict[int | None, Any]] = {}
    for layer, head in heads:
        silent.setdefault(layer, {None: []})[None].append(head)
    found: dict[str, Any] = {}
    name = model.hook_name("resid_post", model.config.n_layers - 1)
    with model.hooks(*silencing(model, silent, filled), (name, lambda tensor, hook: found.update(resid=tensor))):
        logits = model.forward(ids, last_only=True)
    return logits, found["resid"]


def cost_head_check(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """Two forward passes with their losses for the baseline, the heads and every draw."""
    groups = 2 + int(params.get("draws", 4))
    pos = min(1 + 2 * COPY, profile.n_ctx)
    once = profile.forward_seconds(pos, SEQUENCES) + profile.forward_seconds(n_tokens)
    reading = profile.per_readout * (SEQUENCES * pos + n_tokens)
    extra = profile.forward_seconds(pos, SEQUENCES) if params.get("how") == "mean" else 0.0
    return Cost(
        seconds=groups * (once + reading) + extra,
        peak_bytes=profile.forward_bytes(pos, SEQUENCES) + profile.forward_bytes(n_tokens) + (64 << 20),
        result_bytes=64 * groups + 16 * int(params.get("top_k", 10)),
    )
