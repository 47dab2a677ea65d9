"""What each head adds straight to the logit of one token against a set of others, for many positions at once.

As in attribution.py, with the statistics of the norms held at their values in the run; here for many rows, so in the model's own
number format.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int

from analyses._decompose import FrozenNorm, freeze


def head_pushes(
    model: Any,
    targets: Int[Any, "group row"],
    others: Int[Any, "group other"],
    heads: Sequence[Float[Any, "rows head d_head"]],
    written: Sequence[Float[Any, "rows d_model"]],
    resid: Float[Any, "rows d_model"],
) -> Float[Any, "layer head"]:
    """Mean over rows, in logits, of what each head adds to a row's target minus the mean of its group's others.

    Call it outside of hooks: it tries modules of the model.

    Args:
        model: a HookedModel with the capabilities head_output and attn_out.
        targets: id whose logit counts, for each row of each group (sequence).
        others: ids whose mean logit is taken off.
        heads: head outputs of each layer at all rows, group after group.
        written: what each layer's attention added to the stream there.
        resid: the stream after the last layer there.
    """
    import torch

    parts = model.linear_parts()
    weight = parts.weight
    wanted = (weight[targets] - weight[others].mean(1, keepdim=True)).flatten(0, 1)
    final = freeze(parts.final_norm, resid[0])
    towards = _pull_back(final, _gains(final, parts.final_norm, resid), wanted)
    pushes = []
    for layer, (outputs, added) in enumerate(zip(heads, written, strict=True)):
        model.check()
        output, post = parts.outputs[layer], parts.post_norms[layer]
        n_heads, width = outputs.shape[1:]
        whole = output(outputs.flatten(1))
        through, direction = whole, towards
        if post is not None:
            through, frozen = post(whole), freeze(post, whole[0])
            direction = _pull_back(frozen, _gains(frozen, post, whole), towards)
        # Granite multiplies what a sublayer writes by one number before it is added.
        factor = (through * added).float().sum() / through.float().square().sum()
        unit = torch.eye(n_heads * width, dtype=outputs.dtype, device=outputs.device)
        matrix = output(unit) - output(torch.zeros_like(unit[:1]))
        aimed = (direction @ matrix.T).view(-1, n_heads, width)
        pushes.append(factor * (outputs.float() * aimed.float()).sum(-1).mean(0))
    return torch.stack(pushes)


def _gains(frozen: FrozenNorm, norm: Any, rows: Float[Any, "row d_model"]) -> Float[Any, "row d_model"]:
    """The gain that a norm applies to each row: the same shape in all, times one number per row."""
    gain, bias = frozen.gain.to(rows), frozen.bias.to(rows)
    own = rows - rows.mean(-1, keepdim=True) if frozen.centres else rows
    shape = (gain * own).float()
    scale = ((norm(rows) - bias).float() * shape).sum(-1, keepdim=True) / shape.square().sum(-1, keepdim=True)
    return (scale * gain.float()).to(rows.dtype)


def _pull_back(
    frozen: FrozenNorm, gain: Float[Any, "row d_model"], direction: Float[Any, "row d_model"]
) -> Float[Any, "row d_model"]:
    scaled = gain * direction
    return scaled - scaled.mean(-1, keepdim=True) if frozen.centres else scaled
