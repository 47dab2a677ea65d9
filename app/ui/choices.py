"""How a text may become tokens, in words: the choices of the frame."""

BOS_WORDS = {
    "default": "Tokenizer's default",
    "none": "None",
    "own": "Tokenizer's own BOS",
    "endoftext": "<|endoftext|>",
}
CUT_WORDS = {"refuse": "Refuse it", "start": "Keep its start", "end": "Keep its end"}
