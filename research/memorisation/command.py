"""The command `python -m research memorise`, and the rows of an experiment in a JSON file, which it continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from research.memorisation import continuous, panels, training
from research.memorisation.curves import tables
from research.memorisation.trials import EXPERIMENTS, Record, Row, Sets, Trial
from training.files import write_text
from training.messages import UserError, counted


def memorise(
    experiments: Annotated[
        list[str] | None, typer.Argument(help=f"Any of {', '.join(EXPERIMENTS)}; all by default.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            file_okay=False, help="The folder of the rows, <experiment>.json; rows in it are not computed again."
        ),
    ] = Path("docs/memorisation"),
    plot: Annotated[
        Path | None,
        typer.Option(dir_okay=False, callback=panels.expect_picture, help="Draw the experiments into this file."),
    ] = None,
) -> None:
    """Measure what one layer of rank-1 attention memorises, beside hardmax, full rank and a constructed head.

    Sequences are random sets of tokens with random labels, unless the experiment
    says otherwise; `entities` reads WNUT-17 and UNER English-EWT from the folder
    that DATA_PATH names; `context` draws ambiguous words. An interrupted command
    continues where it stopped. All experiments take half an hour of one core.

    python -m research memorise sequences --out runs/memorisation --plot memorisation.png
    """
    wanted = experiments or list(EXPERIMENTS)
    if unknown := [name for name in wanted if name not in EXPERIMENTS]:
        raise typer.BadParameter(f"expected some of {', '.join(EXPERIMENTS)} but got {', '.join(unknown)}")
    records = [measured(name, out) for name in wanted]
    console = Console()
    for record in records:
        for table in tables(record):
            console.print(table)
    if plot:
        panels.draw(records, plot)


def measured(experiment: str, folder: Path) -> Record:
    """Run the missing trials of an experiment, with a bar."""
    trials = list(EXPERIMENTS[experiment]())
    with counted(experiment, len(trials), "trials") as advance:
        return complete(experiment, trials, folder / f"{experiment}.json", advance)


def complete(
    experiment: str, trials: Sequence[Trial], path: Path, progress: Callable[[int], object] = lambda _: None
) -> Record:
    """Run the trials that have no row in the file yet, and write the file after each group."""
    done = {row.trial: row for row in read(path)}
    for group in training.groups([trial for trial in trials if trial not in done]):
        progress(len(group))
        for row in run(group):
            done[row.trial] = row
        write(Record(experiment=experiment, rows=tuple(done[trial] for trial in trials if trial in done)), path)
    return Record(experiment=experiment, rows=tuple(done[trial] for trial in trials))


def run(group: Sequence[Trial]) -> list[Row]:
    """Train and measure a group."""
    return continuous.fit(group) if isinstance(group[0].data, Sets) else training.memorise(group)


def read(path: Path) -> tuple[Row, ...]:
    """Return the rows of a file, none if there is no file.

    Raises:
        UserError: It is another file.
    """
    try:
        return Record.model_validate_json(path.read_text()).rows if path.exists() else ()
    except ValueError as error:
        raise UserError(
            f"{path}: expected rows that this command wrote: remove the file, or give another --out"
        ) from error


def write(record: Record, path: Path) -> None:
    """Write a record, with one line per row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, record.model_dump_json().replace('{"trial"', '\n{"trial"') + "\n")
