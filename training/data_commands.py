"""The commands on data: describe files, check what a problem file says of them, and make the samples of a recipe."""

# ruff: noqa: PLC0415 -- each command imports what it needs: torch takes seconds, and `describe` needs none

from __future__ import annotations

import shlex
import tomllib
from contextlib import ExitStack
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from training.messages import UserError, typed

if TYPE_CHECKING:
    from training.problems.draft_file import Draft

console = Console(stderr=True, markup=False, emoji=False)  # of names and paths, which may have brackets and colons

CHECKED = ("tensor", "array", "role", "shape", "least", "greatest", "deviation")

RecipeOrProblem = Annotated[
    str, typer.Argument(help="A recipe: a name such as darcy-quick, or a TOML file; or the problem file of your data.")
]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Change one key: --set fit.epochs=3. Repeatable.")]
DataFolder = Annotated[Path, typer.Option("--data", help="The folder of the samples.")]


def describe(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Data files, or a pattern, of one set of samples; or a folder of data files, or one of a folder for "
            "each run."
        ),
    ],
    layout: Annotated[str, typer.Option("--format", help="Their layout; auto decides by their contents.")] = "auto",
    outputs: Annotated[
        str, typer.Option(metavar="NAME[,NAME]", help="The arrays that are outputs; all other fields are inputs.")
    ] = "",
    write: Annotated[
        bool,
        typer.Option("--write", help="Write the problem file here, under the model's name, instead of printing it."),
    ] = False,
) -> None:
    """Show what a data file holds, and print a problem file for it.

    What the file does not say is guessed, and a comment `# guess:` stands at
    every such line. Guesses of outputs, inputs, samples, time and points (the
    word behind the colon) have to be confirmed before a training: by --outputs,
    or by removing the comment. Its `files` are named from this folder: leave it
    here. --write keeps a file that is here already, unless it is a draft that has
    not been edited.

    python -m training describe heat.h5 --outputs temperature --write
    python -m training describe plates > plates.toml
    """
    from training.data.readers.sets import open_set
    from training.data.readers.unwritten import unwritten
    from training.problems.draft import draft
    from training.problems.sections import refusal, unconfirmed

    with ExitStack() as stack:
        found = open_set(stack, [path for given in files for path in named(given)], layout)
        file = found.file
        names = (
            [outputs]
            if outputs and outputs in file.arrays
            else [name for name in map(str.strip, outputs.split(",")) if name]
        )
        made = draft(file, found.files, found.folder, names, found.runs)
        title = f"{(found.runs or found.files[0]).name}: {file.format}"
        table = Table("array", "shape", "type", "units", "taken as", title=title, title_justify="left")
        for array in file.arrays.values():
            shape = " x ".join(map(str, array.shape))
            table.add_row(*map(Text, (array.name, shape, str(array.dtype), array.units, made.role_of(array.name))))
        for name, reason in file.left_out.items():
            table.add_row(*map(Text, (name, "", "", "", f"left out: {reason}")))
        console.print(table)
        for remark in unwritten(path for path in found.files if path.exists()):
            console.print(Text(remark, "yellow"))
        text = drafted(made)
        typer.echo(text, nl=False)
    if write:
        to = Path(f"{made.name}.toml")
        keep(to, text)
        for name, reason in made.left_out.items():
            console.print(Text(f"{name} is left out: {reason}", "yellow"))
        console.print(f"This is {to}. Correct what is guessed, then:", highlight=False)
        if marked := unconfirmed(text):
            console.print(Text(refusal(to, tomllib.loads(text), marked), "yellow"))
        console.print(f"  {typed('check', str(to))}", highlight=False, soft_wrap=True)
        console.print(f"  make train export serve PROBLEM={to}", highlight=False)


def drafted(draft: Draft) -> str:
    """Return the text of a draft; names whose bytes are no UTF-8, as of files of old systems, are an error."""
    try:
        return draft.toml()
    except UnicodeEncodeError as error:
        line = error.object[error.object.rfind("\n", 0, error.start) + 1 :].partition("\n")[0]
        found = line.encode(errors="backslashreplace").decode()
        raise UserError(f"{found}: expected names in UTF-8, as TOML is, but found other bytes: rename it") from error


def named(path: Path) -> list[Path]:
    """Return the file that a path names, or those that fit it as a pattern."""
    from training.data.readers import natural

    path = path.expanduser()
    found = [] if path.exists() else [Path(each) for each in sorted(glob(str(path)), key=natural)]  # noqa: PTH207 -- it may be absolute
    return found or [path]


def keep(path: Path, text: str) -> None:
    """Write a new file, or replace a draft that has not been edited; another file is an error."""
    from training.problems.draft_file import is_unedited

    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError as error:
        if not is_unedited(path.read_text()):
            raise UserError(f"{path} exists, and is not overwritten: move it away, or edit it") from error
        path.write_text(text)


def check(
    problem: Annotated[Path, typer.Argument(help="The problem file of your data.")],
    folder: DataFolder = Path("data"),
    files: Annotated[
        bool, typer.Option("--values/--no-values", help="Read all values, too, and not the problem file alone.")
    ] = True,
) -> None:
    """Check a problem file and every value of its data, and show what is read.

    The first thing to run after `describe`: nothing is trained, and no torch is
    needed. The values are copied for the training, which does not read your
    files again.

    python -m training check heat.toml
    """
    from training.data.dataset import SampleFile
    from training.data.prepare import data_files, prepare, prepare_coarse, tensor_files
    from training.problems.problem_file import read_problem_file

    found = read_problem_file(problem)
    for part in filter(None, (found, found.of_coarse)):
        data_files(part, problem.parent)
        tensor_files(part, problem.parent)
    if not files:
        return
    samples = SampleFile(prepare(found, problem.parent, folder), found)
    coarse = prepare_coarse(found, problem.parent, folder, samples)
    table = Table(title=f"{found.name}: {problem}", title_justify="left")
    for column in CHECKED:
        table.add_column(column, overflow="fold")
    for name, one in found.stored.items():
        shape = " x ".join(map(str, samples.file[name].shape))
        figures = (f"{samples.statistic(name, key):.3g}" for key in ("minimum", "maximum", "deviation"))
        table.add_row(*map(Text, (name, one.array, samples.role(name), shape, *figures)))
    console.print(table)
    train, validation, test = samples.counts
    console.print(f"{train} training, {validation} validation and {test} test samples: {samples.path}", soft_wrap=True)
    if coarse is not None:
        sides = " x ".join(map(str, coarse.sides))
        console.print(f"{coarse.counts[0]} coarse samples on {sides} points: {coarse.path}", soft_wrap=True)
    for remark in (line for each in (samples, coarse) if each for line in str(each.file.attrs["remarks"]).splitlines()):
        console.print(Text(remark, "yellow"))
    for axis in found.axes:
        for entry in axis.guessed:
            console.print(Text(f"axes.{axis.name}.{entry} was guessed: {getattr(axis, entry)}", "yellow"))
    console.print(f"Next: make train export serve PROBLEM={shlex.quote(str(problem))}", highlight=False, soft_wrap=True)


def data(
    recipe: RecipeOrProblem,
    overrides: Overrides = None,
    folder: DataFolder = Path("data"),
) -> None:
    """Generate or complete the samples of a recipe, or find or fetch its corpus.

    Of a problem file the data are checked and prepared for training. Samples are
    computed on all cores, or by the Ray cluster that RAY_ADDRESS names.

    python -m training data darcy-laptop
    """
    from training import recipes
    from training.fit import run
    from training.fit.start import problem_run

    own = problem_run(recipe, "quick", [], folder)
    if own is not None:
        if overrides:
            raise typer.BadParameter("the data of a problem file have no recipe", param_hint="--set")
        typer.echo(own.samples().path)
        return
    typer.echo(run.workload(recipes.read(recipes.find(recipe), overrides), folder).prepare())
