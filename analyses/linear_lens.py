"""What would the stream say if its basis did not drift? A linear lens, fitted by least squares, beside the plain one.

The logit lens reads every depth with the final norm and the unembedding, which know the last depth only. Here an affine map per
depth, fitted on a text, first carries the stream into the last depth's basis: readout(x W + b) instead of readout(x).

Source: Din, Karidi, Choshen, Geva 2023, "Jump to Conclusions: Short-Cutting Transformers With Linear Transformations". Ours
adds a bias, and its penalty pulls W towards the identity. Belrose et al. 2023, "Eliciting Latent Predictions from Transformers
with the Tuned Lens", train the map by gradient on the KL divergence instead.

Identity: at the last depth the map is the identity, so the lens is the model's own output; plain and linear agree there.

Limit: a map is a model of its own. What it reads was made readable by fitting, on one kind of text, and by regression towards
what is usual; the held-out figures say how far to trust it, on text of that kind.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from analyses import _lens_fit, _maps
from analyses._arrays import check_ids
from analyses._maps import LinearMaps
from analyses._readout import CHUNK_BYTES, row_chunks
from analyses._steps import Cost, Profile, Progress, Steps, drain

VERSION = 1  # raise it when the same text and model give other maps
TEXT = Path(__file__).with_name("data") / "linear_lens_text.txt"  # to fit on, a form feed, held out
WINDOW = 512  # tokens read at once
FIT_TOKENS, HELD_OUT_TOKENS = 11_264, 2_560  # of the built-in text: 22 and 5 windows
OWN_TOKENS, OWN_HELD_OUT = 256, 5  # the shortest text of one's own, and which part of it is held out: the last fifth
NOTE = "linear_lens"  # the figures lie in the file of the maps under this name


@dataclass(frozen=True, eq=False)
class LinearLens:
    """What a fit is worth: means over held-out positions, by depth. Position 0 counts nowhere (a massive activation)."""

    name: str  # what run_logit_lens(lens=name) takes: "linear", or "own:" and the digest of the ids
    n_fitted: int  # positions that the maps were fitted on
    n_held_out: int  # positions that the figures are means of
    ridge: float  # the penalty, as a share of the mean diagonal of the centred sum of x x'
    plain_kl_nats: Float32[np.ndarray, " depth"]  # KL(p_last || p_depth) of the logit lens
    plain_loss_nats: Float32[np.ndarray, " depth"]  # of the token that really follows
    linear_kl_nats: Float32[np.ndarray, " depth"]
    linear_loss_nats: Float32[np.ndarray, " depth"]
    uniform_loss_nats: float  # ln vocabulary: above it is worse than guessing

    @property
    def plain_worse_than_uniform_through(self) -> int:
        """The last depth at which the plain lens is worse than guessing; -1 when there is none."""
        worse = np.flatnonzero(self.plain_loss_nats > self.uniform_loss_nats)
        return int(worse[-1]) if len(worse) else -1

    def to_frame(self) -> Any:
        """A pandas table, one row per depth: depth and the four figures, in nats."""
        import pandas as pd

        names = ("plain_kl_nats", "plain_loss_nats", "linear_kl_nats", "linear_loss_nats")
        return pd.DataFrame({"depth": np.arange(len(self.plain_kl_nats))} | {n: getattr(self, n) for n in names})


def linear_lens_steps(model: Any, tokens: Any, *, text: str = "built-in") -> Steps[LinearLens]:
    """The steps of `run_linear_lens`: a step per window, depth solved, and chunk of readouts."""
    name, ids = _named(model, tokens, text)
    model.require("readout")
    path = _file(model, name)
    yield Progress(0, 1, note="looking for a fit on disk")
    if (kept := _read(path)) is not None:
        return kept
    config = model.config
    _maps.check_room(path, 4 * config.n_layers * config.d_model * (config.d_model + 1))
    found, maps = yield from _fit(model, name, *_windows(model, ids))
    _maps.write_maps(path, maps, {NOTE: _to_json(found)})
    _maps.tidy(path.parent, "own-*.safetensors")
    return found


def run_linear_lens(model: Any, tokens: Any = (), *, text: str = "built-in") -> LinearLens:
    """Fit a linear lens, keep it on disk, and say what it is worth on text it has not seen.

    A second call with the same model and text reads the file. `run_logit_lens(..., lens=result.name)` then uses it.

    Args:
        model: a HookedModel.
        tokens: ids, or the `Tokens` of `run_tokenization`; read only with `text="prompt"`.
        text: "built-in" fits on the text that comes with the app; "prompt" on `tokens`, at least 256, the last fifth held
            out. A few such fits are kept per model, the newest.

    Raises:
        ValueError: too short a prompt, another choice of text, no room on disk, or a stream that is not finite.
    """
    return drain(linear_lens_steps(model, tokens, text=text))


def load_maps(model: Any, name: str) -> LinearMaps:
    """The maps of a fit that was made before: `.apply(depth, rows)` carries rows of the stream into the last depth's basis.

    Args:
        model: a HookedModel.
        name: `LinearLens.name`.

    Raises:
        ValueError: no name of a fit, or this model has none of that name yet.
    """
    if not re.fullmatch(r"linear|own:[0-9a-f]{16}", name):
        raise ValueError(
            f"needs the name of a linear lens, 'linear' or 'own:' and 16 digits; found {name!r}; take `.name` of a fit."
        )
    if (maps := _maps.open_maps(model, _file(model, name))) is None:
        how = "on the built-in text" if name == "linear" else "on that text again"
        raise ValueError(
            f"needs a linear lens fitted on {model.config.name}; found none named {name!r}; fit it {how} first."
        )
    return maps


def cost_linear_lens(profile: Profile, n_tokens: int, params: Mapping[str, Any]) -> Cost:
    """The windows once per group of depths, the sums, the equations, and two readouts per depth and position tried.

    A fit that lies on disk already takes no time; this function cannot know.
    """
    n_fit, n_held = FIT_TOKENS, HELD_OUT_TOKENS
    if params.get("text", "built-in") == "prompt":
        n_held = n_tokens // OWN_HELD_OUT
        n_fit = n_tokens - n_held
    window = min(WINDOW, profile.n_ctx, max(n_fit, 1))
    depths, width, value = profile.n_layers, profile.d_model, profile.bytes_per_value
    groups = _lens_fit.groups_of(depths, width)
    tried = min(_lens_fit.TRIED, n_held)
    per_operation = profile.per_readout / (2 * width * profile.d_vocab)
    # Per row and depth two square products; per depth a Cholesky factor and its use, in float64, at half the speed.
    operations = depths * (4 * n_fit * width**2 + 2 * 2.4 * width**3)
    windows = math.ceil(n_fit / window) + math.ceil(n_held / window)
    at_once = len(groups[0])
    return Cost(
        seconds=len(groups) * windows * profile.forward_seconds(window)
        + operations * per_operation
        + (2 * depths + len(groups)) * tried * profile.per_readout,
        peak_bytes=profile.forward_bytes(window)
        + 8 * at_once * width**2  # two sums per depth, float32
        + 4 * depths * width * (width + 1)  # the maps
        + 5 * 8 * width**2  # the equations of one depth, float64
        + (at_once + 1) * (window + tried) * width * value  # streams of a window, and those that are tried
        + 2 * CHUNK_BYTES,
        result_bytes=4 * 4 * (depths + 1) + 64,
    )


# -- the fit -------------------------------------------------------------------------------------------------------


def _fit(
    model: Any, name: str, fit: Sequence[tuple[int, ...]], held_out: Sequence[tuple[int, ...]]
) -> Steps[tuple[LinearLens, dict[int, tuple[Any, Any]]]]:
    """Fit the depths, group by group, and try the maps on the held-out windows: the result, and the maps."""
    config, tried = model.config, _lens_fit.spread(held_out)
    groups, n_tried = _lens_fit.groups_of(config.n_layers, config.d_model), sum(map(len, tried))
    n_chunks = sum(1 for _ in row_chunks(model, n_tried, held=_lens_fit.HELD_LOGITS))
    bar = _lens_fit.Bar(
        len(groups) * _lens_fit.WINDOW_SHARE * (len(fit) + len(held_out)) + (n_chunks + 1) * config.n_layers
    )
    sums = np.zeros((2, 2, config.n_layers + 1))  # KL and loss, plain and linear, depth
    maps: dict[int, tuple[Any, Any]] = {}
    for depths in groups:
        moments = yield from _lens_fit.add_up(model, fit, depths, bar)
        for depth in depths:
            model.check()
            maps[depth] = moments.pop(depth).solve()  # popped: its sums make room for the next
            yield bar.after(1, f"solving for depth {depth}")
        yield from _lens_fit.try_maps(model, held_out, tried, {d: maps[d] for d in depths}, sums, bar)
    n_fitted = sum(len(window) - 1 for window in fit)
    means = (sums / n_tried).astype(np.float32)
    found = LinearLens(
        name=name,
        n_fitted=n_fitted,
        n_held_out=n_tried,
        ridge=_maps.relative_ridge(n_fitted),
        plain_kl_nats=means[0, 0],
        plain_loss_nats=means[1, 0],
        linear_kl_nats=means[0, 1],
        linear_loss_nats=means[1, 1],
        uniform_loss_nats=math.log(config.d_vocab),
    )
    return found, maps


# -- texts and files -----------------------------------------------------------------------------------------------


def _named(model: Any, tokens: Any, text: str) -> tuple[str, tuple[int, ...]]:
    """The name of the fit, and the ids of one's own text (none with the built-in one)."""
    if text == "built-in":
        return "linear", ()
    if text != "prompt":
        raise ValueError(f"needs a text to fit on, 'built-in' or 'prompt'; found {text!r}; choose one of the two.")
    ids = check_ids(tokens, d_vocab=model.config.d_vocab, n_ctx=model.config.n_ctx, at_least=OWN_TOKENS)
    return own_name(ids), ids


def _windows(model: Any, ids: tuple[int, ...]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The windows to fit on and to hold out, of one's own ids or, without any, of the built-in text."""
    size = min(WINDOW, model.config.n_ctx)
    if ids:
        cut = len(ids) - len(ids) // OWN_HELD_OUT
        return _lens_fit.windows_of(ids[:cut], (), size), _lens_fit.windows_of(ids[cut:], (), size)
    (front, fit), (_, held_out) = (_lens_fit.encoded(model.tokenizer, part) for part in _shipped().split("\f\n"))
    return (
        _lens_fit.windows_of(fit[:FIT_TOKENS], front, size),
        _lens_fit.windows_of(held_out[:HELD_OUT_TOKENS], front, size),
    )


@cache
def _shipped() -> str:
    return TEXT.read_text(encoding="utf-8")


def own_name(ids: Sequence[int]) -> str:
    """What the fit on one's own text is called."""
    return f"own:{hashlib.sha256(np.array(ids, dtype='<i8').tobytes()).hexdigest()[:16]}"


def is_fitted(fingerprint: str, name: str) -> bool:
    """Whether this model's fit of this name lies on disk; one that is damaged is found out when it is read."""
    return _path(fingerprint, name).exists()


def _file(model: Any, name: str) -> Path:
    return _path(model.config.fingerprint, name)


def _path(fingerprint: str, name: str) -> Path:
    """Where a fit lies: the name holds the model, the text and the version of this code."""
    text = name.replace(":", "-")
    if name == "linear":
        text += "-" + hashlib.sha256(_shipped().encode()).hexdigest()[:16]
    return _maps.folder_of(fingerprint) / f"{text}-v{VERSION}.safetensors"


def _to_json(found: LinearLens) -> str:
    values = {f.name: getattr(found, f.name) for f in fields(found)}
    return json.dumps({n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in values.items()})


def _read(path: Path) -> LinearLens | None:
    """The result that lies beside the maps; None when there is none, or the file is damaged."""
    try:
        values = json.loads((_maps.read_notes(path) or {})[NOTE])
        return LinearLens(**{n: np.array(v, np.float32) if isinstance(v, list) else v for n, v in values.items()})
    except (KeyError, ValueError, TypeError):
        return None
