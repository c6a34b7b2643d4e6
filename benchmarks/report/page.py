"""The page docs/benchmarks.md, and the files docs/bench/<table>.json with the results of each run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.report import markdown
from training.evaluation.timing import processor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE, FOLDER = Path("docs/benchmarks.md"), Path("docs/bench")
RUNS = ("table", "run", "processor")

Table: TypeAlias = "tuple[tuple[str, ...], Sequence[tuple[str, ...]]]"


def publish(
    name: str, document: Mapping[str, Any], tables: Mapping[str, Table], *, quick: bool, folder: Path = FOLDER
) -> None:
    """Write a run's results, then its tables and the list of all runs.

    Args:
        name: The name of the run and of its file.
        document: Everything that was measured.
        tables: Header and rows, by the name of the table on the page.
        quick: Whether it was the small version, which the page says.
        folder: The folder of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stamped = {"run": "quick" if quick else "full", "processor": processor(), **document}
    (folder / f"{name}.json").write_text(json.dumps(stamped, indent=1) + "\n")
    for table, (header, rows) in tables.items():
        markdown.write(PAGE, table, header, rows)
    markdown.write(PAGE, "runs", RUNS, runs(folder))


def runs(folder: Path = FOLDER) -> list[tuple[str, ...]]:
    """Return a row per file: its name, whether its run was quick or full, and the processor."""
    found = ((path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json")))
    return [(name, document["run"], document["processor"]) for name, document in found]


def read(name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Return the results of a run, or None if it has not run."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
