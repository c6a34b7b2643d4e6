"""Train and measure models.

python -m training fit darcy-quick
"""

# ruff: noqa: PLC0415 -- each command imports what it needs: torch and Lightning take seconds, and `--help` needs neither

from __future__ import annotations

import shlex
import sys
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
    from schema.card import CheckpointCard

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_show_locals=False)
console = Console(stderr=True)

CHECKED = ("tensor", "array", "role", "shape", "least", "greatest", "deviation")
STOPPED = 130  # the exit status of a program that Ctrl-C has ended

RecipeOrProblem = Annotated[
    str, typer.Argument(help="A recipe: a name such as darcy-quick, or a TOML file; or the problem file of your data.")
]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Change one key: --set fit.epochs=3. Repeatable.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that read batches while the network learns.")]
Amounts = Annotated[
    bool,
    typer.Option("--amounts/--no-amounts", help="Train on a half and a quarter of your data, too, for the report."),
]
DataFolder = Annotated[Path, typer.Option("--data", help="The folder of the samples.")]


@app.command()
def fit(
    recipe: RecipeOrProblem,
    preset: Annotated[str, typer.Option(help="For a problem file: tiny, quick or laptop.")] = "quick",
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/<model>-<preset> by default.")] = None,
    data: DataFolder = Path("data"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last finished epoch.")] = False,
    init: Annotated[Path | None, typer.Option(help="A checkpoint folder to take the initial weights from.")] = None,
    workers: Workers = 0,
    devices: Annotated[int, typer.Option(min=1, help="Processes that share each batch; one per GPU, if any.")] = 1,
    operator: Annotated[
        str | None, typer.Option(help="For a problem file: the kind of the network, such as grid-transformer.")
    ] = None,
    amounts: Amounts = False,
) -> None:
    """Train a recipe: generate samples, fit, write the checkpoint, measure it.

    The run's folder becomes a checkpoint folder. metrics.csv in it has one row
    per epoch. An interrupted run continues with --resume.

    The data of a problem file are checked and prepared first, and sizes and
    times are chosen from them; `describe` drafts a problem file.

    python -m training fit darcy-quick --set fit.epochs=20 --set data.train=500
    python -m training fit heat.toml --preset quick
    python -m training fit heat.toml --operator grid-transformer
    """
    from training import checkpoint
    from training.fit import processes, run
    from training.fit.run_folder import RunFolder
    from training.fit.start import begin
    from training.recipe import Recipe

    try:
        with processes.joined():
            chosen, to = processes.from_first(
                lambda: begin(recipe, preset, overrides or [], out, data, resume=resume, operator=operator)
            )
            if resume and RunFolder(to).finished(chosen):
                console.print(
                    f"{to}: finished; `rm -r {to}`, or the command without --resume, trains anew", soft_wrap=True
                )
                typer.echo(to)
                return
            if isinstance(chosen, Recipe) and chosen.samples and processes.first():
                warn_of_data(data / chosen.samples)
            if devices > 1 and processes.count() == 1:
                processes.launch(devices)
            else:
                run.train(chosen, to, data, resume=resume, init=init, workers=workers)
    except KeyboardInterrupt as stop:
        if processes.count() == 1:
            again = typed(*sys.argv[1:], *([] if resume else ["--resume"]))
            advice = f"stopped; what is finished is kept, and this goes on with it: {again}"
            console.print(advice, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(STOPPED) from stop
    if processes.count() > 1:
        return  # the process that launched them goes on; of torchrun's, none does
    if chosen.problem_file is not None:
        source = Path(recipe) if Path(recipe).suffix == ".toml" else None
        write_report(to, data, amounts=amounts, workers=workers, source=source)
    else:
        console.print(figures(checkpoint.load(to).card, chosen.name, console.width))
    typer.echo(to)


def warn_of_data(samples: Path) -> None:
    """Print what is odd about prepared samples, such as values that float32 does not resolve."""
    import h5py

    if samples.is_file():
        with h5py.File(samples, locking=False) as file:
            for remark in str(file.attrs["remarks"]).splitlines():
                console.print(Text(remark, "yellow"), soft_wrap=True)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run on the data of a problem file.")],
    data: DataFolder = Path("data"),
    amounts: Amounts = True,
    workers: Workers = 0,
) -> None:
    """Write RUN/report.html: what a model of your data is worth, and what would improve it.

    The page shows errors by sample, the learning curve, the best, median and
    worst test sample, the error against the amount of data, and the time beside
    that of your solver. `fit` writes it, too.

    python -m training report runs/heat-quick
    """
    write_report(folder, data, amounts=amounts, workers=workers)


def write_report(folder: Path, data: Path, *, amounts: bool, workers: int, source: Path | None = None) -> None:
    """Write the report of a run and print it.

    Args:
        folder: Of the run.
        data: The folder of the samples.
        amounts: Train on parts of the data, too.
        workers: Processes that read batches in these trainings.
        source: The problem file; by default that of the earlier report.
    """
    from training import report as reports
    from training.fit.run_folder import RunFolder

    recipe = reports.load(folder).recipe
    results = []
    expected = reports.duration(reports.expected_seconds(recipe, RunFolder(folder).metrics))
    if amounts:
        console.print(f"trainings on parts of the data, about {expected}; --no-amounts leaves them out")
    for share in reports.shares(recipe) if amounts else ():
        console.print(f"training on {100 * share:g} % of the data")
        results.append(reports.train_on_share(recipe, share, folder, data, workers))
    made = reports.collect(folder, data, results, source or reports.source_of(folder))
    page = reports.write(made, folder)
    reports.show(made, console)
    console.print(f"report: {page}", soft_wrap=True, markup=False, highlight=False)
    if not made.amounts:
        advice = "shows what more data would bring, by trainings on parts of them"
        again = reports.report_command(made)
        console.print(f"`{again}` {advice}, about {expected}", soft_wrap=True, markup=False, highlight=False)


@app.command()
def describe(
    files: Annotated[
        list[Path],
        typer.Argument(help="Data files of one layout, which are one set of samples; or a folder of mesh files."),
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
    every such line. Guesses of the outputs, of the sample axis and of time have
    to be confirmed before a training: by --outputs, or by removing the comment.
    Its `files` are named from this folder: leave it here. --write keeps a file
    that is here already, unless it is a draft that has not been edited.

    python -m training describe heat.h5 --outputs temperature --write
    python -m training describe plates > plates.toml
    """
    from training.data.readers.sets import open_set
    from training.problems.draft import draft
    from training.problems.sections import refusal, unconfirmed

    with ExitStack() as stack:
        found = open_set(stack, [path for given in files for path in named(given)], layout)
        file = found.file
        names = [outputs] if outputs in file.arrays else [name for name in map(str.strip, outputs.split(",")) if name]
        made = draft(file, found.files, found.folder, names, found.runs)
        title = f"{(found.runs or found.files[0]).name}: {file.format}"
        table = Table("array", "shape", "type", "units", "taken as", title=title, title_justify="left")
        for array in file.arrays.values():
            shape = " x ".join(map(str, array.shape))
            table.add_row(*map(Text, (array.name, shape, str(array.dtype), array.units, made.role_of(array.name))))
        for name, reason in file.left_out.items():
            table.add_row(*map(Text, (name, "", "", "", f"left out: {reason}")))
        console.print(table)
        typer.echo(made.toml(), nl=False)
    if write:
        to = Path(f"{made.name}.toml")
        keep(to, made.toml())
        for name, reason in made.left_out.items():
            console.print(Text(f"{name} is left out: {reason}", "yellow"))
        console.print(f"This is {to}. Correct what is guessed, then:", highlight=False)
        if marked := unconfirmed(made.toml()):
            console.print(Text(refusal(to, tomllib.loads(made.toml()), marked), "yellow"))
        console.print(f"  {typed('check', str(to))}", highlight=False, soft_wrap=True)
        console.print(f"  make train export serve PROBLEM={to}", highlight=False)


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


@app.command()
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
    from training.data.prepare import data_files, prepare, tensor_files
    from training.problems.problem_file import read_problem_file

    found = read_problem_file(problem)
    data_files(found, problem.parent)
    tensor_files(found, problem.parent)
    if not files:
        return
    samples = SampleFile(prepare(found, problem.parent, folder), found)
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
    for remark in str(samples.file.attrs["remarks"]).splitlines():
        console.print(Text(remark, "yellow"))
    for axis in found.axes:
        for entry in axis.guessed:
            console.print(Text(f"axes.{axis.name}.{entry} was guessed: {getattr(axis, entry)}", "yellow"))
    console.print(f"Next: make train export serve PROBLEM={shlex.quote(str(problem))}", highlight=False, soft_wrap=True)


@app.command()
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
    from training import recipe as recipes
    from training.fit import run
    from training.fit.start import problem_run

    own = problem_run(recipe, "quick", [], folder)
    if own is not None:
        if overrides:
            raise typer.BadParameter("the data of a problem file have no recipe", param_hint="--set")
        typer.echo(own.samples().path)
        return
    typer.echo(run.workload(recipes.read(recipes.find(recipe), overrides), folder).prepare())


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(help="A checkpoint folder, such as checkpoints/darcy.")],
    grid: Annotated[int | None, typer.Option(help="Points per axis; every measurable grid by default.")] = None,
    noise: Annotated[
        float | None,
        typer.Option(help="Noise on the input, in units of its deviation; the trained levels by default."),
    ] = None,
    fields: Annotated[
        int | None,
        typer.Option(min=2, help="Test fields, the first ones of the stream; those of the recipe by default."),
    ] = None,
    data: DataFolder = Path("data"),
    write: Annotated[bool, typer.Option("--write", help="Write the figures into the checkpoint's card.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(help="A folder for pictures of the best, median and worst sample on the finest trained grid."),
    ] = None,
) -> None:
    """Measure a checkpoint on its test set, beside the classical solver.

    Errors are relative: L2 (mean, median, worst), that of the gradient (mean),
    and for Darcy that in the energy norm (mean). Times are medians per field in
    milliseconds of processor time: of the network before its export, alone and
    in batches of eight, and of the classical solver; OMP_NUM_THREADS=1 makes
    them comparable. The solver runs on up to a hundred test fields, or on three
    where it takes seconds for each.

    --write with --fields also writes their number into the checkpoint's recipe.

    python -m training evaluate checkpoints/darcy --grid 141 --pictures pictures
    """
    from schema.card import CheckpointCard
    from training import checkpoint
    from training.files import write_json
    from training.fit import run
    from training.fit.run_folder import RunFolder
    from training.fit.workload import Scope, ScopeError
    from training.recipe import Recipe

    if write and (grid or noise is not None):
        raise typer.BadParameter("a card holds every grid at the trained levels of noise", param_hint="--write")
    found, scope = checkpoint.load(folder), Scope(grid, noise, patient=True)
    recipe = found.recipe
    if fields is not None:
        if not isinstance(recipe, Recipe) or recipe.data is None:
            raise typer.BadParameter("only test fields of the built-in problems are drawn", param_hint="--fields")
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": fields})})
    work = run.workload(recipe, data)
    try:
        measured = work.measure(found.operator, found.problem, scope)
        if pictures:
            work.draw_pictures(found.operator, found.problem, scope, pictures)
    except ScopeError as error:
        raise typer.BadParameter(str(error)) from error
    if json:
        json.parent.mkdir(parents=True, exist_ok=True)
        write_json(json, measured)
    output = Console()
    output.print(figures(CheckpointCard.model_validate(measured), folder.name, output.width))
    if write:
        to = RunFolder(folder)
        if recipe != found.recipe:
            checkpoint.write_recipe(folder, recipe)
        kept = (
            run.estimates_kept(measured, found.card)
            if found.calibration
            else run.calibrate(work, found.operator, to, measured.get("rollout", ()))
        )
        run.complete(work, to, found.card, measured | kept)


@app.command()
def calibrate(
    folder: Annotated[Path, typer.Argument(help="A checkpoint folder, such as checkpoints/darcy.")],
    samples: Annotated[
        int, typer.Option(help="New calibration samples, for problems with a sampler; 0: the validation samples.")
    ] = 0,
    files: Annotated[
        list[str] | None,
        typer.Option(help="A file, or a pattern, of new samples of a user's problem; may be repeated."),
    ] = None,
    data: DataFolder = Path("data"),
) -> None:
    """Calibrate the error estimate and the novelty of a trained model.

    A model's responses then say how large their error may be, and whether the
    input is outside the training distribution. `fit` calibrates with the
    validation samples, which have also chosen the epoch. New samples serve
    nothing else: 500 or more that are drawn, or those of --files, of which 30 %
    are fitted, 40 % calibrate and 30 % check.

    python -m training calibrate checkpoints/darcy --samples 500
    """
    from training import checkpoint
    from training.evaluation.rows import case_name
    from training.fit import run
    from training.fit.operator_workload import OperatorWorkload
    from training.fit.run_folder import RunFolder

    found = checkpoint.load(folder, calibrated=False)
    work, rollout = run.workload(found.recipe, data), found.card.rollout
    if samples or files:
        work = work.renewed(samples, tuple(files or ()))
        if rollout and isinstance(work, OperatorWorkload):
            rollout = tuple(work.estimated(found.operator, rollout))
    figures = run.calibrate(work, found.operator, RunFolder(folder), rollout)
    if not figures:
        raise UserError(f"{folder}: expected a model of fields with enough validation samples to calibrate it")
    checkpoint.write_card(folder, found.card.measured(({"rollout": rollout} if rollout else {}) | figures))
    rows = Table("grid", "test fields", "error below estimate", "mean estimate", "outside", title_justify="left")
    for row in figures["calibration"]["test"]:
        covered = f"{row['coverage']:.3f} +- {row['coverage_standard_error']:.3f}" if "coverage" in row else ""
        cells = (row["fields"], covered, row.get("mean_estimate", ""), row["outside"])
        rows.add_row(case_name(row), *map(str, cells))
    console.print(rows)


def figures(card: CheckpointCard, name: str, width: int) -> Table:
    """Lay out a card's figures for a terminal of that width: errors of fields, or accuracies of labels."""
    from training.evaluation.rows import label_table, rich_table

    if card.accuracy:
        return label_table(card, f"{name}: accuracy")
    return rich_table(card, f"{name}: relative errors on the test set", width)


def main() -> None:
    """Run the commands."""
    corrected(app)


def corrected(app: typer.Typer) -> None:
    """Run commands; errors that the user can correct are printed as one line."""
    try:
        app()
    except UserError as error:
        console.print(Text(str(error), "red"))
        raise SystemExit(1) from error
