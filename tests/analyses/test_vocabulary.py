from itertools import pairwise

import numpy as np
import pytest
from transformers.convert_slow_tokenizer import bytes_to_unicode

from analyses.vocabulary import (
    BYTE_LEVEL,
    SENTENCEPIECE,
    TEXT,
    Vocabulary,
    build_vocabulary,
    byte_of_character,
    printable,
)
from tests.toy_tokenizers import byte_level, reference, sentencepiece, word_level


def test_byte_table_is_the_one_of_gpt2():
    assert byte_of_character() == {ord(character): byte for byte, character in bytes_to_unicode().items()}


def test_byte_level_pieces_are_bytes_and_added_tokens_their_own_text():
    tokenizer = byte_level()
    vocabulary = build_vocabulary(tokenizer, len(tokenizer) + 2)
    assert vocabulary.kind == BYTE_LEVEL and len(vocabulary) == len(tokenizer) + 2
    piece = {name: vocabulary.piece(i) for name, i in tokenizer.get_vocab().items()}
    assert piece["Ġthe"] == b" the" and piece["ðŁ"] == b"\xf0\x9f" and piece["Ċ"] == b"\n"
    assert piece["<s>"] == b"<s>" and vocabulary.special[tokenizer.bos_token_id]
    # An added token is literal text: read as a byte-level name, ï would be the lone byte EF.
    naive = tokenizer.convert_tokens_to_ids("naïve")
    assert piece["naïve"] == "naïve".encode() and not vocabulary.special[naive]
    assert vocabulary.piece(len(tokenizer)) == b""  # the model has more logits than the tokenizer has tokens
    assert vocabulary.find(b" the") == tokenizer.convert_tokens_to_ids("Ġthe")
    assert vocabulary.find(b"") is None and vocabulary.find(b"no such piece") is None


def test_sentencepiece_spaces_bytes_and_which_of_two_spellings_is_found():
    tokenizer = sentencepiece()
    vocabulary = build_vocabulary(tokenizer, len(tokenizer))
    ids = tokenizer.get_vocab()
    assert vocabulary.kind == SENTENCEPIECE
    assert vocabulary.piece(ids["▁the"]) == b" the" and vocabulary.piece(ids["<0xE4>"]) == b"\xe4"
    assert vocabulary.piece(ids["▁▁"]) == b"  "  # an added run of spaces
    # "t" is written as a character and as the byte 74; the tokenizer uses the character.
    assert vocabulary.piece(ids["<0x74>"]) == vocabulary.piece(ids["t"]) == b"t"
    assert vocabulary.find(b"t") == ids["t"] == tokenizer("t", add_special_tokens=False).input_ids[-1]
    assert vocabulary.find(b"\xe4") == ids["<0xE4>"]
    assert vocabulary.byte_token.sum() == 256 and vocabulary.byte_token[ids["<0xE4>"]]


def test_of_equal_spellings_the_ordinary_one_with_the_lowest_id_is_found():
    flags = np.array([[True, False, False, False], [False, True, False, False]])
    data, offsets = np.frombuffer(b"aaaa", dtype=np.uint8), np.arange(5)
    assert Vocabulary(data, offsets, special=flags[0], byte_token=flags[1], kind=TEXT).find(b"a") == 2


def test_word_level_is_text():
    vocabulary = build_vocabulary(word_level(), 3)
    assert vocabulary.kind == TEXT
    assert [vocabulary.piece(i) for i in range(3)] == [b"[UNK]", b"the", b"cat"]
    assert vocabulary.special.tolist() == [True, False, False]


@pytest.mark.parametrize("token_id", [-1, 3])
def test_an_id_outside_is_refused(token_id):
    with pytest.raises(ValueError, match="needs an id from 0 to 2; found .*; use this model's vocabulary"):
        build_vocabulary(word_level(), 3).piece(token_id)


def test_a_tokenizer_without_a_backend_is_refused():
    with pytest.raises(ValueError, match=r"needs a fast tokenizer.*; found object; convert it"):
        build_vocabulary(object(), 3)


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (b" Paris", " Paris"),
        (b"\n\n ", r"\n\n "),
        (b"\\n", r"\\n"),
        (b"\xf0\x9f", "<F0 9F>"),
        ("\u202e".encode(), r"\u202e"),
    ],
)
def test_printable_tells_a_newline_from_the_letters_backslash_n(piece, shown):
    assert printable(piece) == shown


@pytest.mark.embedded
def test_embedded_vocabulary_facts(smol_tokenizer):
    tokenizer, facts = smol_tokenizer, reference()
    vocabulary = build_vocabulary(tokenizer, 49_152)
    data, bounds = vocabulary.data.tobytes(), vocabulary.offsets.tolist()
    pieces = [data[start:end] for start, end in pairwise(bounds)]  # piece(i) is checked on every call here: too slow
    assert [[i, pieces[i].decode()] for i in np.flatnonzero(vocabulary.special)] == facts["vocabulary"]["special"]
    assert sum(piece.startswith(b" ") for piece in pieces) == facts["vocabulary"]["starts_with_space"]
    assert sum(len(piece) == 1 for piece in pieces) == 256 - 21 == facts["vocabulary"]["single_byte_tokens"]
    assert not [piece for piece in pieces if piece.strip().isdigit() and len(piece.strip()) > 1]  # digits stand alone
    assert len(set(pieces)) == 49_152
    assert all(vocabulary.piece(i) == pieces[i] and vocabulary.find(pieces[i]) == i for i in range(0, 49_152, 97))
    # An independent way to the text of a token: the tokenizer's own decoder, wherever the piece is whole characters.
    whole = [i for i, piece in enumerate(pieces) if "\ufffd" not in piece.decode(errors="replace")]
    assert len(whole) > 48_000
    decoded = tokenizer.backend_tokenizer.decode_batch([[i] for i in whole], skip_special_tokens=False)
    assert [pieces[i].decode() for i in whole] == decoded
