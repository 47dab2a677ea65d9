"""Small tokenizers of the common kinds, built in memory: nothing is downloaded. And SmolLM2's reference numbers."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m['role'] }}\n{{ m['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def reference():
    """What plain transformers gives for SmolLM2 (tests/data/tokens_smol.json)."""
    return json.loads((Path(__file__).parent / "data" / "tokens_smol.json").read_text("utf-8"))


def covered(tokens):
    """Every character offset that some token covers."""
    return {i for start, end in zip(tokens.starts, tokens.ends, strict=True) for i in range(start, end)}


def byte_level(*, adds_bos=False, trim_offsets=False, chat_template=None, without=()):
    """GPT-2's scheme, all bytes but `without`; with `adds_bos` Llama 3's (a post-processor puts <s> in front)."""
    alphabet = sorted(character for byte, character in bytes_to_unicode().items() if byte not in without)
    merges = [("h", "e"), ("Ġ", "t"), ("Ġt", "he"), ("ð", "Ł")]
    vocab = {name: i for i, name in enumerate([*alphabet, *(a + b for a, b in merges)])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trim_offsets)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "<|turn|>", "<|end|>"])
    backend.add_tokens([AddedToken("naïve", normalized=False)])
    if adds_bos:
        bos = backend.token_to_id("<s>")
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    elif trim_offsets:
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", chat_template=chat_template)


def sentencepiece(*, byte_fallback=True):
    """Llama 2's scheme: a space in front, U+2581 for spaces, a byte token for what has no token of its own."""
    names = ["<unk>", "<s>", "</s>"]
    names += [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    merges = [("h", "e"), ("t", "he"), ("▁", "the")]
    names += ["▁", *"theca ", *(a + b for a, b in merges)]
    vocab = {name: i for i, name in enumerate(names)}
    model = models.BPE(vocab=vocab, merges=merges, byte_fallback=byte_fallback, unk_token="<unk>", fuse_unk=True)
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.add_tokens([AddedToken("▁▁", normalized=False)])
    bos = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.post_processor = bos
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")


def word_level():
    """One id per word, no BOS, no spaces."""
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["[UNK]"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
