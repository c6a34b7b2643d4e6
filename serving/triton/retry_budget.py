"""How many calls may be retried, so that retries help when one server is lost and add little load when all are slow."""

from __future__ import annotations


class RetryBudget:
    """A count of retries that calls earn and retries spend.

    Args:
        share: Retries that every call earns.
        most: Retries that can be saved, and the number at the start.
    """

    def __init__(self, share: float, most: int) -> None:
        self._share = share
        self._most = most
        self._saved: float = most

    def earn(self) -> None:
        """Count a call."""
        self._saved = min(self._saved + self._share, self._most)

    def spend(self) -> bool:
        """Return whether a retry is allowed, and count it."""
        allowed = self._saved >= 1
        self._saved -= allowed
        return allowed
