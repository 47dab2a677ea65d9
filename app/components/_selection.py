"""What the server remembers about a component in which one thing can be selected.

Such a component gets its content as bytes, and Streamlit resends a message only when its bytes change. So the payload
must not change when the user clicks: it holds the selection only as it was when something other than the component last
set it (another picture, a link, new content), and the browser keeps its own since. `Memo` is what the server has to
remember for that, one per component and session.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Memo:
    """What the browser shows, as far as the server knows."""

    digest: int = 0  # of the content
    sent: int | None = None  # the selection inside the payload
    shown: int | None = None  # the selection on the screen: `sent`, or what was clicked since
    revision: int = 0  # counts the selections that came from outside
    seen: tuple[int, int] | None = None  # the last click taken notice of: its position and its time


def read_click(state: Any) -> tuple[int, int] | None:
    """Position and time of the last click, or None: what a browser sends is any JSON and not to be trusted."""
    found = state.get("selected") if isinstance(state, Mapping) else None
    if type(found) is int:  # AppTest sets the position alone
        found = {"position": found, "time": 0}
    if not isinstance(found, Mapping):
        return None
    position, time = found.get("position"), found.get("time")
    return (position, time) if type(position) is int and type(time) is int else None


def reconcile(
    memo: Memo, digest: int, n_positions: int, click: tuple[int, int] | None, selected: int | None
) -> tuple[Memo, int | None]:
    """What the server remembers after this run, and the selection it returns.

    Args:
        memo: what it remembered before.
        digest: of the content drawn now.
        n_positions: how many things can be selected; no other position is ever returned.
        click: the last click in the component's state, new or not.
        selected: what the caller passes.
    """
    # A click is known by its time: what its number means may change with the content. Time 0 is AppTest's.
    known = memo.seen is not None and click is not None and click[1] == memo.seen[1]
    fresh = click is not None and 0 <= click[0] < n_positions and (not known or click[1] == 0 and click != memo.seen)
    wanted = click[0] if click is not None and fresh else selected
    result = wanted if wanted is not None and 0 <= wanted < n_positions else None
    shown = result if fresh else memo.shown
    # Taken off the page, the component forgets its clicks: then the payload has to say what is selected.
    forgotten = click is None and memo.seen is not None
    if forgotten or digest != memo.digest or shown != result:
        return Memo(digest, result, result, memo.revision + 1, click), result
    return Memo(digest, memo.sent, shown, memo.revision, click), result
