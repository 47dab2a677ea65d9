"""Five short texts of different kinds, to see whether a finding depends on the text.

Which layers are cheap to lose differs between prose, a list, code, a string that repeats itself and another language: a repeated
string can be continued by copying alone (Olsson et al. 2022, "In-context Learning and Induction Heads"), prose cannot. Written
for this project, so no model has read them in training, and free to use under its licence.

Limit: one passage of about a hundred tokens is not a kind of text. Compare several, and your own.
"""

import json
from collections.abc import Mapping
from pathlib import Path

PASSAGES: Mapping[str, str] = json.loads((Path(__file__).parent / "data" / "passages.json").read_text("utf-8"))
