"""What the Tokens page says of a prompt, against the tokenizer's own count."""

from types import SimpleNamespace

import pytest

from analyses.tokenization import run_tokenization
from app.ui.token_text import powers
from app.views.position import _legend
from app.views.token_finding import split_words

pytestmark = pytest.mark.embedded


def frame(smol, prompt, **options):
    return SimpleNamespace(prompt=prompt, tokens=run_tokenization(smol, prompt, **options))


@pytest.mark.parametrize("prompt", ["The capital of France is", "Hi 🙂\n<s>a<b>c</b>$x$"])
def test_a_chat_counts_the_persons_own_tokens_apart(smol, smol_hf, prompt):
    _, tokenizer = smol_hf
    whole = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    own = len(tokenizer(prompt)["input_ids"])
    said = split_words(frame(smol, prompt, chat=True))
    assert f"there are {len(whole)} tokens, {own} of them from your {len(prompt)} characters" in said


def test_a_token_in_front_is_no_part_of_the_ratio(smol):
    assert split_words(frame(smol, "The capital of France is", bos="own")).endswith(
        "became 6 tokens, 1 of them put in front (0.21 per character)."
    )


def test_only_marks_that_occur_are_explained(smol):
    assert _legend(run_tokenization(smol, "Hello")) == "Click a token to predict what follows it."
    said = _legend(run_tokenization(smol, "🙂 a\n<|im_end|>", bos="own"))
    for words in ("· is a space", "⏎ is a new line", "unfinished character", "special token", "dashed box"):
        assert words in said


def test_exponents_as_people_write_them():
    assert powers("off by 2.4e-07, limit 1e+03; e-mail") == "off by 2.4×10⁻⁷, limit 1×10³; e-mail"
