"""Takes a model repository, prints the tables of the README and writes them there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import latency, models, picture, readme, settings

README, CHECKPOINTS = Path("README.md"), Path("checkpoints")


def main(repository: Annotated[Path, typer.Option(help="Exported models.")] = Path("model_repository")) -> None:
    """Measure everything the README prints."""
    picture.draw_darcy(repository, Path("docs/darcy.png"))
    picture.draw_inverse(repository, Path("docs/darcy_inverse.png"))
    readme.write(README, "settings", settings.HEADER, settings.rows())
    publish("models", models.HEADER, models.rows(CHECKPOINTS))
    publish("latency", latency.HEADER, latency.rows(repository))


def publish(name: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Show a table and put it into the README."""
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    readme.write(README, name, header, rows)


if __name__ == "__main__":
    typer.run(main)
