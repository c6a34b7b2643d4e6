"""The order of the tests, and their distribution over the processes of pytest-xdist."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

#: Its files share what they export: one process exports it once.
TOGETHER = "tests/export/publication/"

#: What takes longest, by processor time, comes first: no process then ends long after the others.
LONGEST = (
    TOGETHER,
    "tests/pipeline/test_playground.py",
    "tests/training/fit/test_fit.py",
    "tests/pipeline/test_terminal.py",
    "tests/pipeline/test_trajectories.py",
    "tests/pipeline/test_points.py",
    "tests/pipeline/test_several_tensors.py",
    "tests/pipeline/",
    "tests/export/",
    "tests/training/fit/",
    "tests/training/report/",
    "tests/serving/test_commands.py",
    "tests/benchmarks/",
    "tests/protocols/",
    "tests/research/",
    "tests/training/",
)


class Distribution(LoadFileScheduling):
    """Files whole, in the order of `sort` instead of by their numbers of tests, and `TOGETHER` as one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)


def sort(items: list[pytest.Item]) -> None:
    """Sort tests by how long their files and folders take; the order is else as it was."""
    items.sort(key=lambda item: place(item.nodeid))


def place(nodeid: str) -> int:
    """Return the place of a test's file or folder among the longest ones."""
    return next((number for number, start in enumerate(LONGEST) if nodeid.startswith(start)), len(LONGEST))
