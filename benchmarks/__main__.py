"""Takes a model repository, prints the tables and writes them to benchmarks/results/ as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import latency

RESULTS = Path(__file__).parent / "results"


def main(repository: Annotated[Path, typer.Option(help="Exported models.")] = Path("model_repository")) -> None:
    """Measure the time of one answer by every road."""
    found = latency.measure(repository)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latency.json").write_text(json.dumps(found, indent=2) + "\n")
    table = Table("road", "p50 ms", "p95 ms", "from the gateway's answer", title=f"one {found['grid']}² field")
    for road, row in found["roads"].items():
        table.add_row(road, *map(str, row.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
