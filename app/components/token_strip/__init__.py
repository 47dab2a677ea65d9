"""The tokens of a text, one button each."""

from app.components.token_strip.token_strip import token_strip

__all__ = ["token_strip"]
