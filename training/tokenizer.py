"""The tokenizer of the tiny models: byte-level BPE of 512 tokens, digits one by one, `<|bos|>` = 0.

About two characters per token. 256 tokens are the bytes, 255 are merged. Training is deterministic: the same documents
give the same merges.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt16
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from training.corpus import is_held_out

VOCABULARY = 512
BOS = "<|bos|>"


def train_tokenizer(documents: Sequence[str]) -> Tokenizer:
    """The tokenizer that these documents give."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(documents, trainer)
    # Every window of the training began with <|bos|>, so every text does.
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return tokenizer


def encode(tokenizer: Tokenizer, documents: Sequence[str], *, held_out: bool) -> UInt16[np.ndarray, " token"]:
    """All ids of the training documents, or of those held out, each document after a `<|bos|>`."""
    chosen = [text for number, text in enumerate(documents) if is_held_out(number) == held_out]
    return np.concatenate([np.array(e.ids, np.uint16) for e in tokenizer.encode_batch(chosen)])


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write it as transformers reads it."""
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=BOS).save_pretrained(folder)


def fingerprint(tokenizer: Tokenizer) -> str:
    """Twelve hexadecimal digits of the vocabulary and the merges."""
    model = json.loads(tokenizer.to_str())["model"]
    return hashlib.sha256(json.dumps([model["vocab"], model["merges"]]).encode()).hexdigest()[:12]
