"""The files in which the workers count. Their space is reserved: a page that finds none ends the process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Bytes by kind, which the library names; a histogram has some 130 for each bucket of each combination of labels.
SIZES = {
    "counter": 2**18,
    "histogram": 2**21,
    "gauge_livesum": 2**16,
    "gauge_livemax": 2**16,
    "gauge_livemostrecent": 2**16,
}


def reserve(folder: Path, slot: int) -> None:
    """Make the files of a slot, as large as they get; the library continues files that exist.

    Args:
        folder: Where the library looks for them.
        slot: Number of the worker.

    Raises:
        OSError: There is too little space.
    """
    for kind, size in SIZES.items():
        with (folder / f"{kind}_{slot}.db").open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def forget(folder: Path, slot: int) -> None:
    """Empty the gauges of a worker that has ended, in place; its counters go on with the next one."""
    for path in folder.glob(f"gauge_live*_{slot}.db"):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
