"""The computed sentence of the Tokens page: how the text was split, and what comes next."""

from analyses.next_token import NextToken
from app.components.finding import Piece
from app.ui.frame import Frame
from app.ui.token_text import percent
from app.views.next_token import in_bits

EMPTY = "An empty prompt has no tokens. Write one on the left, or put a BOS token in front to see what the model says first."


def split_words(frame: Frame) -> str:
    """The first half; every number can be counted in the strip."""
    tokens = frame.tokens
    n_tokens, n_characters = len(tokens.ids), len(frame.prompt)
    start = f"Your {n_characters:,} character{'' if n_characters == 1 else 's'} became {n_tokens:,} token"
    start += "" if n_tokens == 1 else "s"
    if tokens.chat:
        return f"With the chat template there are {n_tokens:,} tokens{_own_share(frame)}."
    if tokens.n_cut:
        return f"{start}; {tokens.n_cut:,} more at its {tokens.cut} were cut."
    own = sum(position >= 0 for position in tokens.starts)
    added = f", {n_tokens - own} of them put in front" if own < n_tokens else ""
    return f"{start}{added} ({own / n_characters:.2f} per character)." if n_characters else f"{start}{added}."


def _own_share(frame: Frame) -> str:
    """How many of a chat's tokens are the person's own; "" where the template changed the text."""
    place = frame.tokens.text.rfind(frame.prompt)
    if not frame.prompt or place < 0:
        return ""
    end = place + len(frame.prompt)
    spans = zip(frame.tokens.starts, frame.tokens.ends, strict=True)
    own = sum(place <= first and last <= end for first, last in spans)
    return f", {own:,} of them from your {len(frame.prompt):,} characters; the template adds the rest"


def next_words(frame: Frame, result: NextToken) -> list[str | Piece]:
    """The second half; its numbers stand in the picture below."""
    best = Piece(frame.model.vocabulary.piece(int(result.ids[0])))
    bits = in_bits(result.entropy_nats)
    return [
        " After ",
        Piece(frame.tokens.pieces[result.position]),
        f" (token {result.position}) the model assigns ",
        best,
        f" {percent(float(result.probability[0]))}; the whole distribution carries {bits:.2f} bits.",
    ]
