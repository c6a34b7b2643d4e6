"""The command `python -m training profile`: takes options, prints tables, writes JSON and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.profiling.forms import FORMS, PUBLISHED
from benchmarks.profiling.measure import ProfileError, measure
from benchmarks.profiling.report import Profile, report, write
from benchmarks.profiling.rows import Clock, Settings
from benchmarks.profiling.table import skipped, tables


def profile(
    subjects: Annotated[list[str], typer.Argument(help="`attention`, `encoder`, or recipes such as darcy-paper.")],
    types: Annotated[
        str | None,
        typer.Option(help=f"Of {', '.join(FORMS)}. By default {', '.join(PUBLISHED)}; a recipe's own for recipes."),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Tokens, or a grid's points per axis for recipes, such as 512,1024,2048.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a step; 4, or as the recipe says.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Timed steps; medians are shown.")] = 5,
    clock: Annotated[
        Clock, typer.Option(help="wall, or processor: the threads' own time, which other programs do not lengthen.")
    ] = "wall",
    dropout: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of the attention; 0, or as the recipe says. Published: 0.5.")
    ] = None,
    limit_gb: Annotated[float, typer.Option(help="Skip what needs larger n x n matrices, as estimated.")] = 8.0,
    channels: Annotated[int, typer.Option(min=1, help="Features of a token, for attention and encoder.")] = 96,
    heads: Annotated[int, typer.Option(min=1, help="For attention and encoder.")] = 4,
    layers: Annotated[int, typer.Option(min=1, help="Of the encoder.")] = 10,
    json: Annotated[Path | None, typer.Option(help="Write all samples, exponents and headlines here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw time and memory over points here, such as x.png.")] = None,
) -> None:
    """Print memory and time of a training step over the number of points.

    A step is forward, mean squared error to a random target, and backward.
    Types take turns, so ratios hold on a busy machine; OMP_NUM_THREADS=1 and
    --clock processor make them steadier. Memory is the peak beyond weights and
    input.

    fourier is computed as Q (K^T V), softmax by the fused kernel; with
    -explicit, both as in the paper, with an n x n matrix. Each type's costs
    are fitted as a power of the points, and the paper's two claims (memory of
    fourier against softmax, backward time of galerkin against linear) are
    answered at the largest length.

    python -m training profile attention --batch 1 --lengths 2048,4096,8192

    python -m training profile encoder --types galerkin,linear --plot x.png

    python -m training profile darcy-paper burgers-paper --repeats 3
    """
    settings = Settings(
        types=tuple(words(types)) or None,
        lengths=tuple(map(whole, words(lengths))) or None,
        batch=batch,
        device=device,
        repeats=repeats,
        clock=clock,
        dropout=dropout,
        limit_gb=limit_gb,
        channels=channels,
        heads=heads,
        layers=layers,
    )
    found = report(settings, measure(subjects, settings))
    show(found)
    if json:
        write(found, json)
    if plot:
        picture(found, plot)


def words(text: str | None) -> list[str]:
    """Split `a,b,c`."""
    return [word.strip() for word in text.split(",") if word.strip()] if text else []


def whole(word: str) -> int:
    """Read a length."""
    if not word.isdecimal() or int(word) == 0:
        raise typer.BadParameter(f"expected positive whole numbers such as 512,1024 but got {word!r}")
    return int(word)


def show(found: Profile) -> None:
    """Print all tables, and why figures are missing."""
    console = Console()
    for table in tables(found):
        console.print(table)
    for reason in skipped(found):
        console.print(reason, style="yellow")


def picture(found: Profile, target: Path) -> None:
    """Draw a profile; the library for it comes with the development environment only."""
    try:
        from benchmarks.profiling.plot import draw  # noqa: PLC0415 -- training itself needs no matplotlib
    except ModuleNotFoundError as error:
        raise ProfileError(f"--plot needs {error.name}, which is not installed: pip install {error.name}") from error
    draw(found, target)
