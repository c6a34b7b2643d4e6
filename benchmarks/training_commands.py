"""The commands that train networks to compare them, and what all commands of `benchmarks` share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.harness import ResultFile, Row

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
MUON = "muon"  # of the presets, and of the networks beside Petrov where it is better; earlier results have AdamW

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


def split(text: str | None) -> list[str]:
    """Return the parts of `a,b,c`."""
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def chosen(names: str, known: Iterable[str]) -> list[str]:
    """Return those of some names that begin with one of `a,b,c`; all where the text is empty."""
    parts = split(names)
    if strange := [each for each in parts if not any(name.startswith(each) for name in known)]:
        raise typer.BadParameter(f"expected some of {', '.join(known)} but got {', '.join(strange)}")
    return [name for name in known if name.startswith(tuple(parts) or "")]


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


def report(name: str, rows: Iterable[Row], kept: ResultFile) -> None:
    """Print the error of each training as it comes, and in the end the table of all that are kept."""
    for row in rows:
        training, result = row["training"], row["result"]
        typer.echo(f"{training['problem']}, {training['title']}, {training['split']}: {result['error']:.2e}", err=True)
    show(name, {"rows": kept.rows})


def keep_trajectories(**rows: list[Row]) -> None:
    """Write the rows of some comparisons beside those of the others."""
    TRAJECTORIES.write_text(json.dumps(json.loads(TRAJECTORIES.read_text()) | rows, indent=1) + "\n")


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

    kept, times = ResultFile(json), [float(each) for each in split(seconds)]
    report("own-data", program.compare(split(problems), times, seeds, kept, data, workers), kept)
    draw.own_data(kept.rows, json.with_suffix(".png"))


def darcy85(
    seconds: Times = "1200",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network.")] = 1,
    workers: Workers = 1,
    data: DataSets = Path("data/own-data"),
    json: Trainings = DARCY85,
) -> None:
    """Compare networks without a solver on the field's benchmark of Darcy flow, at equal processor time.

    The samples take ten minutes of a core, a seed 100 minutes. Seeds and times may be added from run to run.
    """
    from benchmarks import own_data as program  # noqa: PLC0415

    kept, times = ResultFile(json), [float(each) for each in split(seconds)]
    report("darcy85", program.compare(["darcy85"], times, seeds, kept, data, workers, program.ON_DARCY), kept)


def amounts(
    problems: Problems = "heat,darcy",
    samples: Annotated[str, typer.Option(help="Numbers of training samples.")] = "50,100,200,400,800",
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 120.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per problem, number of samples and network.")] = 1,
    workers: Workers = 1,
    data: DataSets = Path("data/own-data"),
    json: Trainings = AMOUNTS,
) -> None:
    """Compare Petrov with the best other network of `own-data`, by its tuning, on growing numbers of samples."""
    from benchmarks import own_data as program  # noqa: PLC0415
    from benchmarks import pictures as draw  # noqa: PLC0415

    kept, counts = ResultFile(json, optimiser=MUON), [int(each) for each in split(samples)]
    report(
        "amounts",
        program.amounts(split(problems), counts, seconds, seeds, kept, ResultFile(OWN_DATA), data, workers),
        kept,
    )
    draw.amounts(kept.rows, json.with_suffix(".png"))


def few_samples(
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 60.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per problem and choice.")] = 1,
    workers: Workers = 1,
    data: DataSets = Path("data/own-data"),
    json: Trainings = FEW_SAMPLES,
) -> None:
    """Compare a network with other choices, on few samples at equal processor time."""
    from benchmarks import own_data as program  # noqa: PLC0415

    show("few-samples", {"rows": list(program.choose(seconds, seeds, ResultFile(json), data, workers))})


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

    kept, counts = ResultFile(json, optimiser=MUON), [int(each) for each in split(samples)]
    report("transfer", program.compare(split(problems), counts, seconds, seeds, kept, data, workers), kept)


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

    kept = ResultFile(json, seconds=seconds)
    program.measure([*map(int, split(counts))], seconds, seeds, kept, data)
    show("coverage", {"rows": kept.rows})


def disturbed(
    problems: Problems = "heat,advection",
    seconds: Annotated[float, typer.Option(help="Processor time of a training.")] = 60.0,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per problem and way.")] = 3,
    data: DataSets = Path("data/own-data"),
    json: Trainings = DISTURBED,
) -> None:
    """Compare trainings that were killed, or slowed by other processes, with undisturbed ones."""
    from benchmarks import disturbed as program  # noqa: PLC0415

    kept = ResultFile(json, optimiser=MUON)
    report("disturbed", program.compare(split(problems), seconds, seeds, kept, data), kept)


def points(
    seconds: Times = "300",
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network and problem.")] = 1,
    workers: Workers = 1,
    problems: Problems = "plates,stars,balls",
    networks: Annotated[str, typer.Option(help="Some of the networks, by the beginnings of their names.")] = "",
    data: Annotated[Path, typer.Option("--data", help="The folder of the meshes; missing ones are made.")] = Path(
        "data/points"
    ),
    json: Trainings = POINTS,
) -> None:
    """Compare Petrov with other networks on meshes and clouds of points, at equal processor time: two hours of a core.

    The number of seeds, times, problems (bodies, too) and networks may grow from run to run.
    """
    from benchmarks import points as program  # noqa: PLC0415

    kept, times = ResultFile(json), [float(each) for each in split(seconds)]
    titles = chosen(networks, program.TITLES)
    report("points", program.compare(split(problems), titles, times, seeds, kept, data, workers), kept)


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

    kept, titles = ResultFile(json), chosen(networks, program.TITLES)
    report(
        "mesh-trajectories", program.compare(split(problems), titles, seconds, seeds, kept, data, tuning, frames), kept
    )


def trajectories(
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Processor time of a training; by default 360, on planes 60 or 300.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per network and set.")] = 1,
    problems: Problems = "ks,vorticity,gray_scott",
    networks: Annotated[str, typer.Option(help="Which networks.")] = "Petrov,FNO,U-Net",
    data: Annotated[Path, typer.Option("--data", help="The folder of the trajectories.")] = Path("data/trajectories"),
    json: Trainings = OWN_TRAJECTORIES,
) -> None:
    """Compare Petrov with other networks on exponax's trajectories, at equal processor time.

    A training takes one to ten minutes. The numbers of seeds, sets and networks may grow from run to run.
    """
    from benchmarks import trajectories as program  # noqa: PLC0415

    kept, titles = ResultFile(json), chosen(networks, program.TITLES)
    report("trajectories", program.compare(split(problems), titles, seconds, seeds, kept, data), kept)


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
