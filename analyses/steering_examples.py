"""Steering vectors that work on the embedded model: texts, words, prompts, and what was measured.

Each was chosen among eight candidates by what it does, not by its name (docs/log.md has the others). The texts are the app's own.

Limit: measured on SmolLM2-135M-Instruct, dequantised from 4 bits; another model needs other layers and may do nothing with them.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SteeringExample:
    """What makes a vector, and where it was measured."""

    name: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]
    layer: int
    coefficient: float  # to start with
    working: tuple[float, float]  # coefficients with an effect and without broken text, as measured
    targets: tuple[str, ...]  # single tokens
    against: tuple[str, ...]
    prompt: str  # shows it
    prompts: tuple[str, ...]  # where the figures below were measured; means over them
    look_for: str
    effect_nats: float  # rise of the log-odds of `targets` against `against` at `coefficient`
    opposite_effect_nats: float  # at minus `coefficient`
    random_effect_nats: float  # of a random direction of the same length
    loss_change_nats: float  # on the neutral sentences of a sweep

    @property
    def texts(self) -> dict[str, Any]:
        """What `run_steering_vector` takes."""
        return {"positive": list(self.positive), "negative": list(self.negative), "layer": self.layer}


def _read() -> tuple[SteeringExample, ...]:
    rows = json.loads((Path(__file__).parent / "data" / "steering_examples.json").read_text("utf-8"))
    return tuple(SteeringExample(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in rows)


STEERING_EXAMPLES: tuple[SteeringExample, ...] = _read()
