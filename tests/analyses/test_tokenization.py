from types import SimpleNamespace

import pytest
from tokenizers import processors

from analyses.tokenization import bos_choices, run_tokenization, tokenize_text
from tests.toy_tokenizers import byte_level, covered, reference, sentencepiece, word_level

NASTY = ["Seán मेरा 한국어 日本語", "🙂 👩‍🚀 é e\u0301", " \n\n  x\t", "x != y  'a' !", "\u202eabc\u200b", "\r\n", "0 1"]


# -- identities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("trim", [False, True])
def test_pieces_are_the_text_and_spans_cover_it(text, trim):
    tokens = tokenize_text(byte_level(trim_offsets=trim), text, n_ctx=1000)
    assert tokens.text == text and b"".join(tokens.pieces) == text.encode()
    assert covered(tokens) == set(range(len(text)))
    for piece, start, end in zip(tokens.pieces, tokens.starts, tokens.ends, strict=True):
        assert piece in text[start:end].encode()


def test_worked_by_hand():
    tokens = tokenize_text(byte_level(trim_offsets=True), "a the 🙂", n_ctx=100)
    assert tokens.pieces == (b"a", b" the", b" ", b"\xf0\x9f", b"\x99", b"\x82")
    assert tokens.starts == (0, 1, 5, 6, 6, 6) and tokens.ends == (
        1,
        5,
        6,
        7,
        7,
        7,
    )  # the tokenizer says 2..5 for " the"
    assert tokens.special == (False,) * 6 and tokens.bos == "" and len(tokens) == 6
    frame = tokens.to_frame()
    assert frame["piece"].tolist() == ["a", " the", " ", "<F0 9F>", "<99>", "<82>"]
    assert frame[["position", "start", "end"]].iloc[-1].tolist() == [5, 6, 7]


def test_sentencepiece_bytes_share_the_span_of_their_character():
    tokens = tokenize_text(sentencepiece(), "the ä", n_ctx=100, bos="none")
    assert tokens.pieces == (b" the", b" ", b"\xc3", b"\xa4")
    assert tokens.starts == (0, 3, 4, 4) and tokens.ends == (3, 4, 5, 5) and tokens.lost == ()


def test_an_empty_text_is_no_token_but_the_bos():
    assert tokenize_text(byte_level(), "", n_ctx=5).ids == ()
    assert tokenize_text(byte_level(adds_bos=True), "", n_ctx=5).pieces == (b"<s>",)
    assert tokenize_text(byte_level(adds_bos=True), "", n_ctx=5, bos="none").ids == ()


# -- what is put in front -----------------------------------------------------------------------------------------


def test_bos_default_is_what_the_tokenizer_does():
    for tokenizer in (byte_level(), byte_level(adds_bos=True), sentencepiece()):
        assert list(tokenize_text(tokenizer, "the cat", n_ctx=99).ids) == tokenizer("the cat").input_ids
    tokens = tokenize_text(byte_level(adds_bos=True), "the", n_ctx=99)
    assert (tokens.bos, tokens.starts[0], tokens.ends[0], tokens.special[0]) == ("<s>", -1, -1, True)
    assert tokens.starts[1] == 0


def test_bos_none_and_own():
    tokenizer = byte_level(adds_bos=True)
    none = tokenize_text(tokenizer, "the", n_ctx=99, bos="none")
    assert none.bos == "" and list(none.ids) == tokenizer("the", add_special_tokens=False).input_ids
    own = tokenize_text(byte_level(), "the", n_ctx=99, bos="own")
    assert own.bos == "<s>" and own.ids == (tokenizer.bos_token_id, *none.ids)


def test_bos_and_end_around_an_empty_text():
    tokenizer = byte_level()
    around = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("<s>", "<|end|>")]
    both = processors.TemplateProcessing(single="<s> $A <|end|>", special_tokens=around)
    tokenizer.backend_tokenizer.post_processor = both
    for text in ("", "a"):
        tokens = tokenize_text(tokenizer, text, n_ctx=9)
        assert tokens.bos == "<s>" and tokens.pieces[-1] == b"<|end|>" and tokens.starts[-1] == -1


def test_a_bos_that_the_text_spells_is_not_the_one_put_in_front():
    tokens = tokenize_text(byte_level(), "<s>the", n_ctx=99)
    assert tokens.bos == "" and tokens.special[0] and (tokens.starts[0], tokens.ends[0]) == (0, 3)


def test_bos_choices_and_refusal():
    assert bos_choices(byte_level()) == ("default", "none", "own")
    assert bos_choices(word_level()) == ("default", "none")
    with pytest.raises(ValueError, match="needs a BOS choice this tokenizer has; found 'endoftext'; choose one of"):
        tokenize_text(byte_level(), "x", n_ctx=9, bos="endoftext")


# -- special tokens as text ---------------------------------------------------------------------------------------


def test_plain_spells_special_tokens_out_and_leaves_the_tokenizer_as_it_was():
    tokenizer = byte_level(adds_bos=True)
    special = tokenize_text(tokenizer, "a<|end|>", n_ctx=99)
    plain = tokenize_text(tokenizer, "a<|end|>", n_ctx=99, plain=True)
    assert special.pieces == (b"<s>", b"a", b"<|end|>") and special.special == (True, False, True)
    assert plain.pieces[0] == b"<s>" and not any(plain.special[1:]) and b"".join(plain.pieces[1:]) == b"a<|end|>"
    assert tokenizer.backend_tokenizer.encode_special_tokens is False
    tokenizer.backend_tokenizer.encode_special_tokens = True  # somebody else's setting
    tokenize_text(tokenizer, "a", n_ctx=99)
    assert tokenizer.backend_tokenizer.encode_special_tokens is True


# -- what is lost, replaced, cut ----------------------------------------------------------------------------------


def test_lone_surrogates_are_replaced_and_pairs_joined():
    tokens = tokenize_text(byte_level(), "a\ud83db \ud83d\ude42 \ude42", n_ctx=99)
    assert tokens.text == "a\ufffdb 🙂 \ufffd" and tokens.replaced == 2 and tokens.lost == ()


def test_characters_whose_bytes_the_vocabulary_lacks():
    tokens = tokenize_text(byte_level(trim_offsets=True, without=(0x04, 0xF1)), "a\x04 the\U00040000\x04b", n_ctx=99)
    assert tokens.pieces == (b"a", b" the", b"\x80", b"\x80", b"\x80", b"b")  # U+40000 is F1 80 80 80
    assert tokens.lost == ("\x04", "\U00040000")
    assert tokens.starts == (0, 2, 6, 6, 6, 8) and tokens.ends == (1, 6, 7, 7, 7, 9)


def test_unknown_characters_of_sentencepiece_without_bytes():
    tokens = tokenize_text(sentencepiece(byte_fallback=False), "the äöä<unk> c", n_ctx=99)
    assert tokens.lost == ("ä", "ö")  # <unk> typed by the user is the token itself


def test_unknown_words_of_a_word_level_vocabulary():
    tokens = tokenize_text(word_level(), "the dog", n_ctx=99)
    assert tokens.pieces == (b"the", b"[UNK]") and tokens.lost == ("d", "o", "g")


@pytest.mark.parametrize(
    ("keep", "pieces", "n_cut", "cut"),
    [
        (None, (b"<s>", b"a", b"b", b"c", b"d"), 0, ""),
        ("start", (b"<s>", b"a", b"b"), 2, "end"),
        ("end", (b"<s>", b"c", b"d"), 2, "start"),
    ],
)
def test_cutting_keeps_the_bos_and_says_what_went(keep, pieces, n_cut, cut):
    tokens = tokenize_text(byte_level(adds_bos=True), "abcd", n_ctx=3, keep=keep)
    assert (tokens.pieces, tokens.n_cut, tokens.cut) == (pieces, n_cut, cut)
    assert tokens.text == "abcd" and tokens.starts[-1] == tokens.text.index(pieces[-1].decode())


def test_a_text_that_fits_is_never_cut():
    assert tokenize_text(byte_level(), "abcd", n_ctx=4, keep="end").n_cut == 0


@pytest.mark.parametrize(("more", "found"), [({"keep": "middle"}, "'middle'"), ({"n_ctx": 0}, "found 0")])
def test_other_refusals(more, found):
    with pytest.raises(ValueError, match=f"needs .*{found}; "):
        tokenize_text(byte_level(), "x", **({"n_ctx": 9} | more))


# -- the embedded tokenizer ---------------------------------------------------------------------------------------


@pytest.mark.embedded
def test_embedded_examples(smol_tokenizer):
    model = SimpleNamespace(tokenizer=smol_tokenizer, config=SimpleNamespace(n_ctx=8192))
    for text, ids in reference()["examples"].items():
        tokens = run_tokenization(model, text)
        assert list(tokens.ids) == ids and b"".join(tokens.pieces) == text.encode()
        assert covered(tokens) == set(range(len(text))) and tokens.lost == ()
    for text, rows in reference()["bytes"].items():
        tokens = run_tokenization(model, text)
        assert [[i, piece.hex(" ")] for i, piece in zip(tokens.ids, tokens.pieces, strict=True)] == rows
        assert set(tokens.starts) == {0} and set(tokens.ends) == {1}
    assert run_tokenization(model, "Paris ").ids == (38634, 216)
    assert run_tokenization(model, "Hello world").ids == (19556, 905)
    assert run_tokenization(model, "Hello world", bos="own").ids == (1, 19556, 905)
    assert run_tokenization(model, "Hello world", bos="endoftext").ids == (0, 19556, 905)
    assert run_tokenization(model, "").ids == ()


@pytest.mark.embedded
def test_embedded_special_tokens(smol_tokenizer):
    assert tokenize_text(smol_tokenizer, "<|endoftext|>", n_ctx=99).ids == (0,)
    assert tokenize_text(smol_tokenizer, "<|im_start|>user", n_ctx=99).special == (True, False)
    plain = tokenize_text(smol_tokenizer, "<|endoftext|>", n_ctx=99, plain=True)
    assert plain.ids == (44, 108, 486, 1714, 2692, 108, 46) and not any(plain.special)


@pytest.mark.embedded
def test_embedded_vocabulary_loses_six_control_characters_and_part_of_an_unassigned_one(smol_tokenizer):
    controls = "".join(map(chr, [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D]))
    everything = "".join(map(chr, range(0x80)))
    tokens = tokenize_text(smol_tokenizer, everything, n_ctx=999)
    assert tokens.lost == tuple(controls)
    assert b"".join(tokens.pieces).decode() == "".join(c for c in everything if c not in controls)
    assert covered(tokens) == {i for i, c in enumerate(everything) if c not in controls}
    tokens = tokenize_text(smol_tokenizer, "a\U00040000b\x04\x04", n_ctx=99)
    assert tokens.lost == ("\U00040000", "\x04") and tokens.ids[1:4] == (218, 218, 218)
    assert tokens.starts == (0, 1, 1, 1, 2) and tokens.ends == (1, 2, 2, 2, 3)


@pytest.mark.embedded
@pytest.mark.parametrize("text", [*NASTY, "the word 'social'", " !", "The 🦙 said"])
def test_embedded_round_trip(smol_tokenizer, text):
    tokens = tokenize_text(smol_tokenizer, text, n_ctx=999)
    assert smol_tokenizer.decode(tokens.ids) == text == b"".join(tokens.pieces).decode()
    assert covered(tokens) == set(range(len(text)))
