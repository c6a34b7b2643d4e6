"""The Darcy set that the wheel of neuraloperator carries: 1000 training and 50 test samples of 16 x 16 points."""

from __future__ import annotations

import shutil
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator

FILES = ("darcy_train_16.pt", "darcy_test_16.pt")


def write(samples: int, folder: Path, rng: Generator) -> None:
    """Copy both files of the set.

    Args:
        samples: Not used: the set has a size of its own.
        folder: Where to.
        rng: Not used.
    """
    del samples, rng
    for name in FILES:
        source = files("neuralop") / "datasets" / "data" / name
        with source.open("rb") as stored, (folder / name).open("wb") as copy:
            shutil.copyfileobj(stored, copy)
