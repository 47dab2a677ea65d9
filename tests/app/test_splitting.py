"""Letters are counted in characters, whatever their bytes."""

import pytest

from analyses.tokenization import run_tokenization
from app.views.splitting import letter_counts

pytestmark = pytest.mark.embedded


@pytest.mark.parametrize(
    ("word", "letter", "total"),
    [
        ("strawberry", "r", 3),
        ("Тест", "т", 2),
        ("ТЕСТ", "т", 2),
        ("ÉCLAIR", "é", 1),
        ("🙂🙂", "🙂", 2),
        ("abc", "z", 0),
    ],
)
def test_letters_large_and_small_and_split_over_tokens(smol, word, letter, total):
    tokens = run_tokenization(smol, word, bos="none", plain=True)
    counts = letter_counts(tokens, letter)
    assert len(counts) == len(tokens.ids) and sum(counts) == total == word.lower().count(letter)


def test_strawberry_by_token(smol):
    assert letter_counts(run_tokenization(smol, "strawberry", bos="none"), "r") == [0, 1, 2]  # st, raw, berry
