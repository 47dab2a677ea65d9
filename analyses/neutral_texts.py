"""Eight plain sentences that have nothing to do with any steering vector: what a vector does to them is damage.

Written for this project. Each says one ordinary thing; together they are about a hundred tokens.

Limit: eight sentences of one register. A vector may spare them and harm code, another language or long texts.
"""

import json
from pathlib import Path

NEUTRAL_TEXTS: tuple[str, ...] = tuple(
    json.loads((Path(__file__).parent / "data" / "neutral_texts.json").read_text("utf-8"))
)
NEUTRAL_TOKENS = 17  # of one of them, about: what an estimate counts with
