"""The order of the tests, and their distribution over the processes of pytest-xdist."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

#: Exports and trainings, which take minutes: they come first, so that no process ends long after the others.
LONG = ("tests/export/", "tests/pipeline/", "tests/training/")

#: Its files share what they export: one process exports it once.
TOGETHER = "tests/export/publication/"


class Distribution(LoadFileScheduling):
    """Files whole, in the order of `sort` instead of by their numbers of tests, and `TOGETHER` as one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)


def sort(items: list[pytest.Item]) -> None:
    """Sort tests by how long their folders take; the order is else as it was."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
