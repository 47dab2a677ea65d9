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
* `run_timing`, `run_batch_timing`  seconds per token and bytes of the cache, measured here (timing.py, batch_timing.py)
* `run_context_budget`, `run_chat_marks`  what fits into the context, and what is gone (context_budget.py, chat_marks.py)
* `run_loss`            the loss of every token of a text of any length (loss.py)
* `count_parameters`, `kv_cache_bytes`  parameters by part, and the bytes of a cache, from a config alone (anatomy.py)
* `make_steering_vector`, `run_steering_vector`  a direction of the stream from two groups of texts (contrast.py)
* `run_direction_words` what any direction of the stream reads as through the unembedding (direction_words.py)
* `run_steering`        a direction added to the stream: predictions, with a random control (steering.py)
* `run_steering_damage`, `run_steering_sweep`  what it costs; every layer and coefficient (steering_damage.py, steering_sweep.py)
* `run_norms`           one norm on a real activation, both kinds, and the loss with the other kind everywhere (norms.py)
* `run_position_wise`   one changed token: its MLP notices, attention passes it on (position_wise.py)
* `run_linear_mlp`      an MLP without its nonlinearity: two matrices are one (linear_mlp.py)
* `run_weight_truncation` a weight cut to a rank, and the loss after (weight_truncation.py)
* `run_generation`      a continuation, greedy or sampled, also with parts left out or steered (generation.py)
* `run_training_dynamics`, `run_training_causes`  a tiny model at a training step: measured, heads and paths taken out
* `run_training_view`, `run_training_film`  the same on a text of one's own, at one step and at all (training_view.py, _film.py)
* `load_training_log`   the curves of its training (training_log.py)
* `reshape_distribution` temperature, top-k and top-p on a distribution (sampling.py)
* `run_language_costs`  what the same content costs in sixteen languages (languages.py)
"""

from analyses._architecture_costs import kv_cache_bytes
from analyses._steps import Analysis
from analyses.anatomy import count_parameters
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
from analyses.batch_timing import BatchTiming, batch_timing_steps, cost_batch_timing, run_batch_timing
from analyses.chat_marks import ChatMarks, chat_marks_steps, cost_chat_marks, run_chat_marks
from analyses.context_budget import ContextBudget, context_budget_steps, cost_context_budget, run_context_budget
from analyses.contrast import (
    Contrast,
    cost_steering_vector,
    make_steering_vector,
    run_steering_vector,
    steering_vector_steps,
)
from analyses.direction_words import DirectionWords, cost_direction_words, direction_words_steps, run_direction_words
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
from analyses.linear_mlp import LinearMlp, cost_linear_mlp, linear_mlp_steps, run_linear_mlp
from analyses.logit_lens import LogitLens, cost_logit_lens, logit_lens_steps, run_logit_lens
from analyses.loss import Loss, cost_loss, loss_steps, run_loss
from analyses.model import load_model, wrap_model
from analyses.next_token import NextToken, cost_next_token, next_token_steps, run_next_token
from analyses.norms import Norms, cost_norms, norms_steps, run_norms
from analyses.position_wise import PositionWise, cost_position_wise, position_wise_steps, run_position_wise
from analyses.removal_order import RemovalOrder, cost_removal_order, removal_order_steps, run_removal_order
from analyses.residual_stream import ResidualStream, cost_residual_stream, residual_stream_steps, run_residual_stream
from analyses.sampling import reshape_distribution
from analyses.steering import Steering, cost_steering, run_steering, steering_steps
from analyses.steering_damage import (
    SteeringDamage,
    cost_steering_damage,
    run_steering_damage,
    steering_damage_steps,
)
from analyses.steering_sweep import SteeringSweep, cost_steering_sweep, run_steering_sweep, steering_sweep_steps
from analyses.steering_vector import SteeringVector, load_vector, random_vector_like, save_vector
from analyses.timing import Timing, cost_timing, run_timing, timing_steps
from analyses.tokenization import run_tokenization
from analyses.training_causes import TrainingCauses, cost_training_causes, run_training_causes, training_causes_steps
from analyses.training_dynamics import (
    TrainingDynamics,
    cost_training_dynamics,
    run_training_dynamics,
    training_dynamics_steps,
)
from analyses.training_film import TrainingFilm, cost_training_film, run_training_film, training_film_steps
from analyses.training_log import load_training_log
from analyses.training_view import TrainingView, cost_training_view, run_training_view, training_view_steps
from analyses.weight_truncation import (
    WeightTruncation,
    cost_weight_truncation,
    run_weight_truncation,
    weight_truncation_steps,
)

__all__ = [
    "ANALYSES",
    "SteeringVector",
    "count_parameters",
    "kv_cache_bytes",
    "load_model",
    "load_training_log",
    "load_vector",
    "make_steering_vector",
    "random_vector_like",
    "reshape_distribution",
    "run_attention",
    "run_attention_position",
    "run_attention_steps",
    "run_attribution",
    "run_batch_timing",
    "run_chat_marks",
    "run_context_budget",
    "run_direction_words",
    "run_generation",
    "run_head_ablation",
    "run_head_check",
    "run_head_scores",
    "run_language_costs",
    "run_layer_deletion",
    "run_layer_runs",
    "run_layer_sweep",
    "run_linear_lens",
    "run_linear_mlp",
    "run_logit_lens",
    "run_loss",
    "run_next_token",
    "run_norms",
    "run_position_wise",
    "run_removal_order",
    "run_residual_stream",
    "run_steering",
    "run_steering_damage",
    "run_steering_sweep",
    "run_steering_vector",
    "run_timing",
    "run_tokenization",
    "run_training_causes",
    "run_training_dynamics",
    "run_training_film",
    "run_training_view",
    "save_vector",
    "run_weight_truncation",
    "wrap_model",
]

# What a worker can be asked for: one line per analysis.
_ADDENDS = ("attn_out", "mlp_out", "readout")
_STEERED = ("resid_writable", "readout")
_EDITS = ("scores", "pattern_writable", "replay")
ANALYSES = {
    "attention": Analysis(attention_map_steps, cost_attention, Attention, requires=("pattern",)),
    "attention_position": Analysis(
        attention_position_steps, cost_attention_position, AttentionPosition, requires=("replay", "attn_out")
    ),
    "attention_steps": Analysis(attention_steps_steps, cost_attention_steps, AttentionSteps, requires=_EDITS),
    "attribution": Analysis(attribution_steps, cost_attribution, Attribution, requires=_ADDENDS),
    "batch_timing": Analysis(batch_timing_steps, cost_batch_timing, BatchTiming, requires=("kv_cache",)),
    "chat_marks": Analysis(chat_marks_steps, cost_chat_marks, ChatMarks),
    "context_budget": Analysis(context_budget_steps, cost_context_budget, ContextBudget, version=2),
    "direction_words": Analysis(direction_words_steps, cost_direction_words, DirectionWords, requires=("readout",)),
    "generation": Analysis(generation_steps, cost_generation, Generation, version=2),
    "head_ablation": Analysis(head_ablation_steps, cost_head_ablation, HeadAblation, requires=("head_output",)),
    "head_check": Analysis(head_check_steps, cost_head_check, HeadCheck, requires=("head_output",)),
    "head_scores": Analysis(head_scores_steps, cost_head_scores, HeadScores, requires=("pattern",)),
    "layer_deletion": Analysis(layer_deletion_steps, cost_layer_deletion, LayerDeletion, requires=_ADDENDS),
    "layer_runs": Analysis(layer_runs_steps, cost_layer_runs, LayerRuns, requires=_ADDENDS),
    "layer_sweep": Analysis(layer_sweep_steps, cost_layer_sweep, LayerSweep, requires=_ADDENDS),
    "linear_lens": Analysis(linear_lens_steps, cost_linear_lens, LinearLens, requires=("readout",), kept=True),
    "linear_mlp": Analysis(linear_mlp_steps, cost_linear_mlp, LinearMlp, version=2),
    "logit_lens": Analysis(logit_lens_steps, cost_logit_lens, LogitLens, requires=("readout",)),
    "loss": Analysis(loss_steps, cost_loss, Loss),
    "next_token": Analysis(next_token_steps, cost_next_token, NextToken),
    "norms": Analysis(norms_steps, cost_norms, Norms),
    "position_wise": Analysis(
        position_wise_steps, cost_position_wise, PositionWise, requires=("attn_out", "mlp_out", "resid_writable")
    ),
    "removal_order": Analysis(removal_order_steps, cost_removal_order, RemovalOrder, requires=_ADDENDS),
    "residual_stream": Analysis(residual_stream_steps, cost_residual_stream, ResidualStream),
    "steering": Analysis(steering_steps, cost_steering, Steering, requires=("resid_writable",)),
    "steering_damage": Analysis(steering_damage_steps, cost_steering_damage, SteeringDamage, requires=_STEERED),
    "steering_sweep": Analysis(steering_sweep_steps, cost_steering_sweep, SteeringSweep, requires=_STEERED),
    "steering_vector": Analysis(steering_vector_steps, cost_steering_vector, Contrast, requires=("readout",)),
    "timing": Analysis(timing_steps, cost_timing, Timing),
    "training_causes": Analysis(training_causes_steps, cost_training_causes, TrainingCauses),
    "training_dynamics": Analysis(training_dynamics_steps, cost_training_dynamics, TrainingDynamics),
    "training_film": Analysis(training_film_steps, cost_training_film, TrainingFilm),
    "training_view": Analysis(training_view_steps, cost_training_view, TrainingView),
    "weight_truncation": Analysis(weight_truncation_steps, cost_weight_truncation, WeightTruncation, version=2),
}
