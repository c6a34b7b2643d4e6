"""Train and measure models.

python -m training fit darcy-quick
"""

# ruff: noqa: PLC0415 -- each command imports what it needs: torch and Lightning take seconds, and `--help` needs neither

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from training import data_commands
from training.data_commands import DataFolder, Overrides, RecipeOrProblem, console
from training.messages import UserError, typed

if TYPE_CHECKING:
    from schema.card import CheckpointCard

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)

#: What is expected of a file, by the error: room, of the disk, a quota and the limit of a file's size; and permission.
EXPECTED = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "room to write it")
EXPECTED |= dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "permission to read and write it")
STOPPED = 130  # the exit status of a program that Ctrl-C has ended

Workers = Annotated[int, typer.Option(min=0, help="Processes that read batches while the network learns.")]
Amounts = Annotated[
    bool,
    typer.Option(
        "--amounts/--no-amounts",
        help="Train on a half and a quarter of your data, too, of trajectories on a half, for the report.",
    ),
]


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
    from training.problems.problem_file import find_problem_file

    find_problem_file(recipe)  # one that is not ready is refused at once, and torch takes seconds to be imported

    from training import checkpoint
    from training.fit import run
    from training.fit.processes import from_first, is_first, joined, launch, process_count
    from training.fit.run_folder import RunFolder
    from training.fit.start import begin
    from training.recipe import Recipe

    again = typed(*sys.argv[1:], *([] if resume else ["--resume"]))
    advice = f"stopped; what is finished is kept, and this goes on with it: {again}"
    with advised(advice if process_count() == 1 else ""), joined():
        chosen, to = from_first(
            lambda: begin(recipe, preset, overrides or [], out, data, resume=resume, operator=operator)
        )
        finished = resume and RunFolder(to).finished(chosen)
        if finished:
            anew = f"`{shlex.join(['rm', '-r', str(to)])}`, or the command without --resume, trains anew"
            console.print(f"{to}: finished; {anew}", highlight=False, soft_wrap=True)
        elif devices > 1 and process_count() == 1:
            launch(devices)
        else:
            if isinstance(chosen, Recipe) and chosen.samples and is_first():
                warn_of_data(data / chosen.samples)
            run.train(chosen, to, data, resume=resume, init=init, workers=workers)
    if process_count() > 1:
        return  # the process that launched them goes on; of torchrun's, none does
    if chosen.problem_file is not None:
        from training import report as reports

        if not finished or reports.is_missing(to, amounts=amounts):
            source = Path(recipe) if Path(recipe).suffix == ".toml" else None
            again = reports.report_command(to, data, amounts=amounts)
            with advised(f"stopped; the model is trained, and this writes its report: {again}"):
                write_report(to, data, amounts=amounts, workers=workers, source=source)
    elif not finished:
        console.print(figures(checkpoint.load(to).card, chosen.name, console.width))
    typer.echo(to)


@contextmanager
def advised(advice: str) -> Iterator[None]:
    """Say what goes on with what Ctrl-C stops, and end with the status of a stopped program."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if advice:
            console.print(advice, highlight=False, soft_wrap=True)
        raise typer.Exit(STOPPED) from stop


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

    recipe, run = reports.load(folder).recipe, RunFolder(folder)
    with run.alone():
        run.expect_ended()
        results = []
        expected = reports.duration(reports.expected_seconds(recipe, run.metrics))
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
            again = reports.report_command(folder, data)
            console.print(f"`{again}` {advice}, about {expected}", soft_wrap=True, markup=False, highlight=False)


for command in (data_commands.describe, data_commands.check, data_commands.data):
    app.command()(command)


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
    checkpoint.read_config(folder)  # which says that there is no checkpoint, before a lock makes the folder
    run.keep_freed_memory()
    with RunFolder(folder).alone() if write else nullcontext():
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
        output = Console(markup=False, emoji=False)
        output.print(figures(CheckpointCard.model_validate(measured), folder.name, output.width))
        if write:
            to = RunFolder(folder)
            if recipe != found.recipe:
                checkpoint.write_recipe(folder, recipe)
            if None in (found.calibration, found.card.calibration):  # a kill may have left one without the other
                made, kept = run.calibrate(work, found.operator, measured.get("rollout", ()))
            else:
                made, kept = None, run.with_known_estimates(measured, found.card)
            run.complete(work, to, found.card, measured | kept, made)


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
    from training import calibration, checkpoint
    from training.evaluation.rows import case_name
    from training.fit import run
    from training.fit.operator_workload import OperatorWorkload
    from training.fit.run_folder import RunFolder

    checkpoint.read_config(folder)  # as in `evaluate`
    run.keep_freed_memory()
    with RunFolder(folder).alone():
        found = checkpoint.load(folder, calibrated=False)
        work, rollout = run.workload(found.recipe, data), found.card.rollout
        if samples or files:
            work = work.renewed(samples, tuple(files or ()))
            if rollout and isinstance(work, OperatorWorkload):
                rollout = tuple(work.estimated(found.operator, rollout))
        made, figures = run.calibrate(work, found.operator, rollout)
        if made is None:
            raise UserError(f"{folder}: expected a model of fields with enough validation samples to calibrate it")
        calibration.save(folder, made)
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
    """Run commands; errors that the user can correct, such as a full disk or a read-only folder, are one line."""
    try:
        app()
    except UserError as error:
        console.print(Text(str(error), "red"))
        raise SystemExit(1) from error
    except OSError as error:
        if error.errno not in EXPECTED:
            raise
        text = f"{error.filename or 'a file'}: expected {EXPECTED[error.errno]} but: {error.strerror}"
        console.print(Text(text, "red"))
        raise SystemExit(1) from error
