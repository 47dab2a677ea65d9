"""What does the same content cost in different languages? One short text, tokenised in sixteen of them.

The text is article 1 of the Universal Declaration of Human Rights (United Nations 1948) in the UN's own translations:
two sentences, the same content each time. Tokens per character alone mislead: a Chinese character says more than a
Latin letter, so Chinese looks nine times dearer than English per character (SmolLM2: 1.72 against 0.19) and is 2.3
times dearer for the same content. So the ratio for the same content and the tokens per UTF-8 byte stand beside it.

Source: the comparison is that of Petrov, La Malfa, Torr and Bibi 2023, "Language Model Tokenizers Introduce Unfairness
Between Languages".

Identity: tokens per byte * bytes = tokens per character * characters = tokens.

Limit: counts belong to one tokenizer, and one short text is no average of a language. Cost is not ability: how well a
model writes a language depends on what it was trained on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from analyses.tokenization import Tokens, run_tokenization

ENGLISH = "English"
ARTICLE_1: Mapping[str, str] = json.loads((Path(__file__).parent / "data" / "udhr_article_1.json").read_text("utf-8"))


@dataclass(frozen=True, eq=False)
class LanguageCosts:
    """One row per text, in the order they were given."""

    name: tuple[str, ...]
    n_tokens: Int64[np.ndarray, " row"]  # of the text itself: a BOS is not counted
    n_characters: Int64[np.ndarray, " row"]
    n_bytes: Int64[np.ndarray, " row"]  # UTF-8
    tokens_per_character: Float64[np.ndarray, " row"]  # NaN for an empty text
    tokens_per_byte: Float64[np.ndarray, " row"]
    relative_to_english: Float64[np.ndarray, " row"]  # NaN for any other text: not the same content

    def to_frame(self) -> Any:
        """A pandas table, one row per text."""
        import pandas as pd

        return pd.DataFrame(vars(self))


def compare_languages(tokenized: Mapping[str, Tokens]) -> LanguageCosts:
    """Count tokens per text, character and byte.

    Args:
        tokenized: name -> tokens; names of `ARTICLE_1` with its text, and any others, such as the reader's own prompt.

    Raises:
        ValueError: no text at all, or a text of which a part was cut off.
    """
    if not tokenized:
        raise ValueError("needs at least one tokenised text; found none; pass {name: run_tokenization(model, text)}.")
    cut = [name for name, tokens in tokenized.items() if tokens.n_cut]
    if cut:
        raise ValueError(f"needs whole texts; found {cut[0]!r} cut to the context; tokenise it with keep=None.")
    n_tokens = np.array([sum(start >= 0 for start in tokens.starts) for tokens in tokenized.values()], dtype=np.int64)
    n_characters = np.array([len(tokens.text) for tokens in tokenized.values()], dtype=np.int64)
    n_bytes = np.array([len(tokens.text.encode()) for tokens in tokenized.values()], dtype=np.int64)
    same_content = np.array([tokens.text == ARTICLE_1.get(name) for name, tokens in tokenized.items()])
    names = list(tokenized)
    english = n_tokens[names.index(ENGLISH)] if ENGLISH in names and same_content[names.index(ENGLISH)] else np.nan
    return LanguageCosts(
        name=tuple(names),
        n_tokens=n_tokens,
        n_characters=n_characters,
        n_bytes=n_bytes,
        tokens_per_character=_ratio(n_tokens, n_characters),
        tokens_per_byte=_ratio(n_tokens, n_bytes),
        relative_to_english=np.where(same_content, n_tokens / english, np.nan),
    )


def run_language_costs(model: Any) -> LanguageCosts:
    """Compare the sixteen languages with a model's tokenizer."""
    return compare_languages({name: run_tokenization(model, text, bos="none") for name, text in ARTICLE_1.items()})


def _ratio(count: Int64[np.ndarray, " row"], size: Int64[np.ndarray, " row"]) -> Float64[np.ndarray, " row"]:
    """Count / size, NaN where the size is zero."""
    return np.divide(count, size, out=np.full(len(count), np.nan), where=size > 0)
