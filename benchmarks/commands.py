"""The commands that measure the tables of the documentation and write them into its pages."""

from __future__ import annotations

from json import loads
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import comparison
from benchmarks.inversion import chart as inversion_chart
from benchmarks.inversion import measure as inversion
from benchmarks.own_data import chart as own_data_chart
from benchmarks.own_data import comparison as own_data
from benchmarks.own_data import data as own_data_sets
from benchmarks.own_data import tables as own_data_tables
from benchmarks.own_data import trainings as own_data_trainings
from benchmarks.profiling.command import profile, split
from benchmarks.profiling.plot import draw as draw_profile
from benchmarks.report import markdown, memorisation, page, pictures, research
from benchmarks.service import fairness, importer, latency, malformed, mixed_grids, overhead, soak, throughput
from benchmarks.tables import accuracy, attention, charts, durations, forward, products, settings, steps, targets
from benchmarks.tables.classical import breakeven, pareto, solvers, summary
from benchmarks.tables.quality import bounds, calibrations, certified, outside, tolerance
from benchmarks.trajectories import comparison as trajectories
from benchmarks.trajectories import solvers as rollout_solvers
from training.files import write_json
from training.recipes import recipe as recipes
from training.user_error import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKPOINTS, MODELS = Path("checkpoints"), Path("model_repository")
PAGE, PICTURES = Path("docs/accuracy.md"), Path("docs/accuracy")
ABLATION, NEURALOP = Path("docs/ablation.json"), Path("docs/neuralop.json")
PROFILE = Path("docs/profile.png")
OWN_DATA = Path("docs/own-data.json")
INVERSION = Path("docs/inversion.json")
TRAJECTORIES = Path("docs/trajectories.json")
HOUR = 60.0  # minutes of a full soak, which `make bench` leaves out

Repository = Annotated[Path, typer.Option(help="Exported models.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer grids, batches and repetitions.")]

app = typer.Typer(
    help="Measure the tables of the documentation, and write them into its pages.\n\n"
    "Without a command, all tables are measured (`make bench`; with --quick in five to nine minutes). A command "
    "measures one of them, for example `python -m benchmarks forward --quick`.",
    pretty_exceptions_show_locals=False,
)
app.command()(profile)


@app.callback(invoke_without_command=True)
def everything(context: typer.Context, repository: Repository = MODELS, quick: Quick = False) -> None:
    """Measure all tables, unless a command is given."""
    if context.invoked_subcommand is not None:
        return
    if not quick:
        measure_pictures(repository)
        measure_settings()
        measure_accuracy()
        write_quality()
        measure_latency(repository)
        measure_overhead()
        measure_mixed_grids(repository)
    with TemporaryDirectory() as folder:
        write_forward(repository, Path(folder), quick=quick)
        measure_steps(quick)
        [(points, _)] = throughput.ONE  # the grid of the published network in the table of the service
        write_service(repository, forward.graph(Path(folder), points), quick=quick)
    measure_attention(quick)
    measure_solvers(repository, quick=quick)
    measure_products(repository, quick)
    measure_pareto(repository, quick)
    measure_breakeven(quick)
    if not quick:
        measure_tolerance()
        measure_certified()
        measure_bounds()
        measure_summary()


@app.command("pictures")
def measure_pictures(repository: Repository = MODELS) -> None:
    """Draw one prediction of `darcy` and one of `darcy_inverse`; into docs/."""
    pictures.draw_darcy(repository, Path("docs/darcy.png"))
    pictures.draw_inverse(repository, Path("docs/darcy_inverse.png"))


@app.command("accuracy")
def measure_accuracy(
    measure: Annotated[
        bool, typer.Option("--measure", help="Evaluate the models first: minutes, and test sets.")
    ] = False,
) -> None:
    """Write the released models' errors and times into docs/accuracy.md, from their cards."""
    if measure:
        accuracy.measure(CHECKPOINTS, PICTURES)
    accuracy.write_page(PAGE, CHECKPOINTS, ABLATION, NEURALOP)


@app.command("quality")
def write_quality() -> None:
    """Write how the released models' error estimates and novelties do into docs/quality.md, from their cards."""
    calibrations.write_page(Path("docs/quality.md"), CHECKPOINTS)


@app.command("outside")
def measure_outside(
    folder: Annotated[Path, typer.Option(help="The checkpoint.")] = CHECKPOINTS / "darcy",
    earlier: Annotated[Path | None, typer.Option(help="A checkpoint to compare with.")] = None,
    quick: Quick = False,
) -> None:
    """Measure `darcy` on fields unlike its training set; into docs/benchmarks.md."""
    rows = outside.measure(folder, earlier, quick=quick)
    for header, cells in outside.tables(rows).values():
        show(header, cells)
    page.publish("outside", outside.document(rows), outside.tables(rows), quick=quick)


@app.command("tolerance")
def measure_tolerance(quick: Quick = False) -> None:
    """Measure what a smaller bound costs `darcy`, by more iterations and by the solver; into docs/benchmarks.md."""
    found = tolerance.measure(CHECKPOINTS / "darcy", quick=quick)
    put("tolerance", tolerance.document(*found), tolerance.tables(*found), quick=quick)


@app.command("certified")
def measure_certified(quick: Quick = False) -> None:
    """Measure what bounds, estimate and novelty of `darcy` cost beside its prediction; into docs/benchmarks.md."""
    found = certified.measure(CHECKPOINTS / "darcy", quick=quick)
    put("certified", certified.document(found), certified.tables(found), quick=quick)


@app.command("bounds")
def measure_bounds(quick: Quick = False) -> None:
    """Measure how close the bounds of `darcy` are and how often its estimates hold; into docs/benchmarks.md."""
    found = bounds.measure(CHECKPOINTS / "darcy", quick=quick)
    put("bounds", bounds.document(found), bounds.tables(found), quick=quick)


@app.command("summary")
def measure_summary() -> None:
    """Write the README's table from the results of `pareto` and `solvers`."""
    found, solved = (page.read(name) for name in ("pareto", "solvers"))
    if found is None or solved is None:
        raise typer.BadParameter("expected results of `pareto` and `solvers`: run these first")
    publish("summary", summary.HEADER, summary.rows(found, solved))


@app.command("settings")
def measure_settings() -> None:
    """Write the service's settings into docs/settings.md."""
    publish("settings", settings.HEADER, settings.rows())


@app.command("latency")
def measure_latency(repository: Repository = MODELS) -> None:
    """Measure the time of one prediction by each route; into docs/benchmarks.md."""
    put_table("latency", latency.HEADER, latency.rows(repository))


@app.command("overhead")
def measure_overhead() -> None:
    """Measure the time that the gateway adds to a prediction; into docs/benchmarks.md."""
    put_table("overhead", overhead.HEADER, overhead.rows())


@app.command("mixed-grids")
def measure_mixed_grids(repository: Repository = MODELS) -> None:
    """Measure batches and throughput of one grid and of four; into docs/benchmarks.md."""
    put_table("mixed-grids", mixed_grids.HEADER, mixed_grids.rows(repository))


@app.command("fairness")
def measure_fairness(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Measure short predictions beside a long rollout of the same model; into docs/benchmarks.md."""
    document = fairness.measure(repository, quick=quick)
    put("fairness", document, {"fairness": (fairness.HEADER, fairness.rows(document))}, quick=quick)


@app.command("soak")
def measure_soak(
    repository: Repository = MODELS,
    minutes: Annotated[float, typer.Option(min=0.1, help="The duration.")] = HOUR,
) -> None:
    """Load a service for a long time; into docs/benchmarks.md. The exit status is 1 after an error or a loss."""
    report = soak.measure(repository, minutes)
    put_table("soak", soak.HEADER, report.rows(), quick=minutes < HOUR)
    raise typer.Exit(0 if report.faultless else 1)


app.command("malformed")(malformed.main)


@app.command("forward")
def measure_forward(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Measure the Darcy operator's forward pass beside every alternative; into docs/benchmarks.md."""
    with TemporaryDirectory() as folder:
        write_forward(repository, Path(folder), quick=quick)


def write_forward(repository: Path, folder: Path, *, quick: bool) -> None:
    """Measure the forward pass, and keep the exported networks in the folder."""
    found = forward.measure(forward.QUICK if quick else forward.FULL, repository, folder)
    put("forward", forward.document(found), forward.tables(found), quick=quick)
    charts.draw_forward(found, page.FOLDER / "forward.png")


@app.command("steps")
def measure_steps(quick: Quick = False) -> None:
    """Measure a training step of the paper recipes beside the reference's; into docs/benchmarks.md."""
    found = steps.measure(quick=quick)
    put("steps", steps.document(found), steps.tables(found), quick=quick)


@app.command("service")
def measure_service(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Load the service, a naive one and LitServe; into docs/benchmarks.md."""
    write_service(repository, None, quick=quick)


def write_service(repository: Path, graph: Path | None, *, quick: bool) -> None:
    """Measure the throughput of the services, with the published network's graph if it is exported already."""
    found = throughput.measure(throughput.QUICK if quick else throughput.FULL, repository, graph)
    put("service", throughput.document(found), throughput.tables(found), quick=quick)
    charts.draw_service(found, page.FOLDER / "service.png")


@app.command("attention")
def measure_attention(quick: Quick = False) -> None:
    """Profile the attention types for the paper's claims; into docs/benchmarks.md and, unless quick, docs/layers.md."""
    found = attention.measure(quick=quick)
    put("attention", attention.document(found), attention.tables(found), quick=quick)
    if not quick:
        publish("layers", attention.LAYERS, attention.layers(found))
        draw_profile(found, PROFILE)


@app.command("solvers")
def measure_solvers(
    repository: Repository = MODELS,
    models: Annotated[str, typer.Option(help="Which models; the rows of the others stay.")] = ",".join(solvers.MODELS),
    quick: Quick = False,
) -> None:
    """Measure the inverse and Burgers networks beside their solvers; into docs/benchmarks.md."""
    chosen = tuple(split(models))
    kept = solvers.others(page.read("solvers"), chosen)
    found = sorted([*kept, *solvers.measure(repository, chosen, quick=quick)], key=solvers.position)
    put("solvers", solvers.document(found), solvers.tables(found), quick=quick)


@app.command("products")
def measure_products(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Measure what gradients and tangents of the released models cost; into docs/gradients.md."""
    found = products.measure(repository, quick=quick)
    page.publish("products", products.document(found), {}, quick=quick)
    publish("products", *products.table(found))


@app.command("durations")
def measure_durations(
    recipe: Annotated[str | None, typer.Option(help="One recipe; the rows of the others stay. All by default.")] = None,
    data: Annotated[Path, typer.Option("--data", help="The folder of the samples; missing ones are made.")] = Path(
        "data"
    ),
) -> None:
    """Measure the steps of the published sizes, and the hours of their trainings; into docs/accuracy.md, research.md.

    Run it with OMP_NUM_THREADS=1, as the hours are those of one core.
    """
    subjects = (*durations.FIELDS, *durations.SEQUENCES)
    chosen = tuple(subject for subject in subjects if recipe in {None, subject.recipe})
    if not chosen:
        raise typer.BadParameter(f"expected one of {', '.join({each.recipe for each in subjects})}")
    former = page.read("durations")
    found = [] if former is None else durations.known(former)
    for row in durations.measure(data, chosen):
        typer.echo(f"{row.recipe}, {row.attention}: {row.seconds:.2g} s per step, {row.hours:.2g} hours", err=True)
        found = durations.merged(found, row)
        page.publish("durations", durations.document(found), {}, quick=False)
    for name, (header, cells) in durations.tables(found).items():
        publish(name, header, cells)


@app.command("importer")
def measure_importer(
    data: Annotated[Path, typer.Option("--data", help="The folder of the samples; missing ones are made.")] = Path(
        "data"
    ),
    quick: Quick = False,
) -> None:
    """Serve checkpoints that the published package trains, beside its own outputs; into docs/training.md."""
    found = importer.measure(data, quick=quick)
    page.publish("importer", importer.document(found), {}, quick=quick)
    publish("importer", *importer.table(found))


@app.command("pareto")
def measure_pareto(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Measure error against time of the networks and of classical methods that are stopped early."""
    found = pareto.measure(repository, quick=quick)
    own = pareto.own_error(pareto.QUICK_FIELDS)
    put("pareto", pareto.document(found, own), {"pareto": (pareto.HEADER, pareto.rows(found))}, quick=quick)
    charts.draw_pareto(found, page.FOLDER / "pareto.png")


@app.command("inversion")
def measure_inversion(
    repository: Repository = MODELS,
    json: Annotated[Path, typer.Option(help="Every case is written here; those that it holds are kept.")] = INVERSION,
    quick: Annotated[bool, typer.Option("--quick", help="Two cases, printed and not written.")] = False,
) -> None:
    """Invert simulated measurements with the network and with the finite volumes; into docs/inversion.md.

    An interrupted run is continued. The full run takes some twenty minutes of
    one core.
    """
    rows = []
    for row in inversion.measure(repository, json, quick=quick):
        typer.echo(f"{row.prior}, {row.seed}, {row.method}: {row.error:.3f} in {row.seconds:.1f} s", err=True)
        rows.append(row)
    if quick:
        show(*inversion.table(rows))
        return
    publish("inversion", *inversion.table(rows))
    inversion_chart.draw(repository, json.with_suffix(".png"))


@app.command("breakeven")
def measure_breakeven(quick: Quick = False) -> None:
    """Compute how many solves repay a model, from the results of `pareto` and `solvers`; into docs/benchmarks.md."""
    found = breakeven.measure(CHECKPOINTS, *results())
    put("breakeven", breakeven.document(found), breakeven.tables(found), quick=quick)


@app.command("memorisation")
def write_memorisation() -> None:
    """Write the results in docs/memorisation/ into the tables of docs/memorisation.md."""
    memorisation.write_page()


@app.command("research")
def write_research() -> None:
    """Write the results in docs/research/ into the tables of docs/research.md."""
    research.write_page()


@app.command("compare")
def compare_attention(
    recipe: Annotated[str, typer.Argument(help="A recipe: a name such as darcy-quick, or a TOML file.")],
    attention: Annotated[str, typer.Option(help="Types to train, such as softmax,kernel-softplus,kernel-oglu2.")],
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per type, with other weights and orders.")] = 1,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key, such as --set fit.epochs=3. Repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs.")] = Path("runs/comparison"),
    data: Annotated[Path, typer.Option("--data", help="The folder of the generated samples.")] = Path("data"),
    json: Annotated[
        Path | None, typer.Option(help="Write all rows here, after each one; rows that it holds are not trained again.")
    ] = None,
) -> None:
    """Train a recipe with each type of attention, and print the scores and costs.

    All rows share the samples. A step is forward and backward on the first
    batch; its time is the processor time of all threads, and its memory the
    peak of the tensors beyond weights and input.

    python -m benchmarks compare listops-quick --attention softmax,kernel-oglu2 --seeds 3 --json listops.json
    """
    plan = comparison.Plan(recipes.find(recipe), tuple(overrides or ()), tuple(split(attention)), seeds)
    rows = comparison.known(plan, json) if json else []
    for row in comparison.compare(plan, rows, out, data):
        rows.append(row)
        typer.echo(f"{row.attention}, seed {row.seed}: {row.metric} {row.score}", err=True)
        if json:
            comparison.write(plan, rows, json)
    show(comparison.HEADER, comparison.cells(rows), title=f"{recipe}: attention types on the same samples")


@app.command("own-data")
def compare_own_data(
    seconds: Annotated[str, typer.Option(help="Processor times of a training.")] = ",".join(
        f"{each:g}" for each in own_data.SECONDS
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network and problem.")] = own_data.SEEDS,
    workers: Annotated[int, typer.Option(min=1, help="Trainings at the same time, each of one thread.")] = 1,
    problems: Annotated[str, typer.Option(help="Which problems, such as heat,darcy.")] = ",".join(own_data_sets.NAMES),
    data: Annotated[Path, typer.Option("--data", help="The folder of the data sets.")] = own_data_sets.FOLDER,
    json: Annotated[
        Path, typer.Option(help="Every training is written here; those that it holds are not repeated.")
    ] = OWN_DATA,
) -> None:
    """Compare FNO, U-Net and Petrov on other projects' data, at equal processor time; into docs/own-data.md.

    Five data sets are made by their solvers first. An interrupted run is continued. With the defaults the trainings
    take a little over two hours of one core.
    """
    plan = own_data.Plan(tuple(split(problems)), tuple(map(float, split(seconds))), seeds)
    rows = []
    for row in own_data.compare(plan, own_data_trainings.Results(json), data, workers):
        training, result = row.training, row.result
        typer.echo(f"{training.problem}, {training.title}, {training.split}: {result.error:.2e}", err=True)
        rows.append(row)
    write_own_data(rows)


def write_own_data(rows: Sequence[own_data_trainings.Row]) -> None:
    """Write the tables and the chart of the comparison on own data."""
    for name, (header, cells) in own_data_tables.tables(rows).items():
        show(header, cells)
        markdown.write(markdown.page_of(name), name, header, cells)
    typer.echo(own_data_tables.verdict(rows))
    own_data_chart.draw(rows, OWN_DATA.with_suffix(".png"))


@app.command("trajectories")
def compare_trajectories(
    fno_seconds: Annotated[
        float | None, typer.Option(min=1, help="Train FNO for as much processor time; by default its row is kept.")
    ] = None,
    data: Annotated[Path, typer.Option("--data", help="The folder of the trajectories.")] = trajectories.FOLDER,
) -> None:
    """Train and serve Petrov, and train FNO, on exponax's Kuramoto-Sivashinsky trajectories; into docs/trajectories.md.

    Petrov comes first, as by `make train export serve PROBLEM=ks.toml`, in five to ten minutes.
    """
    problem = trajectories.prepare(data)
    own, stages = trajectories.petrov(problem, data)
    keep_trajectories("stages", stages)
    publish("trajectory-stages", trajectories.STAGES, trajectories.stage_cells(stages))
    keep_trajectories("own_bounded", [trajectories.endurance(data)])
    others = known_trajectories("own")[1:] if fno_seconds is None else [trajectories.fno(data, fno_seconds)]
    rows = [own, *others]
    keep_trajectories("own", rows)
    publish("trajectories", trajectories.HEADER, trajectories.cells(rows))


@app.command("rollouts")
def measure_rollouts(
    models: Annotated[str, typer.Option(help="Which models.")] = "kuramoto_sivashinsky,navier_stokes",
    checkpoints: Annotated[Path, typer.Option(help="The folder of their checkpoints.")] = CHECKPOINTS,
    data: Annotated[Path, typer.Option("--data", help="The folder of the samples; missing ones are made.")] = Path(
        "data"
    ),
    fno_seconds: Annotated[
        float | None, typer.Option(min=1, help="Train FNO for as much processor time; by default its row is kept.")
    ] = None,
) -> None:
    """Measure released models of trajectories beside FNO and their solvers on coarser grids; into docs/trajectories.md.

    FNO's weights are kept beside the samples, and an interrupted training goes on.
    """
    for name in split(models):
        rows = rollout_solvers.measure(name, checkpoints, data, known_trajectories(name), fno_seconds)
        keep_trajectories(name, rows)
        keep_trajectories(f"{name}_bounded", [rollout_solvers.endurance(name, checkpoints, data)])
        publish(name, rollout_solvers.HEADER, rollout_solvers.cells(rows))
        rollout_solvers.draw(rows, TRAJECTORIES.with_name(f"{name}.png"))


def known_trajectories(name: str) -> list[dict[str, Any]]:
    """Return the rows of one comparison, none if it has not run."""
    found: list[dict[str, Any]] = loads(TRAJECTORIES.read_text()).get(name, []) if TRAJECTORIES.exists() else []
    return found


def keep_trajectories(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows of one comparison beside those of the others."""
    found = loads(TRAJECTORIES.read_text()) if TRAJECTORIES.exists() else {}
    write_json(TRAJECTORIES, found | {name: rows})


def results() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the last results of `pareto` and `solvers`.

    Raises:
        BadParameter: One of them has not run.
    """
    first, second = (page.read(name) for name in ("pareto", "solvers"))
    if first is None or second is None:
        raise typer.BadParameter("expected results of `pareto` and `solvers`: run these first")
    return first, second


def put(name: str, document: dict[str, Any], tables: dict[str, page.Table], *, quick: bool) -> None:
    """Print a run's tables and publish them."""
    for header, rows in tables.values():
        show(header, rows)
    page.publish(name, document, tables, quick=quick)
    markdown.write(page.PAGE, "targets", *targets.table())


def put_table(name: str, header: tuple[str, ...], rows: list[tuple[str, ...]], *, quick: bool = False) -> None:
    """Print and publish a run that is one table; its document has one object per row."""
    document = {"rows": [dict(zip(header, row, strict=True)) for row in rows]}
    put(name, document, {name: (header, rows)}, quick=quick)


def publish(name: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table and write it into the page that holds it."""
    show(header, rows)
    markdown.write(markdown.page_of(name), name, header, rows)


def show(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], title: str | None = None) -> None:
    """Print a table."""
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def main() -> None:
    """Run the command line; an error that the user can correct is one line."""
    try:
        app(prog_name="python -m benchmarks")
    except UserError as error:
        Console(stderr=True).print(Text(str(error), "red"))
        raise SystemExit(1) from error
