"""The stage's command: `python -m export CHECKPOINT...`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from export.repository import Publication

app = typer.Typer(help=__doc__, add_completion=False, pretty_exceptions_show_locals=False)
console = Console(stderr=True, markup=False, emoji=False)  # of paths, which may have brackets and colons

#: What is said of a version by whether it is new.
STATES = {True: "published", False: "already published, left alone"}


@app.command()
def export(
    folders: Annotated[list[Path], typer.Argument(metavar="CHECKPOINT...", help="Checkpoint folders.")],
    repository: Annotated[Path, typer.Option(help="The model repository.")] = Path("model_repository"),
    name: Annotated[str | None, typer.Option(help="The model's name; the folder's by default.")] = None,
) -> None:
    """Publish checkpoints as the next versions of their models, in the formats of their recipes.

    A checkpoint that is already published unchanged is left alone. A graph that
    differs from its network is refused, and the repository stays as it was.

    python -m export runs/heat-quick
    """
    if name is not None and len(folders) > 1:
        raise typer.BadParameter(f"one name cannot serve {len(folders)} checkpoints", param_hint="--name")
    from export.repository import outcomes  # noqa: PLC0415 - torch takes seconds, and a question for help none of them

    refused = 0
    with console.status(Text(f"exporting {', '.join(map(str, folders))}")):
        for folder, outcome in zip(folders, outcomes(folders, repository, name), strict=True):
            if isinstance(outcome, str):
                console.print(Text.assemble((f"{folder} is not published:", "red"), f" {outcome}"))
                refused += 1
            else:
                for one in outcome:
                    report(one)
    raise typer.Exit(1 if refused else 0)


def report(one: Publication) -> None:
    """Print the version, and for a new one the whole comparison."""
    if one.new:
        console.print(table(one))
    console.print(f"{one.model} version {one.version}: {STATES[one.new]}", highlight=False)
    for kind, new in one.companions.items():
        console.print(f"{one.model}_{kind} version {one.version}: {STATES[new]}", highlight=False)
    for kind, reason in one.refused.items():
        console.print(Text.assemble((f"{one.model}_{kind} is not published:", "yellow"), f" {reason}"))


def table(one: Publication) -> Table:
    """Return a certificate's comparisons as a table."""
    from export.parity import TOLERANCE  # noqa: PLC0415 - as above

    title = f"{one.model}: relative L2 difference to the network, at most {TOLERANCE:g} to float32"
    rows = Table("input", "float32", "float64", "largest to float32", title=title, title_justify="left")
    for line in one.certificate["comparisons"]:
        shape = " x ".join(map(str, line["shape"]))
        single, double = line["float32"], line["float64"]
        rows.add_row(shape, f"{single['relative_l2']:.1e}", f"{double['relative_l2']:.1e}", f"{single['max_abs']:.1e}")
    return rows


if __name__ == "__main__":
    app()
