"""What can this model do here, and can its numbers be trusted?

Measured once at load on a few random ids, by effect and never by the model's name: a hook that exists may never fire,
and one that fires may be ignored (GPT-Neo drops an edited attention map without an error).
What fails becomes a missing capability with its reason. It never stops the load and is never used silently.

Limit: eight random tokens, and edits in three layers only. This finds a kind of failure, not a rare one.
"""

from analyses._config import Check
from analyses._probes import (
    FLOAT32,
    HALF,
    SINKS,
    Finding,
    Limits,
    Seen,
    cache_gap,
    effects,
    gap,
    read,
    replay_gap,
    row_gap,
    softmax_gap,
    sum_gap,
    tried,
)
from analyses.model import HookedModel

N_TOKENS = 8


def probe(model: HookedModel) -> tuple[dict[str, str], tuple[Check, ...]]:
    """Capabilities (name -> "" or why not, in plain words) and the five self-checks of a model that was just loaded.

    Seven forward passes of eight tokens or fewer per row: a load should not wait longer for this than for its weights.
    """
    import torch

    limits = FLOAT32 if model.config.dtype == "float32" else HALF
    with torch.inference_mode():
        ids = torch.randint(0, model.config.d_vocab, (1, N_TOKENS), generator=torch.Generator().manual_seed(0))
        seen, logits = read(model, ids)
        edits = effects(model, ids[:, :4])
        found = {
            "lens": tried(lambda: gap(logits, model.readout(seen["resid_post"][-1]), limits)),
            "rows": _rows(seen, limits),
            "hook": edits["resid_pre"],
            "replay": tried(lambda: replay_gap(model, ids, limits)),
            "cache": tried(lambda: cache_gap(model, ids, logits, limits)),
        }
        halves = _sum(seen, limits, "resid_mid", "resid_pre", "attn_out")
        whole = _sum(seen, limits, "resid_post", "resid_pre", "attn_out", "mlp_out")
        capabilities = {
            "pattern": _silent(seen, "pattern"),
            "pattern_writable": _silent(seen, "pattern") or edits["pattern"].reason,
            "scores": _silent(seen, "scores") or tried(lambda: softmax_gap(seen, limits)).reason,
            "resid_writable": edits["resid_pre"].reason,
            "resid_mid": halves or edits["resid_mid"].reason,
            "head_output": _silent(seen, "head_output") or edits["head_output"].reason,
            "attn_out": _silent(seen, "attn_out") or whole or edits["attn_out"].reason,
            "mlp_out": _silent(seen, "mlp_out") or whole or edits["mlp_out"].reason,
            "rotary": _silent(seen, "rotated_query") or _silent(seen, "rotated_key"),
            "rows_sum_to_one": found["rows"].reason,
            "replay": found["replay"].reason,
            "readout": found["lens"].reason,
            "kv_cache": found["cache"].reason,
        }
    return capabilities, tuple(_check(name, finding) for name, finding in found.items())


# ---- the self-checks in words: (what holds, what does not) ----

SENTENCES = {
    "lens": (
        "Reading the stream after the last layer gives the model's own output",
        "Reading the stream after the last layer does not give the model's own output, so a lens would mislead",
    ),
    "rows": ("Every row of every attention map sums to one", "Some rows of the attention maps do not sum to one"),
    "hook": (
        "Changing the stream between two layers changes the output",
        "Changing the stream between two layers does not reach the output, so nothing can be steered",
    ),
    "replay": (
        "Running the layers one by one gives the same output as running the model at once",
        "Running the layers one by one gives another output than running the model at once",
    ),
    "cache": (
        "Reading token by token with the cache gives the same output as reading the text at once",
        "Reading token by token with the cache gives another output than reading the text at once",
    ),
}


def _check(name: str, finding: Finding) -> Check:
    """A self-check; sinks are a property of the model, not a failure, and the sentence says so."""
    passed = not finding.reason or finding.reason == SINKS
    sentence = SENTENCES[name][not passed]
    if finding.reason == SINKS:
        sentence = "Rows of the attention maps sum to less than one, as they must in this model: " + SINKS
    if finding.value is None:
        figures = finding.reason
    elif name == "hook":
        figures = f"logits move by {finding.value:.2g}; without a change by {finding.limit:.2g}"
    else:
        figures = f"off by {finding.value:.2g}, limit {finding.limit:g}"
    return Check(name, passed, finding.value, finding.limit, f"{sentence} ({figures}).")


WORDS = {
    "pattern": "attention maps",
    "scores": "attention scores",
    "resid_pre": "stream before each block",
    "resid_post": "stream after each block",
    "resid_mid": "half-way stream (attention and MLP may read the same stream, side by side)",
    "head_output": "head outputs",
    "attn_out": "attention outputs",
    "mlp_out": "MLP outputs",
    "rotated_query": "rotated queries (positions may not be rotary here, or be applied inside one step)",
    "rotated_key": "rotated keys (positions may not be rotary here, or be applied inside one step)",
}


def _rows(seen: Seen, limits: Limits) -> Finding:
    if quiet := _silent(seen, "pattern"):
        return Finding(None, limits.rows, quiet)
    return tried(lambda: row_gap(seen, limits))


def _sum(seen: Seen, limits: Limits, total: str, *parts: str) -> str:
    """Why a stream is not known to be the sum of its parts, or ""."""
    quiet = next(filter(None, (_silent(seen, point) for point in (total, *parts))), "")
    return quiet or tried(lambda: sum_gap(seen, limits, total, parts)).reason


def _silent(seen: Seen, point: str) -> str:
    """Why a point cannot be read, or ""."""
    n_layers, missing = len(seen[point]), [i for i, tensor in enumerate(seen[point]) if tensor is None]
    if not missing:
        return ""
    where = "no layer" if len(missing) == n_layers else f"not every layer (missing: {', '.join(map(str, missing))})"
    return f"{where} reports its {WORDS[point]}"
