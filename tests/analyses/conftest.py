"""The embedded model's tokenizer alone, for tests that need no weights."""

import pytest


@pytest.fixture(scope="session")
def smol_tokenizer(smol_dir):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smol_dir)
