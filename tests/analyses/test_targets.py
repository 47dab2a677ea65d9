"""A target is one token of the model's vocabulary, or it is refused with what was found."""

from types import SimpleNamespace

import numpy as np
import pytest

from analyses._targets import token_id
from tests.tiny import tiny_tokenizer


@pytest.fixture(scope="module")
def model():
    return SimpleNamespace(tokenizer=tiny_tokenizer(), config=SimpleNamespace(d_vocab=300))


def test_an_id_is_itself_and_a_text_is_its_token(model):
    assert token_id(model, 7) == token_id(model, np.int32(7)) == 7
    for text in (" the", "the"[:1], "<|end|>"):
        assert [token_id(model, text)] == model.tokenizer.encode(text, add_special_tokens=False)


def test_no_beginning_of_sequence_token_is_counted():
    tokenizer = tiny_tokenizer()
    plain = tokenizer.encode(" the")
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|end|> $A", special_tokens=[("<|end|>", 0)]
    )
    assert tokenizer.encode(" the") == [0, *plain]
    assert token_id(SimpleNamespace(tokenizer=tokenizer, config=SimpleNamespace(d_vocab=300)), " the") == plain[0]


@pytest.mark.parametrize(
    "given, words",
    [
        (300, "needs a distractor id from 0 to 299; found 300; use"),
        (-1, "found -1"),
        ("", "that is one token; found a text without any"),
        (
            "the log\n🙂",
            r'found "the log\\n🙂", which is 8: "t", "he", " log", "\\n", "<F0>", "<9F>", "<99>", "<82>"; ',
        ),
        ("a" * 50, r'found "a{40}\.\.\.", which is 50: ("a", ){8}\.\.\.; choose'),
    ],
)
def test_a_refusal_shows_the_pieces_that_were_found(model, given, words):
    with pytest.raises(ValueError, match=words):
        token_id(model, given, "distractor")


def test_a_token_that_the_model_has_no_logit_for_is_refused(model):
    small = SimpleNamespace(tokenizer=model.tokenizer, config=SimpleNamespace(d_vocab=200))
    with pytest.raises(ValueError, match="ids below 200.*found id 2"):
        token_id(small, " the")
