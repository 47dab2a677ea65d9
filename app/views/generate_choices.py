"""How the next tokens are chosen and how many are written: the choices of the page "Generate"."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from analyses.generation import DEFAULT_NEW, check_budget
from app.ui.controls import segments
from app.ui.frame import Frame
from app.ui.run import about, seconds_of
from app.ui.words import say_error, say_note

GREEDY, SAMPLED = "Greedy", "Sampled"
MAX_NEW, MAX_SAMPLES, MAX_SEED = 1000, 4, 2**31 - 1
LISTED = 8  # alternatives noted at each step


@dataclass(frozen=True)
class Settings:
    """What a press of "Write" asks for."""

    how: str  # "Greedy" or "Sampled"
    new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    samples: int

    @property
    def params(self) -> dict[str, Any]:
        """Keywords of `run_generation`; what has no effect on a greedy text is left out."""
        same = {"max_new_tokens": self.new_tokens, "alternatives": LISTED}
        if self.temperature_in_use == 0:
            return same
        drawing = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        return {**same, **drawing, "seed": self.seed, "samples": self.samples}

    @property
    def temperature_in_use(self) -> float:
        """0 where the most probable token is always taken."""
        return 0.0 if self.how == GREEDY else self.temperature

    @property
    def words(self) -> str:
        """The settings in a few words."""
        return words_of_params(self.params)


def words_of_params(params: dict[str, Any]) -> str:
    """What a request asked for, in a few words."""
    tokens = f"up to {params['max_new_tokens']:,} tokens"
    if not params.get("temperature"):
        return f"greedy, {tokens}"
    kept = f"top-k {params['top_k']}, " if params["top_k"] else ""
    kept += f"top-p {params['top_p']:g}, " if params["top_p"] < 1 else ""
    texts = f", {params['samples']} samples" if params["samples"] > 1 else ""
    return f"sampled at temperature {params['temperature']:g}, {kept}seed {params['seed']}{texts}, {tokens}"


def choose(frame: Frame) -> tuple[Settings, bool, float]:
    """The controls, one row.

    Returns:
        The settings, whether "Write" was pressed, and the estimated seconds; infinite where it does not fit.
    """
    kind, number, more, button = st.columns([2, 2, 1, 1], vertical_alignment="bottom")
    with kind:
        how = segments(
            "The next token",
            (GREEDY, SAMPLED),
            key="write",
            help="Greedy takes the most probable token every time. Sampled draws one: more probable tokens come more often.",
        )
    with number:
        new = st.number_input("New tokens, at most", 1, MAX_NEW, DEFAULT_NEW, key="new_tokens", bind="query-params")
    with more, st.popover("More", width="stretch"):
        drawing = _choose_drawing(greedy=how == GREEDY)
    settings = Settings(how, int(new), *drawing)
    seconds = _seconds(frame, settings)
    with button:
        pressed = st.button(
            "Write", key="generate.write", type="primary", width="stretch", disabled=seconds == float("inf")
        )
    return settings, pressed, seconds


def _choose_drawing(*, greedy: bool) -> tuple[float, int, float, int, int]:
    """Temperature, top-k, top-p, seed and samples; named as on the page "Tokens", so a link means the same on both."""
    if greedy:
        say_note("These are about sampling; a greedy text is always the same.")
    temperature = st.slider(
        "Temperature",
        0.0,
        2.0,
        1.0,
        0.05,
        key="temperature",
        bind="query-params",
        disabled=greedy,
        help="Logits are divided by it: below 1 sharpens, above 1 flattens, 0 always takes the most probable token.",
    )
    top_k = st.slider(
        "Top-k (0 = all)",
        0,
        200,
        0,
        key="top_k",
        bind="query-params",
        disabled=greedy,
        help="Only the k most probable stay.",
    )
    top_p = st.slider(
        "Top-p",
        0.05,
        1.0,
        1.0,
        0.01,
        key="top_p",
        bind="query-params",
        disabled=greedy,
        help="The smallest set of most probable tokens that holds this share of what top-k left.",
    )
    seed = st.number_input(
        "Seed",
        0,
        MAX_SEED,
        0,
        key="seed",
        bind="query-params",
        disabled=greedy,
        help="The same seed gives the same text. Sample 1 of seed 0 is sample 0 of seed 1.",
    )
    samples = st.slider(
        "Samples", 1, MAX_SAMPLES, 1, key="samples", bind="query-params", disabled=greedy, help="Texts written at once."
    )
    return temperature, top_k, top_p, int(seed), samples


def _seconds(frame: Frame, settings: Settings) -> float:
    """The estimate; a request that does not fit the context is refused here, before the click."""
    ids, config = frame.tokens.ids, frame.model.config
    if not ids:
        return float("inf")
    try:
        check_budget(len(ids), settings.new_tokens, config.n_ctx)
    except ValueError as error:
        say_error(str(error))
        return float("inf")
    seconds = seconds_of("generation", ids, model=config.fingerprint, **settings.params)
    left = config.n_ctx - len(ids)
    st.caption(
        f"{len(ids):,} tokens of prompt leave room for {left:,} of {config.n_ctx:,}. Writing takes {about(seconds)} here."
    )
    if reason := frame.model.capabilities.get("kv_cache"):
        say_note(f"Every new token reads the whole text again, because this model keeps no cache: {reason}")
    return seconds
