"""Every number that the starter prompts claim is the embedded model's."""

import re
import unicodedata

import numpy as np
import pytest

from analyses import run_next_token, run_tokenization
from analyses.sampling import log_softmax
from app.ui.examples import EXAMPLES, look_for

pytestmark = pytest.mark.embedded
BY_NAME = {example.name: example for example in EXAMPLES}


class Seen:
    """One example on the embedded model: its tokens, and the probability of any token after it."""

    def __init__(self, smol, name, bos="default"):
        self.example = BY_NAME[name]
        self.smol = smol
        self.tokens = run_tokenization(smol, self.example.prompt, bos=bos)
        self.after = run_next_token(smol, self.tokens.ids)
        self.percents = [int(number) for number in re.findall(r"(\d+) %", self.example.look_for)]

    def percent(self, text):
        (token_id,) = run_tokenization(self.smol, text, bos="none").ids
        return round(100 * float(np.exp(log_softmax(self.after.logits)[token_id])))

    @property
    def best(self):
        return self.smol.tokenizer.decode([int(self.after.ids[0])])

    @property
    def pieces(self):
        return [piece.decode("utf-8", "replace") for piece in self.tokens.pieces]


@pytest.fixture
def seen(smol):
    return lambda name, **choices: Seen(smol, name, **choices)


def test_there_are_ten_and_each_says_what_to_look_for():
    assert len({example.prompt for example in EXAMPLES}) == len({e.name for e in EXAMPLES}) == 10
    assert all(look_for(example.prompt) == example.look_for != "" for example in EXAMPLES)
    assert look_for("nobody wrote this") == ""


def test_a_capital(seen):
    it = seen("A capital")
    assert it.pieces == ["The", " capital", " of", " France", " is"], "five tokens, each with its leading space"
    assert it.best == " Paris"
    assert it.percents == [it.percent(" Paris")]


def test_a_tower(seen):
    it, with_bos = seen("A tower, and a BOS token"), seen("A tower, and a BOS token", bos="own")
    assert it.pieces[1:3] == [" E", "iffel"] or "".join(it.pieces[1:3]) == " Eiffel"
    assert it.best == " Paris"
    assert it.percents == [it.percent(" Paris"), with_bos.percent(" Paris")]


def test_who_gets_the_bag(seen):
    it = seen("Who gets the bag")
    assert it.example.prompt.count("Mary") == 1 and it.example.prompt.count("John") == 2
    assert it.percents == [it.percent(" Mary"), it.percent(" John")]


def test_likely_and_wrong(seen):
    it = seen("Likely and wrong")
    assert it.best == " helium"
    assert it.percents == [it.percent(" helium"), it.percent(" oxygen")]


def test_an_open_story(seen):
    it = seen("An open story")
    (limit,) = it.percents
    assert limit - 1 < 100 * it.after.probability[0] <= limit, "true, and not loosely"


def test_arithmetic(seen):
    it = seen("Arithmetic")
    assert [piece.strip() for piece in it.pieces if piece.strip().isdigit()] == list("12748")
    assert it.best == " "
    assert it.percents == [it.percent(" ")]


def test_strawberry(seen):
    it = seen("Strawberry twice")
    comma = it.pieces.index(",")
    assert "".join(it.pieces[:comma]) == "strawberry" and comma == 3
    assert it.pieces[comma + 1 :] == [" strawberry"]


def test_chinese(seen):
    it = seen("Chinese")
    n_characters, n_tokens = map(int, re.match(r"(\d+) characters, (\d+) tokens", it.example.look_for).groups())
    assert (n_characters, n_tokens) == (len(it.example.prompt), len(it.tokens.ids))
    incomplete = sum("\ufffd" in piece for piece in it.pieces)
    assert incomplete >= 5, "many are parts of a character"


def test_emoji(seen):
    it = seen("Emoji")
    assert int(re.search(r"(\d+) tokens", it.example.look_for)[1]) == len(it.tokens.ids)
    astronaut = it.example.prompt.split(" ")[-1]
    assert [unicodedata.name(c) for c in astronaut] == ["WOMAN", "ZERO WIDTH JOINER", "ROCKET"]
    # Where a font has no astronaut: 🙂, 🦙, woman, rocket and two spaces.
    assert len(it.example.prompt) - astronaut.count("\u200d") == 6


def test_a_repeated_list(seen, smol):
    it = seen("A repeated list")
    assert it.best == " lamp"
    assert it.percents == [it.percent(" lamp")]
    without = run_tokenization(smol, it.example.prompt.replace("kiwi lamp", "kiwi"))
    (lamp,) = run_tokenization(smol, " lamp", bos="none").ids
    copied = np.exp(log_softmax(run_next_token(smol, without.ids).logits)[lamp])
    assert copied < 0.01, "it is copied: without the first lamp nobody says lamp"
