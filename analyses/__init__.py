"""The map of the library: a model in, numbers out. No Streamlit, no Plotly, no threads.

    from analyses import load_model, run_tokenization, run_next_token

    model = load_model()                                             # the embedded default
    text = run_tokenization(model, "The capital of France is")
    after = run_next_token(model, text.ids)                          # P(" Paris") = 0.7725

Importing this package imports neither torch nor transformers: the server process knows every result, cost and parameter check
without them.

* `run_tokenization`    a text as token ids, and what each id stands for (tokenization.py)
* `run_next_token`      the distribution over the whole vocabulary after one position (next_token.py)
* `reshape_distribution` temperature, top-k and top-p on a distribution (sampling.py)
* `run_language_costs`  what the same content costs in sixteen languages (languages.py)
"""

from analyses._steps import Analysis
from analyses.languages import run_language_costs
from analyses.model import load_model, wrap_model
from analyses.next_token import NextToken, cost_next_token, next_token_steps, run_next_token
from analyses.sampling import reshape_distribution
from analyses.tokenization import run_tokenization

__all__ = [
    "ANALYSES",
    "load_model",
    "reshape_distribution",
    "run_language_costs",
    "run_next_token",
    "run_tokenization",
    "wrap_model",
]

# What a worker can be asked for: one line per analysis.
ANALYSES = {
    "next_token": Analysis(next_token_steps, cost_next_token, NextToken, version=1),
}
