"""What does it write? A continuation token by token, greedy or sampled, also with parts of the model left out or steered.

Each step reads the newest token, takes one from the distribution of the next, and reads that in turn. Greedy decoding takes the
most probable token; sampling draws one from the whole vocabulary, reshaped by temperature, top-k and top-p (Holtzman, Buys, Du,
Forbes and Choi 2020, "The Curious Case of Neural Text Degeneration"). Interventions are data, not code, and hold in every forward
pass: the prompt's and each new token's (analyses/_interventions.py).

Identity: with a KV cache or without it the tokens are the same, because keys and values of earlier tokens do not change when
more tokens come; without interventions greedy decoding is the model's own.

Samples, and variants of interventions, are rows of one batch. Products of matrices add up in another order there, so a logit
differs in its last digits from that of a row on its own (about 1e-5 on the embedded model): where two tokens are that close, a
batch may take the other one, and then writes another text.

Limit: one continuation is one sample. A small change of the logits can turn one token and with it all that follow, so two
different texts do not mean two very different models: compare the probabilities too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32

from analyses._arrays import check_ids
from analyses._decoding import AFTER_END, Sampler, Written, check_whole
from analyses._interventions import Interventions, read_interventions
from analyses._step_reader import StepReader
from analyses._steps import Cost, Profile, Progress, Steps, drain
from analyses.vocabulary import Vocabulary, printable

DEFAULT_NEW = 20
MAX_ROWS = 64


@dataclass(frozen=True, eq=False)
class Generation:
    """The new tokens, and how sure each choice was. Rows are variants, and within a variant samples; row 0 stands alone too."""

    ids: Int32[np.ndarray, " new"]  # of row 0
    log_probability: Float32[np.ndarray, " new"]  # nats, of the chosen token, of row 0
    text: str  # of the new tokens, complete characters only, without an end mark
    ended: bool  # at an end token, which is the last of `ids`
    row_ids: Int32[np.ndarray, "row step"]  # -1 after a row's end
    row_log_probability: Float32[
        np.ndarray, "row step"
    ]  # nats, NaN after the end; this and what follows: the model's own
    row_rank: Int32[np.ndarray, "row step"]  # 0: the most probable token; -1 after the end
    row_entropy_nats: Float32[np.ndarray, "row step"]  # of the distribution it was taken from, before temperature
    top_ids: Int32[np.ndarray, "row step k"]  # most probable first, -1 after the end
    top_log_probability: Float32[np.ndarray, "row step k"]  # nats
    row_text: tuple[str, ...]
    row_ended: tuple[bool, ...]
    samples: int  # rows of each variant
    n_prompt: int  # tokens of the prompt; prompt and new tokens share the context
    n_ctx: int
    cached: bool  # with a KV cache

    def to_frame(self, vocabulary: Vocabulary | None = None) -> Any:
        """A pandas table, one row per new token: row, step, id, (token,) log_probability_nats, rank, entropy_nats."""
        import pandas as pd

        rows, steps = np.nonzero(self.row_ids != AFTER_END)
        ids = self.row_ids[rows, steps]
        columns: dict[str, Any] = {"row": rows, "step": steps, "id": ids}
        if vocabulary is not None:
            columns["token"] = [printable(vocabulary.piece(int(i))) for i in ids]
        columns["log_probability_nats"] = self.row_log_probability[rows, steps]
        columns["rank"] = self.row_rank[rows, steps]
        columns["entropy_nats"] = self.row_entropy_nats[rows, steps]
        return pd.DataFrame(columns)


def generation_steps(
    model: Any,
    tokens: Any,
    *,
    max_new_tokens: Any = DEFAULT_NEW,
    temperature: Any = 0.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    seed: Any = 0,
    samples: Any = 1,
    interventions: Any = (),
    variants: Any = None,
    use_cache: bool = True,
    alternatives: Any = 5,
) -> Steps[Generation]:
    """The steps of `run_generation`: one forward pass of all rows per new token."""
    config = model.config
    ids = check_ids(tokens, d_vocab=config.d_vocab, n_ctx=config.n_ctx)
    check_budget(len(ids), max_new_tokens, config.n_ctx)
    check_whole("number of alternatives", alternatives, 1, config.d_vocab)
    changes = read_variants(model, interventions, variants)
    check_whole("number of samples", samples, 1, MAX_ROWS // len(changes))
    sampler = Sampler(temperature, top_k, top_p, seed, samples)
    written = Written(len(changes) * samples, max_new_tokens, alternatives, model.end_ids)
    cached = use_cache and not model.capabilities["kv_cache"]
    reader = StepReader(model, ids, changes, samples, cached)
    partial: dict[str, Any] = _partial(written, model.tokenizer, ids)
    while written.n < max_new_tokens and not all(written.ended):
        yield Progress(written.n, max_new_tokens, note="writing", partial=partial)
        logits = reader.read(written)
        numbers = sampler.draw() * len(changes)  # the same for every variant: they differ by what is changed alone
        written.add(logits, [sampler.choose(row, number) for row, number in zip(logits, numbers, strict=True)])
        partial = _partial(written, model.tokenizer, ids)
    return _result(written, partial, samples, len(ids), config.n_ctx, cached)


def run_generation(
    model: Any,
    tokens: Any,
    *,
    max_new_tokens: Any = DEFAULT_NEW,
    temperature: Any = 0.0,
    top_k: Any = 0,
    top_p: Any = 1.0,
    seed: Any = 0,
    samples: Any = 1,
    interventions: Any = (),
    variants: Any = None,
    use_cache: bool = True,
    alternatives: Any = 5,
) -> Generation:
    """The continuation of a prompt.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`.
        max_new_tokens: how many to write at most; a row stops earlier at one of the model's end tokens.
        temperature: logits are divided by it; 0 is greedy: always the most probable token, of equals the lowest id.
        top_k: only the k most probable tokens can be drawn; 0 for all.
        top_p: the smallest set of most probable tokens that holds this share can be drawn; 1 for all.
        seed: the same seed gives the same text. Sample i of seed s is sample 0 of seed s + i.
        samples: texts drawn at once, rows of one batch.
        interventions: what holds in every step, e.g. [{"delete": [10, "11.mlp"]}], [{"ablate_heads": ["L18H6"]}] or
            [{"steer": ...}] (`SteeringVector.intervention`).
        variants: lists of interventions instead, to compare: each gets `samples` rows, drawn with the same random numbers.
        use_cache: keep keys and values of earlier tokens, where the model can; the tokens are the same.
        alternatives: how many of the most probable tokens to note at each step.

    Raises:
        ValueError: no tokens, too many in all, a number out of range, or an intervention that is unknown or impossible here.
    """
    return drain(
        generation_steps(
            model,
            tokens,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            samples=samples,
            interventions=interventions,
            variants=variants,
            use_cache=use_cache,
            alternatives=alternatives,
        )
    )


def cost_generation(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """The prompt once per variant, then one position per row and new token that looks at all earlier ones."""
    n_new, k = params.get("max_new_tokens", DEFAULT_NEW), params.get("alternatives", 5)
    n_variants = max(1, len(params.get("variants") or [()]))
    rows = n_variants * params.get("samples", 1)
    if params.get("use_cache", True):
        seconds = profile.forward_seconds(n_tokens, n_variants) + n_new * profile.forward_seconds(1, rows)
        seconds += profile.per_pair * rows * n_new * (n_tokens + n_new / 2)
    else:
        seconds = n_new * profile.forward_seconds(n_tokens + n_new // 2, rows)
    seconds += n_new * rows * profile.per_readout
    longest = n_tokens + n_new
    cache_bytes = 2 * rows * profile.n_layers * longest * profile.d_model * profile.bytes_per_value
    whole = n_variants if params.get("use_cache", True) else rows
    peak = (
        profile.forward_bytes(longest, whole) + cache_bytes + rows * 4 * 8 * profile.d_vocab
    )  # float64: one row's reshaping
    return Cost(seconds, peak, rows * (n_new * (24 + 8 * k) + 400))


def check_budget(n_prompt: int, max_new_tokens: Any, n_ctx: int) -> None:
    """Refuse more new tokens than the context has room for.

    Raises:
        ValueError: no room, no new token, or too many.
    """
    room = n_ctx - n_prompt
    if room < 1:
        raise ValueError(
            f"needs room for a new token within the context of {n_ctx:,}; found a prompt of {n_prompt:,} tokens; shorten it."
        )
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or not 1 <= max_new_tokens <= room:
        found = f"{max_new_tokens:,}" if isinstance(max_new_tokens, int) else repr(max_new_tokens)
        raise ValueError(
            f"needs 1 to {room:,} new tokens after a prompt of {n_prompt:,}, within the context of "
            f"{n_ctx:,}; found {found}; ask for fewer or shorten the prompt."
        )


def read_variants(model: Any, interventions: Any, variants: Any) -> tuple[Interventions, ...]:
    """One set of interventions per variant.

    Raises:
        ValueError: both given, too many or no variants, or what `read_interventions` refuses.
    """
    if variants is None:
        return (read_interventions(model, interventions),)
    if len(interventions):
        raise ValueError("needs interventions or variants; found both; put the interventions into every variant.")
    if isinstance(variants, str | Mapping) or not isinstance(variants, Sequence) or not 1 <= len(variants) <= MAX_ROWS:
        raise ValueError(
            f"needs a list of 1 to {MAX_ROWS} variants, each a list of interventions; found {variants!r}; write "
            '[[], [{"delete": [10]}]].'
        )
    return tuple(read_interventions(model, variant) for variant in variants)


def _partial(written: Written, tokenizer: Any, before: Sequence[int]) -> dict[str, Any]:
    """All rows so far, under the names of the result's fields."""
    n = written.n
    return {
        "row_ids": written.ids[:, :n].copy(),
        "row_log_probability": written.log_probability[:, :n].copy(),
        "row_rank": written.rank[:, :n].copy(),
        "row_entropy_nats": written.entropy[:, :n].copy(),
        "row_text": written.texts(tokenizer, before),
        "row_ended": tuple(written.ended),
    }


def _result(
    written: Written, partial: dict[str, Any], samples: int, n_prompt: int, n_ctx: int, cached: bool
) -> Generation:
    first = np.array(written.of_row(0), dtype=np.int32)
    return Generation(
        ids=first,
        log_probability=partial["row_log_probability"][0, : len(first)],
        text=partial["row_text"][0],
        ended=partial["row_ended"][0],
        **partial,
        top_ids=written.top_ids[:, : written.n].copy(),
        top_log_probability=written.top_log_probability[:, : written.n].copy(),
        samples=samples,
        n_prompt=n_prompt,
        n_ctx=n_ctx,
        cached=cached,
    )
