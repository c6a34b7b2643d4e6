"""The tables of docs/memorisation.md, from the results of `python -m research memorise` in docs/memorisation/."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import markdown
from research.memorisation.cells import Cells, cells
from research.memorisation.experiments import EXPERIMENTS
from research.memorisation.record import Record

PAGE, FOLDER = Path("docs/memorisation.md"), Path("docs/memorisation")


def write_page() -> None:
    """Write every table that the page holds."""
    page = PAGE.read_text()
    for name, table in tables(FOLDER).items():
        if f"<!-- table: {name} -->" in page:
            markdown.write(PAGE, name, table.header, table.rows)


def tables(folder: Path) -> dict[str, Cells]:
    """Return the tables by "experiment: quantity"; the results of all experiments must exist."""
    records = [Record.model_validate_json((folder / f"{name}.json").read_text()) for name in EXPERIMENTS]
    return {f"{each.experiment}: {table.what}": table for each in records for table in cells(each)}
