"""The map of the library: a model in, numbers out. No Streamlit, no Plotly, no threads.

    from analyses import load_model, run_tokenization, run_next_token

    model = load_model()                                             # the embedded default
    text = run_tokenization(model, "The capital of France is")
    after = run_next_token(model, text.ids)                          # P(" Paris") = 0.7725

Importing this package imports neither torch nor transformers: the server process knows every result, cost and parameter check
without them.

* `run_tokenization`    a text as token ids, and what each id stands for (tokenization.py)
* `run_next_token`      the distribution over the whole vocabulary after one position (next_token.py)
* `run_logit_lens`      what the model would say if it stopped at any depth (logit_lens.py)
* `run_linear_lens`     a lens fitted by least squares, and what it is worth (linear_lens.py)
* `run_attribution`     who wrote a logit: embedding, attention, heads, MLPs, biases (attribution.py)
* `run_residual_stream` how large the stream is at every depth, and how much each block turns it (residual_stream.py)
* `run_attention`       every head's attention map, and one head step by step (attention.py)
* `run_head_scores`     which heads do induction, rest on the first token, look one back (head_scores.py)
* `run_head_check`      chosen heads left out, against random ones (head_check.py)
* `run_head_ablation`   every head left out in turn (head_ablation.py)
* `run_attention_steps` the scale, the mask and the lookup changed (attention_steps.py)
* `run_attention_position` shuffled tokens, and pairs moved along the context (attention_position.py)
* `run_layer_deletion`  layers left out of the sum (layer_deletion.py)
* `run_layer_sweep`, `run_layer_runs`  every layer, and every run of layers, in turn (layer_sweep.py)
* `run_removal_order`   which layers go first (removal_order.py)
* `run_generation`      the greedy continuation, also with layers left out (generation.py)
* `reshape_distribution` temperature, top-k and top-p on a distribution (sampling.py)
* `run_language_costs`  what the same content costs in sixteen languages (languages.py)
"""

from analyses._steps import Analysis
from analyses.attention import Attention, cost_attention, run_attention
from analyses.attention import attention_steps as attention_map_steps
from analyses.attention_position import (
    AttentionPosition,
    attention_position_steps,
    cost_attention_position,
    run_attention_position,
)
from analyses.attention_steps import (
    AttentionSteps,
    attention_steps_steps,
    cost_attention_steps,
    run_attention_steps,
)
from analyses.attribution import Attribution, attribution_steps, cost_attribution, run_attribution
from analyses.generation import Generation, cost_generation, generation_steps, run_generation
from analyses.head_ablation import HeadAblation, cost_head_ablation, head_ablation_steps, run_head_ablation
from analyses.head_check import HeadCheck, cost_head_check, head_check_steps, run_head_check
from analyses.head_scores import HeadScores, cost_head_scores, head_scores_steps, run_head_scores
from analyses.languages import run_language_costs
from analyses.layer_deletion import LayerDeletion, cost_layer_deletion, layer_deletion_steps, run_layer_deletion
from analyses.layer_sweep import (
    LayerRuns,
    LayerSweep,
    cost_layer_runs,
    cost_layer_sweep,
    layer_runs_steps,
    layer_sweep_steps,
    run_layer_runs,
    run_layer_sweep,
)
from analyses.linear_lens import LinearLens, cost_linear_lens, linear_lens_steps, run_linear_lens
from analyses.logit_lens import LogitLens, cost_logit_lens, logit_lens_steps, run_logit_lens
from analyses.model import load_model, wrap_model
from analyses.next_token import NextToken, cost_next_token, next_token_steps, run_next_token
from analyses.removal_order import RemovalOrder, cost_removal_order, removal_order_steps, run_removal_order
from analyses.residual_stream import ResidualStream, cost_residual_stream, residual_stream_steps, run_residual_stream
from analyses.sampling import reshape_distribution
from analyses.tokenization import run_tokenization

__all__ = [
    "ANALYSES",
    "load_model",
    "reshape_distribution",
    "run_attention",
    "run_attention_position",
    "run_attention_steps",
    "run_attribution",
    "run_generation",
    "run_head_ablation",
    "run_head_check",
    "run_head_scores",
    "run_language_costs",
    "run_layer_deletion",
    "run_layer_runs",
    "run_layer_sweep",
    "run_linear_lens",
    "run_logit_lens",
    "run_next_token",
    "run_removal_order",
    "run_residual_stream",
    "run_tokenization",
    "wrap_model",
]

# What a worker can be asked for: one line per analysis.
_ADDENDS = ("attn_out", "mlp_out", "readout")
_EDITS = ("scores", "pattern_writable", "replay")
ANALYSES = {
    "attention": Analysis(attention_map_steps, cost_attention, Attention, requires=("pattern",)),
    "attention_position": Analysis(
        attention_position_steps, cost_attention_position, AttentionPosition, requires=("replay", "attn_out")
    ),
    "attention_steps": Analysis(attention_steps_steps, cost_attention_steps, AttentionSteps, requires=_EDITS),
    "attribution": Analysis(attribution_steps, cost_attribution, Attribution, requires=_ADDENDS),
    "generation": Analysis(generation_steps, cost_generation, Generation),
    "head_ablation": Analysis(head_ablation_steps, cost_head_ablation, HeadAblation, requires=("head_output",)),
    "head_check": Analysis(head_check_steps, cost_head_check, HeadCheck, requires=("head_output",)),
    "head_scores": Analysis(head_scores_steps, cost_head_scores, HeadScores, requires=("pattern",)),
    "layer_deletion": Analysis(layer_deletion_steps, cost_layer_deletion, LayerDeletion, requires=_ADDENDS),
    "layer_runs": Analysis(layer_runs_steps, cost_layer_runs, LayerRuns, requires=_ADDENDS),
    "layer_sweep": Analysis(layer_sweep_steps, cost_layer_sweep, LayerSweep, requires=_ADDENDS),
    "linear_lens": Analysis(linear_lens_steps, cost_linear_lens, LinearLens, requires=("readout",), kept=True),
    "logit_lens": Analysis(logit_lens_steps, cost_logit_lens, LogitLens, requires=("readout",)),
    "next_token": Analysis(next_token_steps, cost_next_token, NextToken),
    "removal_order": Analysis(removal_order_steps, cost_removal_order, RemovalOrder, requires=_ADDENDS),
    "residual_stream": Analysis(residual_stream_steps, cost_residual_stream, ResidualStream),
}
