"""One of several workers: its slot, and what it shares with the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, multiprocess, values
from pydantic import BaseModel, ConfigDict

from serving.workers.collector import WorkersCollector
from serving.workers.limits import SharedAdmission, SharedBucket
from serving.workers.table import Table

if TYPE_CHECKING:
    from serving.auth.rate import Bucket
    from serving.limits import Admission

METRICS = "metrics"


class Order(BaseModel):
    """What a worker is started with, as one line of JSON on its standard input.

    Attributes:
        slot: Its number, from 0.
        start: How often the slot was filled, this time included.
        folder: The folder of what the workers share.
        listeners: File descriptors of the listening sockets.
        settings: The service's settings, all of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    slot: int
    start: int
    folder: Path
    listeners: tuple[int, ...]
    settings: dict[str, Any]


class Worker:
    """What this process shares with the other workers. Metrics made after it are merged with theirs.

    Args:
        order: What it was started with.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.slot = order.slot
        self.table = Table(order.folder)
        self.set("pid", os.getpid())
        self._metrics = str(order.folder / METRICS)
        # As the library documents it for other servers: files by slot, so that a new worker continues their counters.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = self._metrics
        values.ValueClass = values.MultiProcessValue(lambda: order.slot)

    def set(self, column: str, value: int) -> None:
        """Set an entry of this worker's row of the table."""
        self.table.columns[column][self.slot] = value

    @property
    def prefix(self) -> str:
        """Start of the ids of what lives in this process alone: the slot and its start."""
        return f"{self.order.slot}.{self.order.start}."

    @property
    def private_socket(self) -> Path:
        """Path of the Unix socket on which this worker alone listens."""
        return private_socket(self.order.folder, self.slot)

    def owner(self, name: str) -> Path | None:
        """Return the private socket of the other worker that made an id, or None if this one, or none, can know it."""
        slot, start, rest = [*name.split(".", 2), "", ""][:3]
        if not (rest and _number(slot) and _number(start)) or int(slot) == self.slot:
            return None
        starts = self.table.columns["start"]
        if int(slot) >= len(starts) or starts[int(slot)] != int(start):
            return None
        return private_socket(self.order.folder, int(slot))

    def admission(self, max_requests: int, max_bytes: int) -> Admission:
        """Return the admission that counts what is in flight in all workers."""
        return SharedAdmission(max_requests, max_bytes, self.table, self.slot)

    def bucket(self, rate: float, burst: int, now: float, name: str) -> Bucket:
        """Return a bucket that all workers take from."""
        return SharedBucket(rate, burst, now, name, self.table)

    def registry(self) -> CollectorRegistry:
        """Return a registry with the merged metrics of all workers."""
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, self._metrics)
        registry.register(WorkersCollector(self.table))
        return registry


def private_socket(folder: Path, slot: int) -> Path:
    """Return the path of the Unix socket on which one worker alone listens."""
    return folder / f"worker-{slot}.sock"


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
