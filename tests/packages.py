"""A package that a test installs for a while, in its own process and as pip would leave it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from training.losses import LOSSES
from training.metrics import METRICS
from training.nn.attention import kinds
from training.operators import OPERATORS
from training.problems.problem import PROBLEMS

MODULE = "outside"


@contextmanager
def installed(folder: Path, code: str, entry_points: str) -> Iterator[None]:
    """Install the module `outside` with its metadata in a folder; what it adds is gone in the end."""
    info = folder / f"{MODULE}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{MODULE}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        forget()
        try:
            yield
        finally:
            sys.modules.pop(MODULE, None)
            forget()


def forget() -> None:
    """Have every table look again for what is installed."""
    for table in (PROBLEMS, OPERATORS, LOSSES, METRICS):
        vars(table).pop("items", None)
    kinds.cache_clear()
