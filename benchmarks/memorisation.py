"""Takes what `python -m training memorise` wrote to docs/memorisation/, puts its tables into docs/memorisation.md."""

from __future__ import annotations

from pathlib import Path

from benchmarks import readme
from training.memorisation.experiments import EXPERIMENTS
from training.memorisation.record import Record
from training.memorisation.table import Cells, cells

PAGE, FOLDER = Path("docs/memorisation.md"), Path("docs/memorisation")


def main() -> None:
    """Write every table that the page has a place for."""
    page = PAGE.read_text()
    for name, table in tables(FOLDER).items():
        if f"<!-- table: {name} -->" in page:
            readme.write(PAGE, name, table.header, table.rows)


def tables(folder: Path) -> dict[str, Cells]:
    """Give each table by "experiment: what"; all experiments have to be there."""
    records = [Record.model_validate_json((folder / f"{name}.json").read_text()) for name in EXPERIMENTS]
    return {f"{each.experiment}: {table.what}": table for each in records for table in cells(each)}


if __name__ == "__main__":
    main()
