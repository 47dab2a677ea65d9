"""What each field of a config means, and how its value was found."""

from analyses._architecture import Architecture

MEANING = {
    "model_type": "the family: it decides which parts there are",
    "hidden_size": "numbers per token in the stream: C, d",
    "num_hidden_layers": "blocks: L",
    "num_attention_heads": "query heads in each layer: H",
    "num_key_value_heads": "heads with keys and values; fewer than query heads (GQA) make the cache smaller: K",
    "head_dim": "numbers in one query, key or value: h; H × h need not be C",
    "intermediate_size": "width of the MLP between its matrices: f",
    "vocab_size": "tokens that exist: V",
    "max_position_embeddings": "tokens of context it was made for; with a learned table also the rows of that table",
    "tie_word_embeddings": "true: the embedding is used a second time to read out",
    "hidden_act": "the MLP's nonlinearity; no parameters",
    "attention_bias": "whether Q, K, V and O have biases",
    "qkv_bias": "whether Q, K and V have biases",
    "mlp_bias": "whether the MLP's matrices have biases",
    "enable_bias": "whether matrices have biases",
    "qk_layernorm": "whether queries and keys are normalised",
    "layer_norm_elementwise_affine": "whether norms have a gain and a bias",
    "do_layer_norm_before": "norms before attention and MLP (true) or after",
    "_remove_final_layer_norm": "whether the final norm is left out",
    "use_parallel_residual": "attention and MLP read the same stream, side by side",
    "word_embed_proj_dim": "width of the embedding, before a matrix brings it to C",
    "num_experts": "MLPs side by side in a layer, of which a router chooses: E",
    "num_experts_per_tok": "experts that one token uses: k",
    "moe_intermediate_size": "width of one expert",
    "shared_expert_intermediate_size": "width of the expert that every token uses",
    "decoder_sparse_step": "every how many layers there are experts",
    "mlp_only_layers": "layers without experts",
    "use_sliding_window": "whether some layers see only the last tokens",
    "sliding_window": "tokens that a layer with a window sees",
    "sliding_window_pattern": "every how many layers one sees everything",
    "max_window_layers": "where layers with a window begin or end",
    "layer_types": "which layers see a window",
}
_POSITIONS = {
    "rotary": "rotary: queries and keys are turned; no parameters",
    "learned": "learned: a table that is added to the embedding",
    "alibi": "ALiBi: scores fall with distance; no parameters",
}
_PLACE = {"before": "before attention and MLP", "after": "after attention and MLP", "both": "before and after them"}


def field_rows(a: Architecture) -> dict[str, list[str]]:
    """Every field that carries the architecture, and what the family's code adds to them."""
    rows = [(field, value, MEANING.get(field, ""), how) for field, value, how in a.found]
    matrices = "gate, up and down" if a.gated else "up and down"
    family = f"the code of {a.family_name}"
    end = "one more at the end" if a.final_norm else "none at the end"
    rows += [
        ("norm", f"{a.norm}, {a.norms_per_block} per block", f"{_PLACE[a.norm_place]}; {end}", family),
        ("positions", a.positions, _POSITIONS[a.positions], family),
        ("matrices of an MLP", matrices, "three where a gate multiplies (GLU), else two", family),
    ]
    if a.parallel:
        rows.append(("order", "side by side", "attention and MLP read the same stream", family))
    if a.qk_norm:
        rows.append(("norm of queries and keys", "yes", "keeps the scores in bounds", family))
    names = ("field", "value", "meaning", "how found")
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}
