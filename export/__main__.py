"""The stage's command: `python -m export CHECKPOINT...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from export.card import CardError
from export.parity import TOLERANCE, ParityError
from export.repository import Publication, RepositoryError, publish
from export.signature import SignatureError
from export.to_onnx import GraphError
from training.checkpoint import CheckpointError

app = typer.Typer(help=__doc__, pretty_exceptions_show_locals=False)
console = Console(stderr=True)

#: What the user can mend, such as a full disk, or has to know before anything is published.
REFUSALS = (CheckpointError, CardError, SignatureError, GraphError, ParityError, RepositoryError, OSError)


@app.command()
def export(
    folders: Annotated[list[Path], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint folders.")],
    repository: Annotated[Path, typer.Option(help="The model repository.")] = Path("model_repository"),
    name: Annotated[str | None, typer.Option(help="The model's name; the folder's by default.")] = None,
) -> None:
    """Publish checkpoints as the next versions of their models, in ONNX and TorchScript.

    A checkpoint that is already published unchanged is left alone. A graph that differs from its network is refused,
    and the repository stays as it was.
    """
    if name is not None and len(folders) > 1:
        raise typer.BadParameter(f"one name cannot serve {len(folders)} checkpoints", param_hint="--name")
    refused = [folder for folder in folders if not attempt(folder, repository, name)]
    raise typer.Exit(1 if refused else 0)


def attempt(folder: Path, repository: Path, name: str | None) -> bool:
    """Publish one checkpoint and say what came of it, or why nothing did."""
    try:
        with console.status(f"exporting {folder}"):
            published = publish(folder, repository, name)
    except REFUSALS as error:
        console.print(f"[red]{folder} is not published:[/] {error}", highlight=False)
        return False
    for one in published:
        report(one)
    return True


def report(one: Publication) -> None:
    """Tell the version, and for a new one the whole comparison."""
    if one.new:
        console.print(table(one))
    state = "published" if one.new else "already published, left alone"
    console.print(f"{one.model} version {one.version}: {state}", highlight=False)


def table(one: Publication) -> Table:
    """Lay out a certificate's comparisons."""
    title = f"{one.model}: relative L2 difference to the network, at most {TOLERANCE:g} to float32"
    rows = Table("input", "float32", "float64", "largest to float32", title=title, title_justify="left")
    for line in one.certificate["comparisons"]:
        shape = " x ".join(map(str, line["shape"]))
        single, double = line["float32"], line["float64"]
        rows.add_row(shape, f"{single['relative_l2']:.1e}", f"{double['relative_l2']:.1e}", f"{single['max_abs']:.1e}")
    return rows


if __name__ == "__main__":
    app()
