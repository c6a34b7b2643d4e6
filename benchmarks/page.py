"""Takes what a table's run measured, writes `docs/bench/<table>.json` and the table's places in docs/benchmarks.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks import readme
from training.evaluation.timing import processor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE, FOLDER = Path("docs/benchmarks.md"), Path("docs/bench")
RUNS = ("table", "run", "processor")

Table: TypeAlias = "tuple[tuple[str, ...], Sequence[tuple[str, ...]]]"


def publish(
    name: str, document: Mapping[str, Any], tables: Mapping[str, Table], *, quick: bool, folder: Path = FOLDER
) -> None:
    """Keep a run's figures, then write its tables and the list of all runs.

    Args:
        name: The run's, and its file's.
        document: Everything that was measured.
        tables: Header and rows by the name of their place on the page.
        quick: Whether it was the small version, which the page says.
        folder: Where the files lie.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stamped = {"run": "quick" if quick else "full", "processor": processor(), **document}
    (folder / f"{name}.json").write_text(json.dumps(stamped, indent=1) + "\n")
    for place, (header, rows) in tables.items():
        readme.write(PAGE, place, header, rows)
    readme.write(PAGE, "runs", RUNS, runs(folder))


def runs(folder: Path = FOLDER) -> list[tuple[str, ...]]:
    """Tell of every file whether its run was a quick or a full one, and on what."""
    return [(path.stem, found["run"], found["processor"]) for path, found in documents(folder)]


def documents(folder: Path = FOLDER) -> list[tuple[Path, dict[str, Any]]]:
    """Give every run's file and what it holds."""
    return [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def read(name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Give what a run measured, if there was one."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
