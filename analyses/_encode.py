"""One call of a tokenizer, as rows (id, start, end), and spans that are exact for byte-level vocabularies."""

from collections.abc import Sequence, Set
from typing import Any

from analyses.vocabulary import byte_of_character

Row = tuple[int, int, int]  # id, first character, character after the last; -1, -1 for a token that is not in the text


def encode(tokenizer: Any, text: str, *, plain: bool = False, added: bool = False) -> list[Row]:
    """Ids and spans as the tokenizer gives them.

    Args:
        tokenizer: a fast tokenizer of transformers.
        text: without surrogates.
        plain: text that spells a special token stays text.
        added: let the tokenizer put its own tokens around the text.
    """
    backend = tokenizer.backend_tokenizer
    before = backend.encode_special_tokens
    try:
        encoding = tokenizer(text, add_special_tokens=added, split_special_tokens=plain, verbose=False).encodings[0]
    finally:
        backend.encode_special_tokens = before  # transformers leaves the last caller's choice in the shared tokenizer
    return [
        (token_id, -1, -1) if mask else (token_id, start, end)
        for token_id, (start, end), mask in zip(
            encoding.ids, encoding.offsets, encoding.special_tokens_mask, strict=True
        )
    ]


def missing_bytes(tokenizer: Any) -> frozenset[int]:
    """Bytes without a token of their own in a byte-level vocabulary; text that needs one of them loses it silently.

    SmolLM2 lacks 21 of 256: six control characters, and bytes that start characters nobody has assigned or never occur.
    """
    known = tokenizer.backend_tokenizer.token_to_id
    return frozenset(byte for code, byte in byte_of_character().items() if known(chr(code)) is None)


def exact_spans(text: str, pieces: Sequence[bytes], missing: Set[int]) -> list[tuple[int, int]] | None:
    """The characters that each piece has bytes of; None when the pieces are not the text (a normalizer changed it).

    The tokenizer's own spans may leave out a space that the token has (`trim_offsets`, as in GPT-2).
    """
    owners, kept = [], bytearray()
    for position, character in enumerate(text):
        for byte in character.encode():
            if byte not in missing:
                owners.append(position)
                kept.append(byte)
    if kept != b"".join(pieces) or not all(pieces):
        return None
    spans, at = [], 0
    for piece in pieces:
        spans.append((owners[at], owners[at + len(piece) - 1] + 1))
        at += len(piece)
    return spans
