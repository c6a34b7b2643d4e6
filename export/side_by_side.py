"""Publication of several checkpoints at once, one process per core.

An exporter spends its time in Python on one core, so several exporters need processes of their own.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import repeat
from multiprocessing import get_context
from typing import TYPE_CHECKING

import torch

from export.card import CardError
from export.graphs.to_onnx import GraphError
from export.parity import ParityError
from export.repository import Publication, RepositoryError, is_current, publish
from training.user_error import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Errors that the user can correct, such as a full disk, or has to know before anything is published.
REFUSALS = (UserError, CardError, GraphError, ParityError, RepositoryError, OSError)

Outcome = list[Publication] | str


def outcomes(folders: Sequence[Path], repository: Path, name: str | None = None) -> Iterator[Outcome]:
    """Publish checkpoints, and yield in their order what is published of each, or why nothing is.

    Checkpoints of one name follow one another, for they are versions; and so do the rest, where the machine's memory
    is too small for several exporters and a process was ended.
    """
    new = sum(is_new(folder, repository, name) for folder in folders)
    processes = min(new, os.cpu_count() or 1)
    done = 0
    if processes > 1 and len({folder.resolve().name for folder in folders}) == len(folders):
        try:
            with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
                for outcome in pool.map(attempt, folders, repeat(repository), repeat(name)):
                    yield outcome
                    done += 1
        except BrokenProcessPool:
            pass
    yield from (attempt(folder, repository, name) for folder in folders[done:])


def is_new(folder: Path, repository: Path, name: str | None) -> bool:
    """Return whether there is something to export; `attempt` reports a folder with a fault."""
    try:
        return not is_current(folder, repository, name)
    except REFUSALS:
        return False


def attempt(folder: Path, repository: Path, name: str | None) -> Outcome:
    """Publish one checkpoint, or return why it cannot be."""
    try:
        return publish(folder, repository, name)
    except REFUSALS as error:
        return str(error)
