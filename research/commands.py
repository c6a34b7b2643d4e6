"""Research beside the main line: memorisation, the closed form, ablations, checkpoints of the published implementation.

python -m research memorise
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from research import ablation
from research.closed_form import closed_form
from research.importing import reference
from research.importing.reference import Example
from research.memorisation.command import memorise
from training import recipes
from training.commands import corrected
from training.data_commands import DataFolder, Overrides

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
app.command()(memorise)
app.command()(closed_form)
console = Console(stderr=True, markup=False, emoji=False)  # of paths, which may have brackets and colons


@app.command()
def ablate(
    recipe: Annotated[str, typer.Argument(help="A recipe: a name such as darcy-quick, or a TOML file.")],
    vary: Annotated[
        list[str], typer.Option("--vary", help="A key and its values: --vary operator.steps=0,4. Repeatable.")
    ],
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs; finished ones are not repeated.")] = Path(
        "runs/ablation"
    ),
    data: DataFolder = Path("data"),
    json: Annotated[Path | None, typer.Option(help="Write all rows to this file, after each one.")] = None,
) -> None:
    """Train a recipe, then once more for every change of a key, and print the errors.

    Errors are those of the validation samples. Each row is one training, so
    differences of a few per cent are chance.

    python -m research ablate darcy-ablation --vary operator.steps=0,4 --vary fit.h1=0
    """
    plan = ablation.Plan(recipes.find(recipe), tuple(overrides or ()), tuple(vary))
    rows: list[ablation.Row] = []
    for row in ablation.ablate(plan, out, data):
        rows.append(row)
        console.print(f"{row.change}: {row.relative_l2}")
        if json:
            ablation.write(plan, rows, json)
    table = Table(*ablation.HEADER, title=f"{recipe}: effect of each change on the error of validation samples")
    for cells in ablation.cells(rows):
        table.add_row(*cells)
    Console().print(table)


@app.command()
def burgers_hypotheses(
    checkpoint: Annotated[Path, typer.Argument(help="The network that is measured.")] = Path(
        "checkpoints/burgers_galerkin"
    ),
    fields: Annotated[int, typer.Option(min=20, help="How many of the training distribution.")] = 1000,
    others: Annotated[int, typer.Option(min=1, help="How many per other law and viscosity.")] = 100,
) -> None:
    """Measure what may explain the error of the paper's network on Burgers' equation: two minutes of a core.

    python -m research burgers-hypotheses
    """
    from research import burgers_hypotheses as program  # noqa: PLC0415 - the others need no network
    from training.checkpoint import load_operator  # noqa: PLC0415

    network = load_operator(checkpoint).operator.eval()
    for rows in (program.trained(Path("docs/accuracy")), program.measured(network, fields, others)):
        for experiment, result in rows:
            Console().print(f"{experiment}: {result}", soft_wrap=True, highlight=False)


@app.command()
def plates(
    folder: Annotated[Path, typer.Argument(help="Where the files go.")] = Path("data/plates"),
    samples: Annotated[int, typer.Option(min=1, help="How many.")] = 530,
    seed: Annotated[int, typer.Option(min=0, help="Of the holes and meshes.")] = 0,
) -> None:
    """Solve plates with a hole under tension by finite elements, and write one VTU file for each.

    python -m research plates data/plates
    """
    from research.plates import write  # noqa: PLC0415 - no other command needs scikit-fem

    for _ in track(write(folder, samples, seed), "plates", samples, console=console):
        pass
    typer.echo(folder)


@app.command()
def import_reference(
    file: Annotated[Path, typer.Argument(metavar="FILE.pt", help="A state dict that the reference's scripts saved.")],
    example: Annotated[Example, typer.Option(help="Which of the reference's examples the file comes from.")],
    out: Annotated[Path, typer.Option(help="The checkpoint folder to write.")],
    settings: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE.yml", help="The reference's config.yml, or the network's arguments."),
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
        bool, typer.Option("--whole-model", help="FILE.pt is a pickled model; none of its code is run.")
    ] = False,
) -> None:
    """Convert a checkpoint of the published implementation (scaomath/galerkin-transformer).

    A state dict does not hold its network's arguments: pass the reference's
    config.yml by --config, changed where its command line changed it, or the
    arguments alone as YAML or JSON, with {"subsample_nodes": 3,
    "subsample_attn": 10} among them. Grids that it does not say have the
    example's default and are listed as assumed.

    Files of darcy and darcy_inverse lack the normalisers, without which the
    outputs are meaningless. Pass them by --normaliser, or pass --data to compute
    them from training samples; with --data the error is measured, too.

    python -m research import-reference darcy.pt --example darcy --config config.yml --data darcy.h5 --out imported
    """
    imported = reference.import_reference(
        reference.Request(file, example, settings, normaliser, data, grid, whole_model)
    )
    reference.save(imported, out)
    config = imported.operator.config.model_dump(mode="json")
    table = Table("", "argument", "value", title=f"{example}, {config['kind']}", title_justify="left")
    stated = {name: value for name, value in imported.given.items() if value is not None}
    grids = {name: config[name] for name in ("grid", "tokens", "output") if name in config}
    for source, values, style in (("given", stated, ""), ("assumed", imported.assumed, "yellow"), ("grids", grids, "")):
        for name, value in values.items():
            table.add_row(source, name, str(value), style=style)
        table.add_section()
    table.add_row("in all", "parameters", f"{imported.card.checkpoint['parameters']:,}")
    console.print(table)
    for row in imported.card.errors:
        console.print(f"relative L2 error {row['relative_l2']} on {row['fields']} test fields, points {row['grid']}")
    named = shlex.quote(str(out))
    console.print(f"{reference.CAVEAT}\n\nnext: python -m training evaluate {named}\n      python -m export {named}")
    typer.echo(out)


def main() -> None:
    """Run the commands; errors that the user can correct are printed as one line."""
    corrected(app)
