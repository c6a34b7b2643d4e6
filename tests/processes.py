"""Processes that tests look for, any of which may end while it is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil


def among(processes: Iterable[psutil.Process], name: str = "", marks: Iterable[str] = ("",)) -> list[psutil.Process]:
    """Return those with a part of their names, and one of some parts of their arguments."""
    found, marks = [], [*marks]
    for process in processes:
        with suppress(psutil.Error):
            if name in process.name() and any(mark in " ".join(process.cmdline()) for mark in marks):
                found.append(process)
    return found


def below(pid: int | None, name: str, mark: str = "") -> list[psutil.Process]:
    """Return the descendants of a process, by default of this one, by a part of their names and of their arguments."""
    return among(psutil.Process(pid).children(recursive=True), name, [mark])
