"""The commands that measure the tables and pictures of the documentation; each imports its program when it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.harness import RESULTS, Kept, Row, read, write

CHECKPOINTS, DOCS = Path("checkpoints"), Path("docs")
(
    OWN_DATA,
    AMOUNTS,
    FEW_SAMPLES,
    TRANSFER,
    DISTURBED,
    COVERAGE,
    INVERSION,
    TRAJECTORIES,
    OWN_TRAJECTORIES,
    POINTS,
    MESH_TRAJECTORIES,
    DARCY85,
) = (
    DOCS / f"{name}.json"
    for name in (
        "own-data",
        "amounts",
        "few-samples",
        "transfer",
        "disturbed",
        "coverage",
        "inversion",
        "trajectories",
        "own-trajectories",
        "points",
        "mesh-trajectories",
        "darcy85",
    )
)
MODELS = "darcy,burgers,darcy_inverse"

Repository = Annotated[Path, typer.Option(help="Exported models.")]
Data = Annotated[Path, typer.Option("--data", help="The folder of the samples; missing ones are made.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer inputs and repetitions; changes no page.")]
Seconds = Annotated[
    float | None, typer.Option(min=1, help="Train FNO for as much processor time; by default its row is kept.")
]
Times = Annotated[str, typer.Option(help="Processor times of a training.")]
Workers = Annotated[int, typer.Option(min=1, help="Trainings at the same time, each of one thread.")]
Problems = Annotated[str, typer.Option(help="Which problems.")]
DataSets = Annotated[Path, typer.Option("--data", help="The folder of the data sets.")]
Trainings = Annotated[Path, typer.Option(help="Every training is written here; those that it holds are not repeated.")]
TRITON_PYTHON = Path(".runtime/triton-env/bin/python")
EXPORTED, SAMPLES = Path("model_repository"), Path("data")

app = typer.Typer(
    help="Measure the tables and pictures of the documentation.\n\nWithout a command, all that need no training are "
    "measured (`make bench`). Full runs write docs/bench/*.json, from which `pages` writes the tables; quick ones "
    "write runs/bench-quick.",
    pretty_exceptions_show_locals=False,
)


@app.callback(invoke_without_command=True)
def everything(context: typer.Context, repository: Repository = EXPORTED, quick: Quick = False) -> None:
    """Measure everything that needs no training, unless a command is given."""
    if context.invoked_subcommand is not None:
        return
    methods(repository, quick=quick)
    quality(quick=quick)
    derivatives(repository, quick=quick)
    attention(quick=quick)
    service(repository, quick=quick)
    wire(quick=quick)
    throughput(repository, quick=quick)
    inversion(repository, quick=quick)
    if not quick:
        pictures(repository)
        pages()


@app.command()
def methods(
    repository: Repository = EXPORTED,
    models: Annotated[str, typer.Option(help="Which models; the rows of the others stay.")] = MODELS,
    quick: Quick = False,
) -> None:
    """Measure error against time of the networks and of classical methods."""
    from benchmarks import methods as program  # noqa: PLC0415
    from benchmarks import pictures as draw  # noqa: PLC0415

    if unknown := {*split(models)} - {*program.MODELS}:
        raise typer.BadParameter(f"expected models among {MODELS} but got {', '.join(sorted(unknown))}")
    kept = [] if quick or models == MODELS else [row for row in read("methods")["rows"] if row["model"] not in models]
    measured = [*kept, *program.measure(repository, tuple(split(models)), quick=quick)]
    rows = sorted(measured, key=lambda row: program.MODELS.index(row["model"]))
    show("summary", write("methods", rows, quick=quick, truth=program.own_error(4 if quick else 24)))
    if not quick:
        draw.methods(rows, RESULTS / "methods.png")


@app.command()
def pages() -> None:
    """Write the tables of the README and of docs/ from the last results, with settings, routes, metrics and cards."""
    from benchmarks import pages as program  # noqa: PLC0415

    for page in program.write():
        typer.echo(page.relative_to(program.ROOT))


@app.command()
def quality(quick: Quick = False) -> None:
    """Measure bounds and estimates by family and grid, responses to foreign inputs, and what a smaller bound costs."""
    from benchmarks import quality as program  # noqa: PLC0415

    folder = CHECKPOINTS / "darcy"
    show("tolerance", write("tolerance", program.tolerance(folder, quick=quick), quick=quick))
    show("foreign", write("foreign", program.foreign(CHECKPOINTS, quick=quick), quick=quick))
    found = write("families", program.families(folder, quick=quick), quick=quick)
    if not quick:  # one grid has no table
        show("families", found)


@app.command()
def derivatives(repository: Repository = EXPORTED, quick: Quick = False) -> None:
    """Measure what gradients and tangents of the released models cost."""
    from benchmarks import derivatives as program  # noqa: PLC0415

    show("derivatives", write("derivatives", program.measure(repository, quick=quick), quick=quick))


@app.command()
def attention(
    types: Annotated[
        str | None, typer.Option(help="Types of attention, such as softmax,softmax-explicit; the published ones.")
    ] = None,
    lengths: Annotated[str | None, typer.Option(help="Tokens; 1024,2048,4096,8192.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Timed steps, of which the medians are shown; 5.")] = None,
    channels: Annotated[int | None, typer.Option(min=1, help="Features per token; 96.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the measurements here.")] = None,
    quick: Quick = False,
) -> None:
    """Profile types of attention: time and memory of a training step, and the paper's claims about them.

    A step is forward and backward on one thread, in processor time. Memory is the peak beyond weights and input. The
    costs of each type are fitted as a power of the tokens. fourier is computed as Q (K^T V), softmax by the fused
    kernel; fourier-explicit and softmax-explicit as in the paper, with an n x n matrix. A profile of other types,
    lengths, steps or channels than by default is printed, and written with --json.

    python -m benchmarks attention --types softmax,kernel-oglu2,galerkin --lengths 64,128 --json profile.json
    """
    import torch  # noqa: PLC0415

    from benchmarks import pictures as draw  # noqa: PLC0415
    from benchmarks import profile as program  # noqa: PLC0415

    forms, usual = tuple(split(types)) or program.PUBLISHED, "1024,2048" if quick else "1024,2048,4096,8192"
    torch.set_num_threads(1)
    rows = program.measure(
        forms, [*map(whole, split(lengths or usual))], repeats=repeats or (2 if quick else 5), channels=channels or 96
    )
    published = not (types or lengths or repeats or channels)
    if published or json:
        write("attention", rows, quick=quick, file=json, torch=torch.__version__, channels=channels or 96)
    show("attention", {"rows": rows})
    if published:
        show("claims", {"rows": rows})
        if not quick:
            draw.profile(rows, DOCS / "profile.png")


@app.command()
def service(repository: Repository = EXPORTED, quick: Quick = False) -> None:
    """Load the service, a naive one and LitServe, and measure the time that the gateway adds to Triton's."""
    from benchmarks import pictures as draw  # noqa: PLC0415
    from benchmarks import service as program  # noqa: PLC0415

    show("overhead", write("overhead", program.overhead(quick=quick), quick=quick))
    found = write("service", program.throughput(repository, quick=quick), quick=quick)
    show("service", found)
    if not quick:
        keys = ("route", "in_flight", "fields_per_second")
        draw.lines(found["rows"], keys, "requests in flight", "fields per second", RESULTS / "service.png")


@app.command()
def wire(
    only: Annotated[str, typer.Option(help="Formats whose names contain this; then no page is changed.")] = "",
    quick: Quick = False,
) -> None:
    """Send the largest bodies of each format at once: memory, and how long /health/live waits. Two minutes."""
    from benchmarks import wire as program  # noqa: PLC0415

    rows = [*program.measure(quick=quick, only=only)]
    show("wire", write("wire", rows, quick=quick or bool(only)))


@app.command()
def nodes(
    repository: Repository = EXPORTED,
    only: Annotated[str, typer.Option(help="failures, load or plan; all three by default.")] = "failures,load,plan",
    quick: Quick = False,
) -> None:
    """Have clients of three nodes behind Envoy meet failing nodes, links and more load. Ten minutes; root for links.

    `failures` are nodes and links that fail. `load` compares the queue of the
    nodes with the simulation that `plan` computes numbers of nodes with.
    """
    from benchmarks import nodes as program  # noqa: PLC0415
    from benchmarks import queues  # noqa: PLC0415

    if "failures" in split(only):
        show("nodes", write("nodes", program.measure(repository, quick=quick), quick=quick))
    if "load" in split(only):
        show("load", write("load", queues.check(quick=quick), quick=quick))
    if "plan" in split(only):
        show("plan", write("plan", queues.plan(repository, quick=quick), quick=quick))


@app.command()
def gpu(
    repository: Repository = EXPORTED,
    models: Annotated[str, typer.Option(help="Which models and companions; all of the repository.")] = "",
    python: Annotated[
        Path,
        typer.Option(help="The Python whose ONNX Runtime is measured; that of Triton has the one for GPUs."),
    ] = TRITON_PYTHON,
    pack: Annotated[
        Path | None, typer.Option(help="Measure nothing: write a folder that `gpu_worker.py` in it measures elsewhere.")
    ] = None,
    quick: Quick = False,
) -> None:
    """Compare every graph on a GPU with the processor, and time both, and the service through one to four gateways.

    Without a GPU the processor alone is measured, which it says.

    python -m benchmarks gpu --pack card, and there: python card/gpu_worker.py card result.json
    """
    from benchmarks import gateways  # noqa: PLC0415
    from benchmarks import gpu as program  # noqa: PLC0415

    if pack is not None:
        program.pack(repository, pack, split(models), quick=quick)
        return
    found = program.measure(repository, python.absolute(), split(models), quick=quick)
    rows = found.pop("rows")
    if not models or gateways.MODEL in split(models):
        found["gateways"] = gateways.measure(repository, rows, quick=quick)
    file = write("gpu", rows, quick=quick, **found)
    typer.echo(f"{found['says']}; {found['differing']} of {len(file['rows'])} rows differ by more than 1e-5, or failed")
    for row in found.get("gateways", ()):
        share = f", {row['share']:.0%} of the graph's own rate" if "share" in row else ""
        typer.echo(f"{row['gateways']} gateways: {row['fields_per_second']:.0f} fields a second{share}")


@app.command()
def throughput(
    repository: Repository = EXPORTED,
    python: Annotated[Path, typer.Option(help="The Python whose ONNX Runtime runs the graphs.")] = TRITON_PYTHON,
    quick: Quick = False,
) -> None:
    """Measure fields a second on the processor and, where there is one, on a card: graphs and eager torch."""
    from benchmarks import throughput as program  # noqa: PLC0415

    found = program.measure(repository, CHECKPOINTS, python.absolute(), quick=quick)
    for row in write("throughput", found.pop("rows"), quick=quick, **found)["rows"]:
        what = (
            f"{row['model']}, batches of {row['batch']}, {row['engine']} in {row['precision']} on the {row['device']}"
        )
        typer.echo(f"{what}: {row['fields_per_second']:.1f} fields a second")
    typer.echo(found["says"])


@app.command()
def inversion(repository: Repository = EXPORTED, quick: Quick = False) -> None:
    """Invert simulated measurements with the network and with the finite volumes; an interrupted run is continued."""
    from benchmarks import inversion as program  # noqa: PLC0415

    kept = Kept(None if quick else INVERSION, **program.FACTS)
    for row in program.measure(repository, kept, quick=quick):
        typer.echo(f"{row['prior']}, {row['seed']}, {row['method']}: {row['error']:.3f}", err=True)
    show("inversion", {"rows": kept.rows})
    if not quick:
        program.draw(repository, INVERSION.with_suffix(".png"))


@app.command()
def pictures(repository: Repository = EXPORTED) -> None:
    """Draw predictions of `darcy`, `darcy_inverse` and the paper's networks, and the learning curves; into docs/."""
    from benchmarks import pictures as draw  # noqa: PLC0415

    draw.predictions(repository, DOCS)
    draw.paper(repository, DOCS / "paper.png")
    draw.learning(json.loads((DOCS / "research/listops.json").read_text())["rows"], DOCS / "research/listops.png")


@app.command()
def drawing(url: Annotated[str, typer.Option(help="A running service.")] = "http://127.0.0.1:8080") -> None:
    """Draw in the playground of a running service, and record it; into docs/."""
    from benchmarks.drawing import record  # noqa: PLC0415

    record(url, DOCS / "playground.png", DOCS / "drawing.webp")


@app.command()
def accuracy() -> None:
    """Evaluate every trained model: write its card, and draw its best, median and worst fields."""
    for card in sorted(CHECKPOINTS.glob("*/card.json")):
        document = json.loads(card.read_text())
        if document["training"]["epochs"] and "errors" in document and "rollout" not in document:
            command = [sys.executable, "-m", "training", "evaluate", "--write", "--pictures", str(DOCS / "accuracy")]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}  # of the classical solvers
            subprocess.run([*command, str(card.parent)], check=True, env=environment)  # noqa: S603 -- our own command


@app.command()
def compare(
    recipe: Annotated[str, typer.Argument(help="A recipe: a name such as darcy-quick, or a TOML file.")],
    attention: Annotated[str, typer.Option(help="Types to train, such as softmax,kernel-softplus,kernel-oglu2.")],
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per type, with other weights and orders.")] = 1,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key, such as --set fit.epochs=3. Repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the runs.")] = Path("runs/comparison"),
    data: Data = SAMPLES,
    json: Annotated[
        Path | None, typer.Option(help="Write all rows here, after each one; rows that it holds are not trained again.")
    ] = None,
) -> None:
    """Train a recipe with each type of attention on the same samples, and print the scores and costs.

    python -m benchmarks compare listops-quick --attention softmax,kernel-oglu2 --seeds 3 --json listops.json
    """
    from benchmarks import compare as program  # noqa: PLC0415
    from training import recipes  # noqa: PLC0415

    plan = program.Plan(recipes.find(recipe), tuple(overrides or ()), tuple(split(attention)), seeds)
    kept = Kept(json, recipe=plan.recipe.stem, overrides=list(plan.overrides))
    for row in program.compare(plan, kept, out, data):
        typer.echo(f"{row['attention']}, seed {row['seed']}: {row['metric']} {row['score']}", err=True)
    show("listops", {"rows": kept.rows}, title=f"{recipe}: attention types on the same samples")


@app.command("own-data")
def own_data(
    seconds: Times = "300",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network and problem.")] = 1,
    workers: Workers = 1,
    problems: Problems = "heat,darcy,reaction,advection,neuralop",
    data: DataSets = Path("data/own-data"),
    json: Trainings = OWN_DATA,
) -> None:
    """Compare Petrov with other networks on other projects' data, at equal processor time: three hours of a core.

    The number of seeds, times and problems may grow from run to run.
    """
    from benchmarks import own_data as program  # noqa: PLC0415
    from benchmarks import pictures as draw  # noqa: PLC0415

    kept, times = Kept(json), [float(each) for each in split(seconds)]
    report(program.compare(split(problems), times, seeds, kept, data, workers))
    show("own-data", {"rows": kept.rows})
    draw.own_data(kept.rows, json.with_suffix(".png"))


@app.command()
def darcy85(
    seconds: Times = "1200",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network.")] = 1,
    workers: Workers = 1,
    data: DataSets = Path("data/own-data"),
    json: Trainings = DARCY85,
) -> None:
    """Compare networks without a solver on the field's benchmark of Darcy flow, at equal processor time.

    The samples take forty minutes of a core, a seed 100 minutes. Seeds and times may be added from run to run.
    """
    from benchmarks import own_data as program  # noqa: PLC0415

    kept, times = Kept(json), [float(each) for each in split(seconds)]
    report(program.compare(["darcy85"], times, seeds, kept, data, workers, program.ON_DARCY))
    show("darcy85", {"rows": kept.rows})


@app.command()
def amounts(
    problems: Problems = "heat,darcy",
    samples: Annotated[str, typer.Option(help="Numbers of training samples.")] = "50,100,200,400,800",
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 120.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per problem, number of samples and network.")] = 1,
    workers: Workers = 1,
    data: DataSets = Path("data/own-data"),
    json: Trainings = AMOUNTS,
) -> None:
    """Compare Petrov with the best other network of `own-data` after trainings on growing numbers of samples."""
    from benchmarks import own_data as program  # noqa: PLC0415
    from benchmarks import pictures as draw  # noqa: PLC0415

    kept, counts = Kept(json), [int(each) for each in split(samples)]
    report(program.amounts(split(problems), counts, seconds, seeds, kept, Kept(OWN_DATA), data, workers))
    show("amounts", {"rows": kept.rows})
    draw.amounts(kept.rows, json.with_suffix(".png"))


@app.command("few-samples")
def few_samples(
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 60.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per problem and choice.")] = 1,
    workers: Workers = 1,
    data: DataSets = Path("data/own-data"),
    json: Trainings = FEW_SAMPLES,
) -> None:
    """Compare a network with other choices, on few samples at equal processor time."""
    from benchmarks import own_data as program  # noqa: PLC0415

    show("few-samples", {"rows": list(program.choose(seconds, seeds, Kept(json), data, workers))})


@app.command()
def transfer(
    problems: Problems = "heat,darcy",
    samples: Annotated[str, typer.Option(help="Numbers of training samples.")] = "10,50",
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 30.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per problem, number of samples and way.")] = 3,
    workers: Workers = 1,
    data: DataSets = Path("data/own-data"),
    json: Trainings = TRANSFER,
) -> None:
    """Train on few samples from scratch, from an earlier model and after coarse samples, at equal processor time."""
    from benchmarks import transfer as program  # noqa: PLC0415

    kept, counts = Kept(json), [int(each) for each in split(samples)]
    report(program.compare(split(problems), counts, seconds, seeds, kept, data, workers))
    show("transfer", {"rows": kept.rows})


@app.command()
def coverage(
    counts: Annotated[str, typer.Option(help="Numbers of samples.")] = "100,300,1000",
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 30.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per number.")] = 3,
    data: Annotated[Path, typer.Option("--data", help="The folder of the samples, which are made.")] = Path(
        "data/coverage"
    ),
    json: Trainings = COVERAGE,
) -> None:
    """Measure how often the error estimates of models of few samples hold: ten minutes of a core."""
    from benchmarks import coverage as program  # noqa: PLC0415

    kept = Kept(json)
    program.measure([*map(int, split(counts))], seconds, seeds, kept, data)
    show("coverage", {"rows": kept.rows})


@app.command()
def disturbed(
    problems: Problems = "heat,advection",
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 60.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per problem and way.")] = 3,
    data: DataSets = Path("data/own-data"),
    json: Trainings = DISTURBED,
) -> None:
    """Compare trainings that were killed, or slowed by other processes, with undisturbed ones."""
    from benchmarks import disturbed as program  # noqa: PLC0415

    kept = Kept(json)
    report(program.compare(split(problems), seconds, seeds, kept, data))
    show("disturbed", {"rows": kept.rows})


@app.command()
def points(
    seconds: Times = "300",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network and problem.")] = 1,
    workers: Workers = 1,
    problems: Problems = "plates,stars,balls",
    data: Annotated[Path, typer.Option("--data", help="The folder of the meshes; missing ones are made.")] = Path(
        "data/points"
    ),
    json: Trainings = POINTS,
) -> None:
    """Compare Petrov with other networks on meshes and clouds of points, at equal processor time: two hours of a core.

    The number of seeds, times and problems may grow from run to run.
    """
    from benchmarks import points as program  # noqa: PLC0415

    kept, times = Kept(json), [float(each) for each in split(seconds)]
    report(program.compare(split(problems), times, seeds, kept, data, workers))
    show("points", {"rows": kept.rows})


@app.command("mesh-trajectories")
def mesh_trajectories(
    seconds: Annotated[float, typer.Option(min=1, help="The processor time of a training.")] = 300.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network and problem.")] = 1,
    problems: Problems = "heat,drift,cavity",
    networks: Annotated[str, typer.Option(help="Some of the networks, by the beginnings of their names.")] = "",
    data: Annotated[Path, typer.Option("--data", help="The folder of the trajectories; missing ones are made.")] = Path(
        "data/mesh-trajectories"
    ),
    tuning: Annotated[float, typer.Option(min=1, help="The processor time of a training that tunes a network.")] = 25.0,
    frames: Annotated[int, typer.Option(min=50, help="How many frames of rollouts have to be finite.")] = 500,
    json: Trainings = MESH_TRAJECTORIES,
) -> None:
    """Compare Petrov with other networks on trajectories on meshes, at equal processor time.

    The number of seeds, problems and networks may grow from run to run.
    """
    from benchmarks import mesh_trajectories as program  # noqa: PLC0415

    kept, begun = Kept(json), split(networks) or [""]
    titles = [each for each in program.TITLES if each.startswith(tuple(begun))]
    report(program.compare(split(problems), titles, seconds, seeds, kept, data, tuning, frames))
    show("mesh-trajectories", {"rows": kept.rows})


def report(rows: Iterable[Row]) -> None:
    """Print the error of each training as it comes."""
    for row in rows:
        training, result = row["training"], row["result"]
        typer.echo(f"{training['problem']}, {training['title']}, {training['split']}: {result['error']:.2e}", err=True)


@app.command()
def trajectories(
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Processor time of a training; by default 360, on planes 60.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network and set.")] = 1,
    problems: Problems = "ks,vorticity",
    networks: Annotated[str, typer.Option(help="Which networks.")] = "Petrov,FNO,U-Net",
    data: Annotated[Path, typer.Option("--data", help="The folder of the trajectories.")] = Path("data/trajectories"),
    json: Trainings = OWN_TRAJECTORIES,
) -> None:
    """Compare Petrov with other networks on exponax's trajectories, at equal processor time.

    A training takes one to ten minutes. The numbers of seeds, sets and networks may grow from run to run.
    """
    from benchmarks import trajectories as program  # noqa: PLC0415

    kept = Kept(json)
    report(program.compare(split(problems), split(networks), seconds, seeds, kept, data))
    show("trajectories", {"rows": kept.rows})


@app.command()
def rollouts(
    models: Annotated[str, typer.Option(help="Which models.")] = "kuramoto_sivashinsky,navier_stokes",
    checkpoints: Annotated[Path, typer.Option(help="The folder of their checkpoints.")] = CHECKPOINTS,
    data: Data = SAMPLES,
    fno_seconds: Seconds = None,
) -> None:
    """Measure released models of trajectories beside FNO and their solvers on coarser grids."""
    from benchmarks import pictures as draw  # noqa: PLC0415
    from benchmarks import rollouts as program  # noqa: PLC0415

    for name in split(models):
        known = json.loads(TRAJECTORIES.read_text())
        rows = program.measure(name, checkpoints, data, known[name], fno_seconds)
        lasting = program.bounded(program.loaded(checkpoints / name), *program.trajectories(name, data, "validation"))
        keep_trajectories(**{name: rows, f"{name}_bounded": [lasting]})
        show(name, {name: rows})
        draw.rollouts(rows, DOCS / f"{name}.png")


@app.command()
def sizes(
    graph: Annotated[Path, typer.Option(help="A graph on points.")] = CHECKPOINTS / "plate/published/plate/model.onnx",
    quick: Quick = False,
) -> None:
    """Measure time and memory of a model on points against their number, up to a million."""
    from benchmarks import pictures as draw  # noqa: PLC0415
    from benchmarks import sizes as program  # noqa: PLC0415

    rows = [*program.measure(graph, program.SIZES[:2] if quick else program.SIZES)]
    write("sizes", rows, quick=quick)
    for row in rows:
        Console().print(f"{row['points']:>9,} points: {row['seconds']:.4f} s, {row['megabytes']:.0f} MB")
    if not quick:
        draw.sizes(rows, RESULTS / "sizes.png")


def keep_trajectories(**rows: list[Row]) -> None:
    """Write the rows of some comparisons beside those of the others."""
    TRAJECTORIES.write_text(json.dumps(json.loads(TRAJECTORIES.read_text()) | rows, indent=1) + "\n")


def split(text: str | None) -> list[str]:
    """Return the parts of `a,b,c`."""
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def whole(text: str) -> int:
    """Return a length, a positive whole number."""
    if not text.isdecimal() or int(text) == 0:
        raise typer.BadParameter(f"expected positive whole numbers such as 512,1024 but got {text!r}")
    return int(text)


def show(name: str, found: dict[str, Any], title: str | None = None) -> None:
    """Print a table of `benchmarks.tables` with these results, in a narrow terminal a column below the other."""
    from benchmarks.tables import TABLES  # noqa: PLC0415

    table, console = TABLES[name], Console()
    header, rows = [str(each) for each in table.header], [[*map(str, row)] for row in table.cells(found)]
    shown = Table(*header, title=title or table.title)
    for row in rows:
        shown.add_row(*row)
    if console.measure(shown, options=console.options.update(max_width=10_000)).maximum > console.width:
        shown = Table("", "", title=title or table.title, show_header=False)
        for row in rows:
            for column, cell in zip(header, row, strict=True):
                shown.add_row(column, cell)
            shown.add_section()
    console.print(shown)


def main() -> None:
    """Run the command line; an error that the user can correct is one line."""
    from training.messages import UserError  # noqa: PLC0415

    try:
        app(prog_name="python -m benchmarks")
    except UserError as error:
        Console(stderr=True).print(Text(str(error), "red"))
        raise SystemExit(1) from error
