"""The computed sentence above a picture, with tokens set as tokens."""

from app.components.finding.finding import Piece, finding

__all__ = ["Piece", "finding"]
