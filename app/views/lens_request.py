"""What the page "Logit lens" asks the model for, and the same in Python."""

from dataclasses import replace
from typing import Any

from app.ui.frame import Frame
from app.ui.parts import run_in_parts
from app.ui.run import Outcome, about, previous, run, seconds_of
from app.ui.words import say_note
from app.views.lens_choices import WINDOW, Choices, window
from app.views.lens_columns import known_columns, spread
from app.views.lens_picture import HOVERED

EXACT_UP_TO = 64  # positions; grids of more are read fast unless exact numbers are asked for
GRID_SLOT = "lens.grid"
LISTED = 10  # tokens per depth in the table of the chosen position


def grid_params(choices: Choices, n_tokens: int, lens: str) -> dict[str, Any]:
    """Parameters of the grid's request."""
    positions = window(n_tokens, choices.position, choices.all_positions)
    return {
        "positions": positions,
        "target": choices.target or None,
        "distractor": choices.distractor or None,
        "top_k": HOVERED,
        "exact": choices.exact or len(positions) <= EXACT_UP_TO,
        "lens": lens,
    }


def ask_grid(frame: Frame, params: dict[str, Any]) -> Outcome | None:
    """Every depth and the chosen positions; says what all positions would take while only some are shown.

    While the result is not `finished`, its columns are blank where nothing is known yet.
    """
    ids, fingerprint = frame.tokens.ids, frame.model.config.fingerprint
    if len(params["positions"]) < len(ids):
        more = {**params, "positions": "all", "exact": params["exact"] and len(ids) <= EXACT_UP_TO}
        seconds = seconds_of("logit_lens", ids, model=fingerprint, **more)
        first, last = params["positions"][0], params["positions"][-1]
        say_note(
            f"{WINDOW} of {len(ids):,} tokens are read: {first} to {last}. All of them ("
            f'"All" above) take {about(seconds)} here.'
        )
    known = known_columns(previous(GRID_SLOT, fingerprint), ids, params)
    outcome = run_in_parts("logit_lens", ids, slot=GRID_SLOT, model=fingerprint, at_once=known, **params)
    if outcome is None or outcome.finished:
        return outcome
    parts = [part for part in (known, outcome.result) if part is not None]
    return replace(outcome, result=spread(parts, params["positions"]))


def ask_one(frame: Frame, choices: Choices, lens: str) -> Outcome | None:
    """The chosen position alone, exact, with the half-way stream where the family has one and the lens is the plain one."""
    mid = lens == "plain" and not frame.model.capabilities["resid_mid"]
    return run(
        "logit_lens",
        frame.tokens.ids,
        slot=f"lens.one.{'plain' if lens == 'plain' else 'linear'}",
        model=frame.model.config.fingerprint,
        positions=(choices.position,),
        target=choices.target or None,
        distractor=choices.distractor or None,
        top_k=LISTED,
        mid=mid,
        lens=lens,
    )


def code_lines(choices: Choices, params: dict[str, Any], lens: str) -> str:
    """Python that gives the numbers of the grid and of the bars; uses `model` and `text`."""
    fit = "" if lens == "plain" else f"run_linear_lens(model, text.ids, text={_fit_text(lens)!r})\n"
    shown = {name: value for name, value in params.items() if value is not None and name != "exact"}
    given = ", ".join(f"{name}={value!r}" for name, value in shown.items())
    given += "" if params["exact"] else ", exact=False"
    pair = {"target": params["target"], "distractor": params["distractor"]}
    who = "".join(f", {name}={value!r}" for name, value in pair.items() if value is not None)
    return (
        f"{fit}lens = run_logit_lens(model, text.ids, {given})\n"
        f"who = run_attribution(model, text.ids, position={choices.position}{who})\n"
        f"stream = run_residual_stream(model, text.ids)\n"
        "print(lens.to_frame(), who.to_frame(), stream.to_frame(), sep='\\n')"
    )


def _fit_text(lens: str) -> str:
    return "built-in" if lens == "linear" else "prompt"
