"""Who is to blame when a worker dies, and when to stop starting it again."""

from collections import Counter
from collections.abc import Iterable

DEATHS_PER_REQUEST = 2
STARTS_WITHOUT_SUCCESS = 2


class Deaths:
    """Counts deaths per request and failed starts in a row."""

    def __init__(self) -> None:
        self.total = 0
        self._blamed: Counter[str] = Counter()
        self._failed_starts = 0

    def started(self) -> None:
        """A worker has become ready."""
        self._failed_starts = 0

    def died(self, running: str, waiting: Iterable[str], *, was_ready: bool) -> None:
        """Blame the running request; when none ran, any of the waiting ones may be to blame, and a loop has to end."""
        self.total += 1
        self._failed_starts += not was_ready
        self._blamed.update([running] if running else set(waiting))

    def forgive(self, key: str) -> None:
        """A request ended well."""
        self._blamed.pop(key, None)

    def may_return(self, key: str) -> bool:
        """Whether a request is sent to the next worker."""
        return self._blamed[key] < DEATHS_PER_REQUEST

    def may_start(self) -> bool:
        """Whether another start is worth it."""
        return self._failed_starts < STARTS_WITHOUT_SUCCESS
