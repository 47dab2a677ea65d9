"""What does it write? The most probable continuation, token by token, also with parts of the model left out.

Greedy decoding: each step takes the most probable token and reads it back in (of equal logits the lowest id). Interventions are
data, not code, and hold in every forward pass: the prompt's and each new token's.

Identity: with a KV cache or without it the tokens are the same, because keys and values of earlier tokens do not change when
more tokens come; without interventions it is the model's own greedy continuation.

Limit: one greedy continuation is one sample. A small change of the logits can turn one token and with it all that follow, so
two different texts do not mean two very different models: compare the probabilities too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses._addends import addend_hooks, read_addends
from analyses._arrays import check_ids
from analyses._steps import Cost, Profile, Progress, Steps, drain

DEFAULT_NEW = 20


@dataclass(frozen=True, eq=False)
class Generation:
    """The new tokens, and how sure each choice was."""

    ids: Int32[np.ndarray, " new"]
    log_probability: Float32[np.ndarray, " new"]  # nats, of the chosen token
    text: str  # of the new tokens, complete characters only
    ended: bool  # at an end token, which is the last of `ids`

    def to_frame(self) -> Any:
        """A pandas table, one row per new token: step, id, log_probability_nats."""
        import pandas as pd

        columns = {"step": np.arange(len(self.ids)), "id": self.ids, "log_probability_nats": self.log_probability}
        return pd.DataFrame(columns)


def generation_steps(
    model: Any,
    tokens: Any,
    *,
    max_new_tokens: int = DEFAULT_NEW,
    interventions: Sequence[Any] = (),
    use_cache: bool = True,
) -> Steps[Generation]:
    """The steps of `run_generation`: one forward pass per new token."""
    config = model.config
    ids = list(check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx))
    if not 1 <= max_new_tokens <= config.n_ctx - len(ids):
        raise ValueError(
            f"needs 1 to {config.n_ctx - len(ids):,} new tokens after a prompt of {len(ids):,}, within the context of "
            f"{config.n_ctx:,}; found {max_new_tokens:,}; ask for fewer or shorten the prompt."
        )
    pairs = intervention_hooks(model, interventions)
    cached = use_cache and not model.capabilities["kv_cache"]
    ends = _end_ids(model)
    new: list[int] = []
    found: list[float] = []
    cache, unread = None, ids
    while len(new) < max_new_tokens and not (new and new[-1] in ends):
        yield Progress(len(new), max_new_tokens, note="writing", partial={"ids": list(new)})
        with model.hooks(*pairs):
            if cached:
                logits, cache = model.extend(unread, cache)
            else:
                logits = model.forward(ids + new, last_only=True)
        row = logits[0, -1].float().log_softmax(-1)
        choice = int(row.argmax())
        found.append(float(row[choice]))
        new.append(choice)
        unread = [choice]
    return Generation(
        ids=np.array(new, dtype=np.int32),
        log_probability=np.array(found, dtype=np.float32),
        text=complete_text(model.tokenizer.decode(new)),
        ended=new[-1] in ends,
    )


def run_generation(
    model: Any,
    tokens: Any,
    *,
    max_new_tokens: int = DEFAULT_NEW,
    interventions: Sequence[Any] = (),
    use_cache: bool = True,
) -> Generation:
    """The greedy continuation of a prompt.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        max_new_tokens: how many to write at most; it stops earlier at one of the model's end tokens.
        interventions: what holds in every step, e.g. [{"delete": [10, "11.mlp"]}] (names as in `run_layer_deletion`).
        use_cache: keep keys and values of earlier tokens, where the model can; the tokens are the same.

    Raises:
        ValueError: no tokens, too many in all, an unknown intervention, or one that this model cannot take.
    """
    return drain(
        generation_steps(model, tokens, max_new_tokens=max_new_tokens, interventions=interventions, use_cache=use_cache)
    )


def cost_generation(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """The prompt once, then one position per new token that looks at all earlier ones."""
    n_new = params.get("max_new_tokens", DEFAULT_NEW)
    cached = params.get("use_cache", True)
    if cached:
        seconds = profile.forward_seconds(n_tokens) + n_new * (profile.forward_seconds(1) + profile.per_readout)
        seconds += profile.per_pair * n_new * (n_tokens + n_new / 2)
    else:
        seconds = n_new * (profile.forward_seconds(n_tokens + n_new // 2) + profile.per_readout)
    longest = n_tokens + n_new
    cache_bytes = 2 * profile.n_layers * longest * profile.d_model * profile.bytes_per_value
    return Cost(seconds, profile.forward_bytes(longest) + cache_bytes, 8 * n_new + 400)


def intervention_hooks(model: Any, interventions: Sequence[Any]) -> list[Any]:
    """Hook pairs of a list of interventions; each is a mapping with one key that names its kind.

    Raises:
        ValueError: not a list of mappings, or an unknown kind.
    """
    pairs: list[Any] = []
    for item in interventions:
        if not isinstance(item, Mapping) or set(item) != {"delete"}:
            raise ValueError(f'needs interventions such as {{"delete": [10, "11.mlp"]}}; found {item!r}; correct it.')
        pairs += addend_hooks(model, read_addends(item["delete"], model.config.n_layers))
    return pairs


def complete_text(text: str) -> str:
    """Without the replacement characters that an unfinished character at the end leaves."""
    return text.rstrip("\ufffd")


def _end_ids(model: Any) -> frozenset[int]:
    end = model.tokenizer.eos_token_id
    return frozenset() if end is None else frozenset({int(end)})
