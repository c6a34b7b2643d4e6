"""The command that writes one data set: `python -m benchmarks.own_data.solvers NAME SAMPLES FOLDER`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np

SEED = 7


def main(name: str, samples: str, folder: str) -> None:
    """Write the samples of one solver.

    Args:
        name: The module of the solver in this package.
        samples: How many.
        folder: Where to.
    """
    module = importlib.import_module(f"benchmarks.own_data.solvers.{name}")
    module.write(int(samples), Path(folder), np.random.default_rng(SEED))


if __name__ == "__main__":
    main(*sys.argv[1:])
