"""Tiny random models as local folders, opened the way a person's own model is."""

from pathlib import Path

from tests.tiny import tiny_hf_model, tiny_tokenizer


def save_tiny(family: str, folder: Path) -> Path:
    """Weights (safetensors), config and tokenizer of a tiny random model in a folder."""
    tiny_hf_model(family).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
