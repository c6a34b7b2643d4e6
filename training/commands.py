"""The stage's commands: `python -m training {fit,data,evaluate}`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from training import checkpoint, config, evaluation
from training.data import prepare, read
from training.fit import fit as run_fit
from training.fit import request

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_show_locals=False)
console = Console(stderr=True)

RecipeName = Annotated[str, typer.Argument(help="A recipe: a name such as darcy-quick, or a TOML file.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="Change one key, e.g. --set fit.epochs=3. Repeatable.")
]
DataFolder = Annotated[Path, typer.Option("--data", help="Where generated samples are kept.")]


@app.command()
def fit(
    recipe: RecipeName,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/<model>-<preset> by default.")] = None,
    data: DataFolder = Path("data"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last finished epoch.")] = False,
    init: Annotated[Path | None, typer.Option(help="A checkpoint folder to start the weights from.")] = None,
) -> None:
    """Train a recipe: generate what data is missing, fit, measure, write the checkpoint."""
    chosen = config.read(config.find(recipe), overrides)
    folder = run_fit(chosen, out or Path("runs") / chosen.name, data, resume=resume, init=init)
    console.print(errors_table(checkpoint.load(folder).card))
    typer.echo(folder)


@app.command()
def data(recipe: RecipeName, overrides: Overrides = None, folder: DataFolder = Path("data")) -> None:
    """Generate a recipe's samples, or complete a file that was interrupted."""
    typer.echo(prepare(request(config.read(config.find(recipe), overrides)), folder))


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(help="A checkpoint folder, e.g. checkpoints/darcy.")],
    grid: Annotated[int | None, typer.Option(help="Points per axis; every measurable grid by default.")] = None,
    noise: Annotated[float, typer.Option(help="Noise on the input, in units of its standard deviation.")] = 0.0,
    data: DataFolder = Path("data"),
    write: Annotated[bool, typer.Option("--write", help="Put the figures into the checkpoint's card.")] = False,
) -> None:
    """Measure a checkpoint on its test set, beside the classical solver."""
    if write and (grid or noise):
        raise typer.BadParameter("a card holds every grid without noise", param_hint="--write")
    found = checkpoint.load(folder)
    path = prepare(request(found.recipe), data)
    grids = [grid] if grid else evaluation.measured_grids(found.problem, found.recipe.data)
    samples = [read(path, "test", found.recipe.data.test, n) for n in grids]
    card = {
        "errors": [evaluation.errors(found.operator, part, noise) for part in samples],
        "classical": [evaluation.classical(found.problem, part, found.recipe.data.mesh) for part in samples],
    }
    if write:
        checkpoint.write_json(folder / checkpoint.CARD, found.card | card)
    Console().print(errors_table(card))


def errors_table(card: dict[str, list[dict[str, object]]]) -> Table:
    """Lay out a card's errors, the classical solver's beside them."""
    table = Table("grid", "fields", "relative L2", "worst", "classical", "its ms", title="error on the test set")
    for row, rival in zip(card["errors"], card["classical"], strict=True):
        cells = (
            row["grid"],
            row["fields"],
            row["relative_l2"],
            row["worst"],
            rival["relative_l2"],
            rival["milliseconds"],
        )
        table.add_row(*map(str, cells))
    return table


def main() -> None:
    """Run the commands; what the user can mend is told in one line."""
    try:
        app()
    except (config.RecipeError, checkpoint.CheckpointError) as error:
        console.print(f"[red]{error}")
        raise SystemExit(1) from error
