"""How a text may become tokens, in words: the choices of the frame."""

BOS_WORDS = {
    "default": "What the tokenizer does by itself",
    "none": "None",
    "own": "The tokenizer's own",
    "endoftext": "<|endoftext|>",
}
CUT_WORDS = {"refuse": "Refuse it", "start": "Keep its start", "end": "Keep its end"}
