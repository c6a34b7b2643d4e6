"""The commands that measure the tables and pictures of the documentation; each imports its program when it runs.

Those that train networks to compare them are in `benchmarks.training_commands`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from benchmarks import training_commands
from benchmarks.harness import RESULTS, ResultFile, read, write
from benchmarks.training_commands import (
    CHECKPOINTS,
    DOCS,
    EXPORTED,
    INVERSION,
    MODELS,
    SAMPLES,
    TRITON_PYTHON,
    Data,
    Quick,
    Repository,
    show,
    split,
    whole,
)

app = typer.Typer(
    help="Measure the tables and pictures of the documentation.\n\nWithout a command, what needs no training, no data "
    "and one node is measured (`make bench`). Full runs write docs/bench/*.json, from which `pages` writes the tables; "
    "quick ones write runs/bench-quick.",
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


@app.callback(invoke_without_command=True)
def everything(context: typer.Context, repository: Repository = EXPORTED, quick: Quick = False) -> None:
    """Measure what needs no training, no data and one node, unless a command is given."""
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

    chosen = tuple(split(models))
    if unknown := {*chosen} - {*program.MODELS}:
        raise typer.BadParameter(f"expected models among {MODELS} but got {', '.join(sorted(unknown))}")
    known = [] if quick or models == MODELS else read("methods")["rows"]
    kept = [row for row in known if row["model"] not in chosen]
    measured = [*kept, *program.measure(repository, chosen, quick=quick)]
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

    A step is forward and backward on one thread, in processor time. Memory is the
    peak beyond weights and input. The costs of each type are fitted as a power of
    the tokens. fourier is computed as Q (K^T V), softmax by the fused kernel;
    fourier-explicit and softmax-explicit as in the paper, with an n x n matrix. A
    profile of other types, lengths, steps or channels than by default is printed,
    and written with --json.

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

    kept = ResultFile(None if quick else INVERSION, **program.FACTS)
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
    """Evaluate every trained model of drawn fields: write its card, and draw its best, median and worst fields."""
    for card in sorted(CHECKPOINTS.glob("*/card.json")):
        document, recipe = json.loads(card.read_text()), json.loads((card.parent / "config.json").read_text())["recipe"]
        drawn = recipe.get("data") is not None  # else its samples are a user's files, or trajectories
        if drawn and document["training"]["epochs"] and "errors" in document:
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
    kept = ResultFile(json, recipe=plan.recipe.stem, overrides=list(plan.overrides))
    for row in program.compare(plan, kept, out, data):
        typer.echo(f"{row['attention']}, seed {row['seed']}: {row['metric']} {row['score']}", err=True)
    show("listops", {"rows": kept.rows}, title=f"{recipe}: attention types on the same samples")


for command in (
    training_commands.own_data,
    training_commands.darcy85,
    training_commands.amounts,
    training_commands.few_samples,
    training_commands.transfer,
    training_commands.coverage,
    training_commands.disturbed,
    training_commands.points,
    training_commands.mesh_trajectories,
    training_commands.trajectories,
    training_commands.rollouts,
):
    app.command()(command)


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


def main() -> None:
    """Run the command line; an error that the user can correct is one line."""
    from training.messages import UserError  # noqa: PLC0415

    try:
        app(prog_name="python -m benchmarks")
    except UserError as error:
        Console(stderr=True).print(Text(str(error), "red"))
        raise SystemExit(1) from error
