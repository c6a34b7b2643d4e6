"""Metrics of the workers as processes, from the shared table and `/proc`, by slot."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from serving.workers.table import Table

LABEL = "worker"


class WorkersCollector(Collector):
    """Memory, files, processor and start time of every worker, its connections, and how often it was started.

    Args:
        table: The table of all workers.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def collect(self) -> Iterator[Metric]:
        """Yield the families, each with a sample per worker."""
        columns = self._table.columns
        slots = [slot for slot, start in enumerate(columns["start"]) if start]
        connections = GaugeMetricFamily("petrov_worker_connections", "Open connections.", labels=(LABEL,))
        starts = CounterMetricFamily("petrov_worker_starts", "Starts of a worker, the first included.", labels=(LABEL,))
        for slot in slots:
            connections.add_metric((str(slot),), columns["connections"][slot])
            starts.add_metric((str(slot),), columns["start"][slot])
        yield connections
        yield starts
        yield from _processes({slot: columns["pid"][slot] for slot in slots if columns["pid"][slot]})


def _processes(pids: dict[int, int]) -> list[Metric]:
    """Return what the library reports of a process, with the slot as a label."""
    families: dict[str, Metric] = {}
    for slot, pid in pids.items():
        for found in ProcessCollector(pid=partial(int, pid), registry=None).collect():
            family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
            for sample in found.samples:
                family.add_sample(sample.name, {LABEL: str(slot)}, sample.value)
    return list(families.values())
