"""The sentences and tables of the page "Steering", from results: no Streamlit, so a test can read them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from analyses.repetition import distinct, repetition
from analyses.steering import WORKING, Steering
from analyses.steering_damage import SteeringDamage
from analyses.steering_sweep import BREAKS_NATS, SteeringSweep
from app.ui.token_text import percent
from app.views.steering_choices import Setting

HARM_NATS = 0.5  # a rise of the loss on neutral text up to this counts as little, by convention of this page
CONTROLS = {"add": "a random vector of the same size", "project_out": "the same share along a random direction"}


def run_names(mode: str) -> dict[str, str]:
    """The three runs as a table calls them."""
    return {
        "baseline": "baseline",
        "steered": "steered",
        "random": "random, same size" if mode == "add" else "random, same share",
    }


def finding_words(setting: Setting, steering: Steering, damage: SteeringDamage) -> str:
    """The computed sentence about what is steered now."""
    if not setting.amount:
        return (
            "At 0 nothing is added: this is the model itself, and its predictions, costs and texts are exactly its own."
        )
    start = f"At {setting.amount:g}" if setting.mode == "add" else f"With {100 * setting.amount:.0f} % of it taken out"
    loss, random_loss = (float(change) for change in damage.loss_change_nats[1:3])
    everywhere = "" if setting.where == "both" else ", steered at every token,"
    neutral = f"the loss on neutral text{everywhere} {_rises(loss)} ({random_loss:+.2g})"
    broken = " The text breaks here." if loss > BREAKS_NATS and setting.where != "prompt" else ""
    if steering.n_steered == 0:
        return f"{start} this prompt's prediction stays as it is, because none of its tokens is steered; {neutral}.{broken}"
    control = f"{CONTROLS[setting.mode]}: "
    if steering.target_ids:
        _, steered, random = (float(change) for change in steering.log_odds_change)
        effect = f"the log-odds of the target words {_rises(steered, plural=True)} ({control}{random:+.2g})"
        return f"{start} {effect}; {neutral}.{broken}"
    _, steered, random = projection_change(steering)
    return (
        f"{start} the last stream moves {_signed(steered)} of its usual length along the vector ({control}"
        f"{_signed(random)}); {neutral}.{broken}"
    )


def _rises(change: float, *, plural: bool = False) -> str:
    """A change as a verb with its amount."""
    verb = "rise" if change >= 0 else "fall"
    return f"{verb if plural else verb + 's'} by {abs(change):.2g} nats"


def projection_change(steering: Steering) -> list[float]:
    """Per run: how far the last position's last stream moved along the vector, in mean lengths of the stream there."""
    moved = (steering.projection[:, -1] - steering.projection[0, -1]) / steering.reference_norms[-1]
    return [float(value) for value in moved]


def size_words(setting: Setting, steering: Steering, n_tokens: int) -> str:
    """How long the added vector is, and which tokens it is added to."""
    if not setting.amount:
        return "Nothing is added."
    tokens = f"{steering.n_steered} of the prompt's {n_tokens} tokens (never token 0)"
    if steering.n_steered == 0:
        tokens = "none of the prompt's tokens, because token 0 is never steered"
    if setting.mode == "project_out":
        return f"{100 * setting.amount:.0f} % of the component along the vector is taken out at {tokens}."
    added = np.abs(steering.added)
    size = f"{added[0]:.3g}" if len(added) == 1 else f"{added.min():.3g} to {added.max():.3g}"
    if len(added) == 1:
        length = steering.reference_norms[steering.layers[0]]
        usual = f"{abs(setting.amount):g} times {length:.3g}, the stream's mean length there"
    else:
        usual = f"{abs(setting.amount):g} times the stream's mean length at each layer"
    back = ", turned round" if setting.amount < 0 else ""
    beyond = (
        f" Beyond ±{WORKING[1]:g} the embedded model's text usually breaks." if abs(setting.amount) > WORKING[1] else ""
    )
    return f"A vector of length {size} ({usual}){back} is added to {tokens}.{beyond}"


def cost_table(steering: Steering, damage: SteeringDamage, mode: str) -> dict[str, list[str]]:
    """Effect and damage of the three runs."""
    columns = {"run": [run_names(mode)[name] for name in steering.runs]}
    if steering.target_ids:
        columns["target log-odds (nats)"] = [f"{value:.2f}" for value in steering.log_odds]
        columns["change"] = [_signed(value) for value in steering.log_odds_change]
        total = np.exp(steering.target_log_probability.astype(np.float64)).sum(1)
        columns["all targets together"] = [percent(min(value, 1.0)) for value in total]
    else:
        columns["moved along the vector (lengths)"] = [_signed(value) for value in projection_change(steering)]
    columns["KL on neutral text"] = [f"{value:.3f}" for value in damage.mean_kl_nats]
    columns["rise of its loss"] = [_signed(value, 3) for value in damage.loss_change_nats]
    columns["same first choice"] = [f"{100 * value:.0f} %" for value in damage.agreement.astype(np.float64).mean(1)]
    return columns


def written_table(rows: Sequence[Sequence[int]], targets: Sequence[int], names: Sequence[str]) -> dict[str, list[str]]:
    """How much each written text repeats itself, and how many of its tokens are targets."""
    shown = [np.array(row) for row in rows]
    columns = {
        "text": list(names),
        "tokens": [str(len(row)) for row in shown],
        "distinct-1": [_share(distinct(row, 1)) for row in shown],
        "distinct-2": [_share(distinct(row, 2)) for row in shown],
        "repeated 4-grams": [_share(repetition(row, 4)) for row in shown],
    }
    if targets:
        columns["target tokens"] = [str(int(np.isin(row, list(targets)).sum())) for row in shown]
    return columns


def working_columns(sweep: SteeringSweep) -> list[tuple[int, int] | None]:
    """Per layer: first and last column around zero at which neutral text loses less than `HARM_NATS`; None for none."""
    found: list[tuple[int, int] | None] = []
    order = np.argsort(sweep.coefficients)
    for row in sweep.loss_change_nats:
        fine = [bool(row[column] < HARM_NATS) for column in order]
        below = [place for place, column in enumerate(order) if sweep.coefficients[column] <= 0]
        above = [place for place, column in enumerate(order) if sweep.coefficients[column] >= 0]
        low = _reach(list(reversed(below)), fine)
        high = _reach(above, fine)
        ends = [end for end in (low, high) if end is not None]
        found.append((min(ends), max(ends)) if ends else None)
    return found


def range_words(sweep: SteeringSweep, layer: int) -> str:
    """The coefficients that do little damage before a layer, and the largest effect that any of them has anywhere."""
    coefficients = np.sort(sweep.coefficients.astype(np.float64).round(3))
    rows = list(working_columns(sweep))
    near = int(np.argmin(np.abs(sweep.layers - layer)))
    span = rows[near]
    words = (
        "at no coefficient tried" if span is None else f"from {coefficients[span[0]]:g} to {coefficients[span[1]]:g}"
    )
    said = (
        f"Little damage before layer {sweep.layers[near]}: {words}, where the loss on neutral text rises by less than "
        f"{HARM_NATS:g} nats per token (outlined for every layer); from {BREAKS_NATS:g} nats on text falls apart."
    )
    best = strongest(sweep)
    if best is None:
        return f"{said} Nothing rises within the outlines."
    at, coefficient, effect = best
    unit = "nats" if sweep.unit.startswith("log-odds") else "lengths"
    return (
        f"{said} The largest effect within the outlines is {effect:+.2g} {unit}, before layer {at} at {coefficient:g}."
    )


def strongest(sweep: SteeringSweep) -> tuple[int, float, float] | None:
    """Layer, coefficient and effect of the largest effect within the outlines; None where nothing rises there."""
    order = np.argsort(sweep.coefficients)
    inside = np.zeros(sweep.effect.shape, dtype=bool)
    for row, span in enumerate(working_columns(sweep)):
        if span is not None:
            inside[row, order[span[0] : span[1] + 1]] = True
    effect = np.where(inside & np.isfinite(sweep.effect), sweep.effect, -np.inf)
    row, column = np.unravel_index(int(effect.argmax()), effect.shape)
    if not effect[row, column] > 0:
        return None
    return int(sweep.layers[row]), round(float(sweep.coefficients[column]), 3), float(effect[row, column])


def code_lines(chosen: Any, setting: Setting, prompt: str | None, bos: str) -> str:
    """Python that gives the numbers of the page; uses `model` and `text`.

    Args:
        chosen: the vector.
        setting: how it is used.
        prompt: the example's, where it is steered instead of the frame's.
        bos: what is put in front of it.
    """
    first = "" if prompt is None else f"text = run_tokenization(model, {prompt!r}, bos={bos!r}, plain=True)\n"
    if chosen.recipe is None:
        first += f"vector = load_vector({file_name(chosen.name)!r})  # the file that this page saves\n"
    else:
        made = ", ".join(f"{key}={value!r}" for key, value in chosen.recipe.items())
        first += f"vector = make_steering_vector(model, name={chosen.name!r}, {made})\n"
    place = ", ".join(f"{key}={value!r}" for key, value in setting.place.items())
    seed = f", seed={setting.seed}" if setting.seed else ""
    words = "".join(f", {key}={value!r}" for key, value in setting.words.items() if value)
    return (
        f"{first}steer = run_steering(model, text.ids, vector, {place}, where={setting.where!r}{words}{seed})\n"
        f"damage = run_steering_damage(model, vector, {place}{seed})\n"
        f"steered = vector.intervention({place}, where={setting.where!r})\n"
        "writes = run_generation(model, text.ids, max_new_tokens=40, variants=[[], [steered]])\n"
        "print(steer.log_odds_change, damage.loss_change_nats, writes.row_text)\n"
        "print(steer.to_frame(), damage.to_frame(), sep='\\n')"
    )


def file_name(name: str) -> str:
    """A file name for a vector, of plain characters."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")
    return f"{plain or 'vector'}.safetensors"


def _reach(places: Sequence[int], fine: Sequence[bool]) -> int | None:
    """The last place before the first that is not fine."""
    reached = None
    for place in places:
        if not fine[place]:
            break
        reached = place
    return reached


def _signed(value: float, digits: int = 2) -> str:
    """With its sign; what rounds to nothing has none."""
    rounded = round(value, digits)
    return "0" if value == 0 else f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"
