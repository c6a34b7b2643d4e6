"""The processes below another one, any of which may end while it is looked at."""

from __future__ import annotations

from contextlib import suppress

import psutil


def below(pid: int | None, name: str, mark: str = "") -> list[psutil.Process]:
    """Return the descendants of a process, by default of this one, by a part of their names and of an argument."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if name in process.name() and any(mark in argument for argument in process.cmdline()):
                found.append(process)
    return found
