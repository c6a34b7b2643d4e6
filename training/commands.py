"""The stage's commands: `python -m training {fit,data,evaluate,import-reference,profile}`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from training import ablation, checkpoint, config, evaluation
from training.data import prepare
from training.fit import fit as run_fit
from training.fit import request
from training.importing import reference
from training.importing.arguments import Example
from training.importing.refusal import ReferenceImportError
from training.importing.summary import summary
from training.profiling.command import profile
from training.profiling.measure import ProfileError

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_show_locals=False)
app.command()(profile)
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
    noise: Annotated[
        float | None,
        typer.Option(help="Noise on the input, in units of its deviation by point; the trained levels by default."),
    ] = None,
    data: DataFolder = Path("data"),
    write: Annotated[bool, typer.Option("--write", help="Put the figures into the checkpoint's card.")] = False,
) -> None:
    """Measure a checkpoint on its test set, beside the classical solver."""
    if write and (grid or noise is not None):
        raise typer.BadParameter("a card holds every grid at the trained levels of noise", param_hint="--write")
    found = checkpoint.load(folder)
    recipe, path = found.recipe, prepare(request(found.recipe), data)
    levels = recipe.fit.levels if noise is None else (noise,)
    sides = [(grid,) * len(found.problem.axes)] if grid else None
    card = evaluation.report(found.operator, found.problem, recipe.data, path, levels, sides)
    if write:
        checkpoint.write_json(folder / checkpoint.CARD, found.card | card)
    Console().print(errors_table(card))


@app.command()
def ablate(
    recipe: RecipeName,
    vary: Annotated[
        list[str], typer.Option("--vary", help="A key and values to try, such as operator.steps=0,4. Repeatable.")
    ],
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Where the rows' runs are kept; finished ones are not repeated.")] = Path(
        "runs/ablation"
    ),
    data: DataFolder = Path("data"),
    json: Annotated[Path | None, typer.Option(help="Write all rows here, after each one.")] = None,
) -> None:
    """Train a recipe, then once more for every change, and print what each is worth.

    Errors are those of 100 training fields that no row was trained on. One
    training a row: differences of a few per cent are chance.

    python -m training ablate darcy-ablation --vary operator.steps=0,4 --vary fit.h1=0
    """
    plan = ablation.Plan(config.find(recipe), tuple(overrides or ()), tuple(vary))
    rows: list[ablation.Row] = []
    for row in ablation.ablate(plan, out, data):
        rows.append(row)
        console.print(f"{row.change}: {row.relative_l2}")
        if json:
            ablation.write(plan, rows, json)
    table = Table(*ablation.HEADER, title=f"{recipe}: what a change does to the error on validation fields")
    for cells in ablation.cells(rows):
        table.add_row(*cells)
    Console().print(table)


@app.command()
def import_reference(
    file: Annotated[Path, typer.Argument(metavar="FILE.pt", help="A state dict that the reference's scripts saved.")],
    example: Annotated[Example, typer.Option(help="Which of the reference's examples the file comes from.")],
    out: Annotated[Path, typer.Option(help="The checkpoint folder to write.")],
    settings: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE.json", help="The network's constructor arguments, in its own words."),
    ] = None,
    normaliser: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="Arrays mean, std, eps of the output; input_mean, input_std, input_eps of the input.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE.h5", help="Samples in this project's layout, see `data`.")
    ] = None,
    grid: Annotated[int | None, typer.Option(min=3, help="Points per axis of the fields it was trained on.")] = None,
    whole_model: Annotated[
        bool, typer.Option("--whole-model", help="FILE.pt is a pickled model; nothing of it is run.")
    ] = False,
) -> None:
    """Turn a checkpoint of the published implementation (scaomath/galerkin-transformer) into one of this project.

    Keys and shapes tell widths, heads, layers, norms and the decoder. They do
    not tell activations, the attention's type within its family, or the grids:
    put these into --config, such as {"attention_type": "galerkin",
    "subsample_nodes": 3, "subsample_attn": 10}. What is still open is the
    example's default and listed as assumed.

    Files of darcy and darcy_inverse lack the normalisers, without which the
    answers mean nothing. Give them by --normaliser, or --data to compute them
    from training samples; with --data the error is measured, too.
    """
    imported = reference.import_reference(
        reference.Request(file, example, settings, normaliser, data, grid, whole_model)
    )
    reference.save(imported, out)
    console.print(summary(imported))
    for row in imported.card["errors"]:
        console.print(f"relative L2 error {row['relative_l2']} on {row['fields']} test fields, points {row['grid']}")
    console.print(f"{reference.CAVEAT}\n\nnext: python -m training evaluate {out}\n      python -m export {out}")
    typer.echo(out)


def errors_table(card: dict[str, list[dict[str, Any]]]) -> Table:
    """Lay out a card's errors, the classical solver's beside them."""
    table = Table(
        "grid", "noise", "fields", "relative L2", "worst", "classical", "its ms", title="error on the test set"
    )
    for row, rival in evaluation.beside(card):
        ours = (row["grid"], row.get("noise", 0), row["fields"], row["relative_l2"], row["worst"])
        theirs = (rival["relative_l2"], rival["milliseconds"]) if rival else ("", "")
        table.add_row(*map(str, (*ours, *theirs)))
    return table


def main() -> None:
    """Run the commands; what the user can mend is told in one line."""
    try:
        app()
    except (config.RecipeError, checkpoint.CheckpointError, ReferenceImportError, ProfileError) as error:
        console.print(Text(str(error), "red"))
        raise SystemExit(1) from error
