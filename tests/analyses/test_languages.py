import numpy as np
import pytest

from analyses.languages import ARTICLE_1, compare_languages, run_language_costs
from analyses.tokenization import tokenize_text
from tests.toy_tokenizers import byte_level, reference

N_CTX = 10_000


def test_worked_by_hand():
    """Bytes of the own prompt: ä is two, 🙂 is four of which two are one token of the toy vocabulary."""
    tokenizer = byte_level(adds_bos=True)
    texts = {"English": ARTICLE_1["English"], "Greek": ARTICLE_1["Greek"], "own prompt": "ä🙂", "empty": ""}
    costs = compare_languages({name: tokenize_text(tokenizer, text, n_ctx=N_CTX) for name, text in texts.items()})
    assert costs.name == ("English", "Greek", "own prompt", "empty")
    assert (costs.n_tokens[2], costs.n_characters[2], costs.n_bytes[2]) == (5, 2, 6)  # the BOS is not the text's
    assert costs.tokens_per_character[2] == 2.5 and costs.tokens_per_byte[2] == pytest.approx(5 / 6)
    assert costs.n_characters[0] == costs.n_bytes[0] == 170
    assert costs.relative_to_english[0] == 1 and costs.relative_to_english[1] == costs.n_tokens[1] / costs.n_tokens[0]
    assert np.isnan(costs.relative_to_english[2:]).all()  # other content: no ratio
    assert costs.n_tokens[3] == 0 and np.isnan(costs.tokens_per_character[3]) and np.isnan(costs.tokens_per_byte[3])


def test_no_ratio_without_the_english_text():
    german = tokenize_text(byte_level(), ARTICLE_1["German"], n_ctx=N_CTX)
    impostor = tokenize_text(byte_level(), "Hello", n_ctx=N_CTX)
    assert np.isnan(compare_languages({"German": german}).relative_to_english).all()
    assert np.isnan(compare_languages({"German": german, "English": impostor}).relative_to_english).all()


def test_frame_has_one_row_per_text():
    frame = compare_languages({"German": tokenize_text(byte_level(), ARTICLE_1["German"], n_ctx=N_CTX)}).to_frame()
    assert frame.loc[0, "name"] == "German" and frame.loc[0, "n_bytes"] == len(ARTICLE_1["German"].encode())


def test_refusals():
    with pytest.raises(ValueError, match="needs at least one tokenised text; found none; pass"):
        compare_languages({})
    cut = tokenize_text(byte_level(), ARTICLE_1["German"], n_ctx=5, keep="start")
    with pytest.raises(ValueError, match="needs whole texts; found 'German' cut to the context; tokenise"):
        compare_languages({"German": cut})


def test_the_texts_are_distinct_normalised_and_whole():
    import unicodedata

    assert len(ARTICLE_1) == len(set(ARTICLE_1.values())) == 16
    for text in ARTICLE_1.values():  # another normal form has other bytes, so other counts; two sentences, both there
        assert unicodedata.normalize("NFC", text) == text == text.strip()
        assert sum(text.count(stop) for stop in ".。।") == (1 if text == ARTICLE_1["Spanish"] else 2)


@pytest.mark.embedded
def test_embedded_counts_are_exact(smol):
    costs = run_language_costs(smol)
    expected = reference()["article_1"]
    assert list(costs.name) == list(expected)
    for i, counts in enumerate(expected.values()):
        assert counts == {
            "n_tokens": costs.n_tokens[i],
            "n_characters": costs.n_characters[i],
            "n_bytes": costs.n_bytes[i],
        }
    ratio = dict(zip(costs.name, costs.relative_to_english.round(2), strict=True))
    assert (ratio["German"], ratio["Greek"], ratio["Chinese"], ratio["Hindi"]) == (1.88, 5.06, 2.31, 6.22)
    per_character = dict(zip(costs.name, costs.tokens_per_character.round(2), strict=True))
    assert (per_character["Chinese"], per_character["English"]) == (1.72, 0.19)
