"""What does each id of the vocabulary stand for? Every id as the bytes it adds to the text.

A token is a run of bytes, not of characters: one emoji or one Chinese character may be spread over several tokens, and
decoding one of them alone gives the replacement character. So nothing here is text until enough bytes are together.

Three ways of writing a vocabulary down are understood:

* byte-level BPE: each byte is written as one printable character, a space as U+0120 (Radford et al. 2019, "Language
  Models are Unsupervised Multitask Learners", whose code has the table);
* SentencePiece: a space is written U+2581, and <0xE4> is the single byte E4 of a character that has no token of its own
  (Kudo and Richardson 2018, "SentencePiece: A simple and language independent subword tokenizer");
* text: whatever else; the token is its own text.

Identity: for byte-level BPE the pieces of a tokenised text, joined, are the text's UTF-8 bytes (but for characters the
vocabulary cannot represent, which the tokenizer drops).

Limit: a SentencePiece tokenizer may put a space in front of the text, and a normalizer may change characters: the
pieces are then what the model sees, which is not quite what was typed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, UInt8

BYTE_LEVEL, SENTENCEPIECE, TEXT = "byte-level BPE", "SentencePiece", "text"
_SPACE_MARK = "\u2581"  # SentencePiece's visible space
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The bytes of every id. Only arrays and text, so that a process without the tokenizer can show any token."""

    data: UInt8[np.ndarray, " bytes"]  # all pieces, one after the other
    offsets: Int64[np.ndarray, " d_vocab_plus_1"]  # piece i is data[offsets[i]:offsets[i + 1]]
    special: Bool[np.ndarray, " d_vocab"]  # control tokens such as <|endoftext|>
    byte_token: Bool[np.ndarray, " d_vocab"]  # SentencePiece's <0xE4>: a byte that has another spelling as a character
    kind: str  # "byte-level BPE", "SentencePiece" or "text"

    def __len__(self) -> int:
        return len(self.special)

    def piece(self, token_id: int | np.integer) -> bytes:
        """The bytes this id stands for, maybe incomplete UTF-8; b"" for an id that the tokenizer does not know.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        if not 0 <= token_id < len(self):
            raise ValueError(
                f"needs an id from 0 to {len(self) - 1:,}; found {token_id:,}; use this model's vocabulary."
            )
        return self.data[self.offsets[token_id] : self.offsets[token_id + 1]].tobytes()

    def find(self, piece: bytes) -> int | None:
        """The id that stands for exactly these bytes, or None.

        Where several do, an ordinary token goes before a byte token, that before a special one, and then the lowest id.
        """
        return self._index.get(piece)

    @cached_property
    def _index(self) -> dict[bytes, int]:
        """Bytes -> id; built at the first search, 49,152 ids in less than 0.1 s."""
        data, bounds = self.data.tobytes(), self.offsets.tolist()
        order = np.lexsort((np.arange(len(self)), self.byte_token, self.special))  # the preferred one first
        ids = reversed(order.tolist())  # of equal pieces the last one written stays
        return {data[bounds[i] : bounds[i + 1]]: i for i in ids if bounds[i] < bounds[i + 1]}


def build_vocabulary(tokenizer: Any, d_vocab: int) -> Vocabulary:
    """The vocabulary of a transformers tokenizer, for a model with `d_vocab` logits.

    The two sizes often differ: a model may have more logits than the tokenizer has tokens. Those ids have empty pieces.
    """
    pieces = token_bytes(tokenizer, range(d_vocab))
    special = special_ids(tokenizer)
    names = tokenizer.convert_ids_to_tokens(range(d_vocab)) if kind_of(tokenizer) == SENTENCEPIECE else []
    byte_ids = [i for i, name in enumerate(names) if name and _BYTE_TOKEN.fullmatch(name)]
    byte_token = np.zeros(d_vocab, dtype=bool)
    byte_token[byte_ids] = True
    return Vocabulary(
        data=np.frombuffer(b"".join(pieces), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, pieces)], dtype=np.int64),
        special=np.isin(np.arange(d_vocab), list(special)),
        byte_token=byte_token,
        kind=kind_of(tokenizer),
    )


def token_bytes(tokenizer: Any, ids: Sequence[int]) -> list[bytes]:
    """The bytes each of these ids stands for (b"" for an id that the tokenizer does not know)."""
    kind = kind_of(tokenizer)
    pieces = _decode([name or "" for name in tokenizer.convert_ids_to_tokens(ids)], kind)
    # An added token is literal text, but for SentencePiece's runs of spaces, which are added as U+2581 (Gemma).
    added = tokenizer.added_tokens_decoder
    literal = {i: token.content.encode() for i, token in added.items() if token.special or kind != SENTENCEPIECE}
    return [literal.get(token_id, piece) for token_id, piece in zip(ids, pieces, strict=True)]


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of the control tokens, which the tokenizer also makes from text that spells them."""
    added = tokenizer.added_tokens_decoder
    return frozenset(tokenizer.all_special_ids) | {i for i, token in added.items() if token.special}


def kind_of(tokenizer: Any) -> str:
    """How this tokenizer writes its tokens down, read from its own description of itself.

    Raises:
        ValueError: not a tokenizer of the `tokenizers` library (only those tell characters from bytes and positions).
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(
            f"needs a fast tokenizer (tokenizer.json); found {type(tokenizer).__name__}; "
            "convert it or load another model."
        )
    parts = [json.loads(part.__getstate__()) for part in (backend.decoder, backend.pre_tokenizer) if part is not None]
    parts = [step for part in parts for step in part.get("decoders") or part.get("pretokenizers") or [part]]
    if any(part["type"] == "ByteLevel" for part in parts):
        return BYTE_LEVEL
    if any(part["type"] == "Metaspace" or part.get("pattern") == {"String": _SPACE_MARK} for part in parts):
        return SENTENCEPIECE
    return TEXT


def printable(piece: bytes) -> str:
    r"""A piece for a table: spaces stay, a newline is \n, other invisible characters \x.., incomplete UTF-8 <F0 9F>."""
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return f"<{piece.hex(' ').upper()}>"
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)


def _decode(names: Sequence[str], kind: str) -> list[bytes]:
    """Bytes of ordinary tokens from the way the vocabulary writes them."""
    if kind == BYTE_LEVEL:
        table = byte_of_character()
        known = frozenset(map(chr, table))  # a name with other characters is outside the scheme: its own text
        return [n.translate(table).encode("latin-1") if known.issuperset(n) else n.encode() for n in names]
    if kind == SENTENCEPIECE:
        matches = [(_BYTE_TOKEN.fullmatch(name), name) for name in names]
        return [bytes([int(m[1], 16)]) if m else name.replace(_SPACE_MARK, " ").encode() for m, name in matches]
    return [name.encode() for name in names]


@cache
def byte_of_character() -> dict[int, int]:
    """The byte that each character of a byte-level vocabulary stands for, as code point -> byte.

    GPT-2's table: printable Latin-1 characters stand for themselves, the other bytes for U+0100 and on, in order.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: byte for byte in visible} | {0x100 + i: byte for i, byte in enumerate(hidden)}
