"""The rows of an experiment in a JSON file, which an interrupted run continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from pydantic import BaseModel

from research.memorisation import continuous, stack
from research.memorisation.trial import FROZEN, Row, Sets, Trial
from training.files import write_text


class Record(BaseModel):
    """All rows of an experiment; `Record.model_validate_json` reads what `write` wrote."""

    model_config = FROZEN

    experiment: str
    torch: str = torch.__version__
    rows: tuple[Row, ...] = ()


def complete(
    experiment: str, trials: Sequence[Trial], path: Path, progress: Callable[[int], object] = lambda _: None
) -> Record:
    """Run the trials that have no row in the file yet, and write the file after each group.

    Args:
        experiment: Name of the experiment.
        trials: All its trials; rows are kept in this order.
        path: The file; rows of other trials in it are dropped.
        progress: Is called with the number of trials before each group of them runs.
    """
    done = {row.trial: row for row in read(path)}
    for group in stack.groups([trial for trial in trials if trial not in done]):
        progress(len(group))
        for row in run(group):
            done[row.trial] = row
        write(Record(experiment=experiment, rows=tuple(done[trial] for trial in trials if trial in done)), path)
    return Record(experiment=experiment, rows=tuple(done[trial] for trial in trials))


def run(group: Sequence[Trial]) -> list[Row]:
    """Train and measure a group."""
    return continuous.fit(group) if isinstance(group[0].data, Sets) else stack.memorise(group)


def read(path: Path) -> tuple[Row, ...]:
    """Return the rows of a file, none if there is no file."""
    return Record.model_validate_json(path.read_text()).rows if path.exists() else ()


def write(record: Record, path: Path) -> None:
    """Write a record, with one line per row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, record.model_dump_json().replace('{"trial"', '\n{"trial"') + "\n")
