"""A table in shared memory: what each worker has in flight, and what is left of the rates of keys.

It is a file of a fixed size that every worker maps. A worker writes its own row alone; the parent clears the row of one
that has ended, so that what it had in flight counts no longer. Whatever depends on other rows, or on a rate, happens
under a lock that the kernel releases when its holder dies. Rates live in a cache: when all entries that a key may use
are taken, the one that was used longest ago is replaced.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import time
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

MOST_WORKERS = 64
FROZEN_MILLISECONDS = 1000  # without a sign of life, ten of which are due
_MANY = 2**62
_FILE, _LOCK = "table", "lock"
_BUCKETS, _CHOICES = 4096, 64  # of which a key may use so many; a key file has at most a thousand keys
_COLUMNS = ("pid", "start", "state", "alive", "connections", "requests", "bytes", "inversions")
_BUCKET = np.dtype([("key", "V16"), ("level", np.float64), ("at", np.float64)])
_OFFSET = 8 * MOST_WORKERS * len(_COLUMNS)  # of the buckets


def milliseconds() -> int:
    """Return the time on the clock that all processes of the machine share."""
    return time.monotonic_ns() // 1_000_000


class State(IntEnum):
    """What a worker does; a row of zeros is one that does not run."""

    STARTING = 0
    ACCEPTING = 1
    READY = 2


class Table:
    """The table, as one process sees it.

    Args:
        folder: Folder of the file, in which `create` has made it.

    Attributes:
        columns: The integers of each slot by name: `pid`, `start` (how often the slot was filled), `state`, `alive`
            (when it said so last, in `milliseconds`), `connections`, `requests` and `bytes` in flight, `inversions`.
    """

    def __init__(self, folder: Path) -> None:
        with (folder / _FILE).open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        numbers = memoryview(mapped)[:_OFFSET].cast("q")
        starts = (MOST_WORKERS * position for position in range(len(_COLUMNS)))
        self.columns = {name: numbers[at : at + MOST_WORKERS] for name, at in zip(_COLUMNS, starts, strict=True)}
        self._buckets: NDArray[Any] = np.frombuffer(mapped, _BUCKET, offset=_OFFSET)
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)

    @classmethod
    def create(cls, folder: Path) -> Table:
        """Make the table's files in an empty folder."""
        (folder / _FILE).write_bytes(bytes(_OFFSET + _BUCKETS * _BUCKET.itemsize))
        (folder / _LOCK).touch()
        return cls(folder)

    def close(self) -> None:
        """Close the lock; the table itself is unmapped with its last view."""
        os.close(self._lock)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Return a context in which no other process changes what it shares; it takes microseconds and never awaits."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def begin(self, slot: int, start: int) -> None:
        """Note that a slot is filled, for the nth time."""
        for name, column in self.columns.items():
            column[slot] = start if name == "start" else 0

    def clear(self, slot: int) -> None:
        """Forget what an ended worker had in flight, and keep how often its slot was filled.

        Without the lock: a frozen worker may hold it, which only the caller can end.
        """
        self.begin(slot, self.columns["start"][slot])

    def total(self, column: str) -> int:
        """Return the sum of a column over all workers."""
        return sum(self.columns[column])

    def accepting(self) -> list[int]:
        """Return the slots of the workers that accept connections."""
        return [slot for slot, state in enumerate(self.columns["state"]) if state > State.STARTING]

    def least_connections(self) -> int:
        """Return the connections of the worker that has the fewest, of those that accept any and are not frozen."""
        alive, limit = self.columns["alive"], milliseconds() - FROZEN_MILLISECONDS
        able = (slot for slot in self.accepting() if alive[slot] > limit)
        return min((self.columns["connections"][slot] for slot in able), default=_MANY)

    def ready(self) -> bool:
        """Return whether some worker accepts connections, and all that do are ready."""
        states = [self.columns["state"][slot] for slot in self.accepting()]
        return bool(states) and all(state == State.READY for state in states)

    def bucket(self, name: str, full: float, now: float) -> NDArray[Any]:
        """Return the entry of a rate, under the lock; a new one is full.

        Args:
            name: Name of the rate; another rate has another name.
            full: Its level when it is new.
            now: Seconds on the clock of all workers.

        Returns:
            A view with the fields `level` and `at`, which may be another rate's after the lock is released.
        """
        digest = hashlib.sha256(name.encode()).digest()
        key, first = np.void(digest[:16]), int.from_bytes(digest[16:20], "little")
        choices = (first + np.arange(_CHOICES)) % _BUCKETS
        found = np.flatnonzero(self._buckets["key"][choices] == key)
        if found.size:
            return self._entry(int(choices[found[0]]))
        entry = self._entry(int(choices[np.argmin(self._buckets["at"][choices])]))  # an unused one is the oldest
        entry["key"], entry["level"], entry["at"] = key, full, now
        return entry

    def _entry(self, index: int) -> NDArray[Any]:
        return self._buckets[index : index + 1]
