"""One training run: the model, what it reads, how it learns, and which checkpoints are kept.

Recipe (training/README.md says what did not work): a Llama of width 64 with 1 or 2 layers of 4 heads, attention biases
and a tied embedding reads 4,500 batches of 16 windows of 256 tokens. In 4 of the 16 windows a passage of 32 to 127 tokens is
repeated to the end. The weight matrices of the blocks learn by Muon, all else by AdamW; after 100 steps the learning rate is
constant, so no schedule can make a bump in the curves.

Limit: seeded and deterministic on one machine; another CPU may round differently, and after some hundred steps the numbers drift.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT, BATCH, STEPS, WARMUP = 256, 16, 4500, 100
REPEATED = 4  # windows of a batch in which a passage repeats: a quarter
SHORTEST = 32  # tokens of a repeated passage; the longest is just below half a window
ADAM_RATE, MUON_RATE, DECAY = 1e-2, 3e-2, 0.01
# Few before and after, one every 150 steps through the transition.
MARKS = (0, 50, 100, 200, 400, 700, *range(1000, 2651, 150), 3000, 3600, STEPS)


def make_model(layers: int, seed: int) -> LlamaForCausalLM:
    """The model before training. The seed is torch's global one: it gives the first weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        attention_bias=True,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def training_batches(ids: Any, seed: int) -> Iterator[Int64[Any, "batch pos"]]:
    """Batches without end: random windows of the text, the first token of each `<|bos|>`, a passage repeated in four.

    Args:
        ids: the training documents' ids, one after the other.
        seed: of the generator that draws windows and passages.
    """
    text = torch.from_numpy(np.asarray(ids).astype(np.int64))
    draw = torch.Generator().manual_seed(seed)
    while True:
        start = torch.randint(0, len(text) - CONTEXT, (BATCH,), generator=draw)
        batch = text[start[:, None] + torch.arange(CONTEXT)]
        batch[:, 0] = 0
        for row in range(REPEATED):
            n = int(torch.randint(SHORTEST, CONTEXT // 2, (1,), generator=draw))
            batch[row, 1:] = batch[row, 1 : 1 + n].repeat(CONTEXT // n + 1)[: CONTEXT - 1]
        yield batch


def token_loss(logits: Float[Any, "batch pos d_vocab"], ids: Int64[Any, "batch pos"]) -> Float[Any, "batch next"]:
    """Loss in nats of every token but the first."""
    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return loss.view(len(ids), -1)


def train(
    model: Any,
    batches: Iterator[Int64[Any, "batch pos"]],
    *,
    steps: int = STEPS,
    on_mark: Callable[[int], None],
    on_step: Callable[[int, float], None],
) -> None:
    """Train in place.

    Args:
        model: as `make_model` returns it.
        batches: as `training_batches` yields them; as many as there are steps.
        steps: after which it ends.
        on_mark: called with a step of `MARKS` before that step is taken, and with the last one at the end.
        on_step: called with the step and its loss in nats, measured before the step changes the weights.
    """
    torch.use_deterministic_algorithms(True)
    adam, muon = _optimisers(model)
    for step in range(steps):
        if step in MARKS:
            on_mark(step)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * min(1, (step + 1) / WARMUP)
        batch = next(batches)
        loss = token_loss(model(batch).logits, batch).mean()
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        muon.step()
        on_step(step, loss.item())
    on_mark(steps)


def half_weights(model: Any) -> dict[str, Float[Any, "..."]]:
    """The weights in float16 by name; the tied unembedding is the embedding, so it comes once."""
    return {name: weight.detach().to(torch.float16) for name, weight in model.named_parameters()}


def _optimisers(model: Any) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """AdamW for embedding, norms and biases; Muon, which takes matrices only, for the weights of the blocks."""
    named = list(model.named_parameters())
    blocks = [w for name, w in named if w.dim() == 2 and "layers" in name]
    embedding = [w for name, w in named if w.dim() == 2 and "layers" not in name]
    vectors = [w for _, w in named if w.dim() == 1]
    groups = [{"params": embedding, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=ADAM_RATE, betas=(0.9, 0.98))
    return adam, torch.optim.Muon(blocks, lr=MUON_RATE, weight_decay=DECAY)
