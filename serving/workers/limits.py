"""Limits that hold over all workers together: requests and bytes in flight, inversions, and the rates of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.auth.rate import Bucket
from serving.limits import Admission

if TYPE_CHECKING:
    from serving.workers.table import Table


class SharedAdmission(Admission):
    """Counts what is in flight in all workers.

    Args:
        max_requests: Requests that may be in flight at one time.
        max_bytes: Body bytes that may be held at one time over all requests.
        table: The table of all workers.
        slot: This worker's slot.
    """

    def __init__(self, max_requests: int, max_bytes: int, table: Table, slot: int) -> None:
        super().__init__(max_requests, max_bytes)
        self._table, self._slot = table, slot
        self._all_requests, self._all_bytes = table.columns["requests"], table.columns["bytes"]

    def begin(self) -> None:
        with self._table.locked():
            self._requests = self._table.total("requests")
            super().begin()
            self._all_requests[self._slot] += 1

    def end(self, held: int) -> None:
        self._all_requests[self._slot] -= 1
        self._all_bytes[self._slot] -= held

    def hold(self, count: int) -> None:
        with self._table.locked():
            self.bytes = self._table.total("bytes")
            super().hold(count)
            self._all_bytes[self._slot] += count


class SharedBucket(Bucket):
    """A rate that all workers take from.

    Args:
        rate: Samples per second.
        burst: Samples at once, after a pause.
        now: Seconds on the clock of all later calls, which is that of the machine.
        name: Name of the rate in the table.
        table: The table of all workers.
    """

    def __init__(self, rate: float, burst: int, now: float, name: str, table: Table) -> None:
        super().__init__(rate, burst, now)
        self._name = f"{name} {rate} {burst}"
        self._table = table

    def wait(self, count: int, now: float) -> float:
        with self._table.locked():
            return self._shared(count, now, take=False)

    def take(self, count: int, now: float) -> float:
        with self._table.locked():
            return self._shared(count, now, take=True)

    def _shared(self, count: int, now: float, *, take: bool) -> float:
        entry = self._table.bucket(self._name, self._burst, now)
        self._level, self._at = float(entry["level"][0]), float(entry["at"][0])
        seconds = super().wait(count, now)
        if take and not seconds:
            self._level -= count
        entry["level"], entry["at"] = self._level, self._at
        return seconds
