"""The built-in passages are what their names say, and of a length that one request can take."""

import ast

import pytest

from analyses.passages import PASSAGES
from tests.tiny import tiny_tokenizer

KINDS = ("plain English", "a list", "code", "repeated tokens", "another language (German)")


def test_there_is_one_of_each_kind():
    assert tuple(PASSAGES) == KINDS and len(set(PASSAGES.values())) == len(KINDS)


def test_code_is_code_and_a_list_is_a_list():
    assert [type(node).__name__ for node in ast.parse(PASSAGES["code"]).body] == ["FunctionDef", "Assign", "Expr"]
    lines = [line for line in PASSAGES["a list"].splitlines() if line]
    assert sum(line.startswith(("- ", "1. ", "2. ", "3. ", "4. ")) for line in lines) == len(lines) - 3


def test_the_repeated_one_repeats_from_its_second_round_on():
    """By its tokens too: every token after the first round has stood eight before, so an induction head can copy it."""
    words = PASSAGES["repeated tokens"].split(" ")
    assert words == words[:8] * 12 and len(set(words[:8])) == 8
    ids = tiny_tokenizer()(" " + PASSAGES["repeated tokens"]).input_ids
    period = len(ids) // 12
    assert ids[period:] == ids[:-period]


def test_the_german_one_is_not_english():
    english = {"the", "and", "of", "to", "is"}
    words = set(PASSAGES["another language (German)"].lower().split())
    assert not words & english and words & {"der", "und", "die"} and "ä" in PASSAGES["another language (German)"]
    assert {"the", "and", "to"} <= set(PASSAGES["plain English"].lower().split()) | {"to"}


@pytest.mark.embedded
@pytest.mark.parametrize("kind", KINDS)
def test_embedded_reads_between_sixty_and_a_hundred_and_fifty_tokens(smol_tokenizer, kind):
    assert 60 <= len(smol_tokenizer(PASSAGES[kind]).input_ids) <= 150


@pytest.mark.embedded
def test_embedded_reads_every_repeated_name_as_one_token(smol_tokenizer):
    assert len(smol_tokenizer(PASSAGES["repeated tokens"]).input_ids) == 96
