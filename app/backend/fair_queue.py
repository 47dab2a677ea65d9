"""Whose turn it is: start-time fair queueing over users, first in first out inside a user.

Goyal, Vin, Cheng 1996, "Start-time fair queueing". Each user has a start tag that grows by the seconds of computing they were
given; the user with the smallest tag is served next. Somebody who comes back after a pause starts at the current virtual time:
rest earns no credit. Not thread-safe: the worker holds its lock around every call.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class FairQueue(Generic[Item]):
    """Items wait in their user's line; the same item may wait in several lines and leaves them all at once."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Item]] = {}
        self._tags: dict[str, tuple[float, int]] = {}  # virtual start time, order of arrival (breaks ties)
        self._order = count()
        self._now = 0.0  # virtual time: start tag of the user served last

    def put(self, user: str, item: Item) -> None:
        """Add an item at the end of a user's line, once."""
        line = self._lines.setdefault(user, deque())
        if not line:
            start = max(self._now, self._tags.get(user, (0.0, 0))[0])
            self._tags[user] = (start, next(self._order))
        if item not in line:
            line.append(item)

    def next(self) -> tuple[str, Item] | None:
        """The user whose turn it is and their first item, which stays at the head of the line; None when nobody waits."""
        waiting = [user for user, line in self._lines.items() if line]
        if not waiting:  # the end of a busy period: everybody starts equal, and the table of tags stays small
            self._now = max([self._now, *(start for start, _ in self._tags.values())])
            self._tags.clear()
            return None
        user = min(waiting, key=self._tags.__getitem__)
        self._now = max(self._now, self._tags[user][0])
        return user, self._lines[user][0]

    def charge(self, user: str, seconds: float) -> None:
        """Count computing time to a user, after the turn."""
        start, _ = self._tags.get(user, (self._now, 0))
        self._tags[user] = (start + seconds, next(self._order))

    def remove(self, item: Item) -> None:
        """Take an item out of every line."""
        for user in [user for user, line in self._lines.items() if item in line]:
            self._lines[user].remove(item)
            if not self._lines[user]:
                del self._lines[user]

    def __iter__(self) -> Iterator[Item]:
        """Every waiting item once, users in the order of their turns."""
        seen: set[Item] = set()
        for user in sorted((user for user, line in self._lines.items() if line), key=self._tags.__getitem__):
            for item in self._lines[user]:
                if item not in seen:
                    seen.add(item)
                    yield item

    def __len__(self) -> int:
        return sum(1 for _ in self)
