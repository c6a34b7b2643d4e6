"""What was found: takes an experiment's rows, keeps them in a JSON file to which an interrupted run adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from pydantic import BaseModel

from training.memorisation import equivariant, stack
from training.memorisation.trial import FROZEN, Row, Sets, Trial


class Record(BaseModel):
    """All rows of an experiment; `Record.model_validate_json` reads what `write` wrote."""

    model_config = FROZEN

    experiment: str
    torch: str = torch.__version__
    rows: tuple[Row, ...] = ()


def complete(
    experiment: str, trials: Sequence[Trial], path: Path, progress: Callable[[int], object] = lambda _: None
) -> Record:
    """Run those trials of which the file has no row yet, and write it after each group.

    Args:
        experiment: its name.
        trials: all of it, whose rows are kept in this order.
        path: the file; rows of other trials in it are dropped.
        progress: told the number of trials done whenever there are more.
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
    return equivariant.fit(group) if isinstance(group[0].data, Sets) else stack.memorise(group)


def read(path: Path) -> tuple[Row, ...]:
    """Give the rows of a file, none if there is no file."""
    return Record.model_validate_json(path.read_text()).rows if path.exists() else ()


def write(record: Record, path: Path) -> None:
    """Write a record aside and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    aside.write_text(record.model_dump_json().replace('{"trial"', '\n{"trial"') + "\n")  # a line for a row
    aside.replace(path)
