"""The command `python -m benchmarks profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.profiling.forms import FORMS, PUBLISHED
from benchmarks.profiling.measure import measure
from benchmarks.profiling.plot import draw
from benchmarks.profiling.report import Profile, report, write
from benchmarks.profiling.rows import Clock, Settings
from benchmarks.profiling.terminal import skipped, tables


def profile(
    subjects: Annotated[list[str], typer.Argument(help="`attention`, `encoder`, or recipes such as darcy-paper.")],
    types: Annotated[
        str | None,
        typer.Option(help=f"Of {', '.join(FORMS)}. By default {', '.join(PUBLISHED)}; a recipe's own for recipes."),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Tokens, or a grid's points per axis for recipes, such as 512,1024,2048.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples per step; 4, or as the recipe says.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Timed steps; the medians are printed.")] = 5,
    clock: Annotated[
        Clock, typer.Option(help="wall, or processor: the time of the process's own threads, without other programs.")
    ] = "wall",
    dropout: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of the attention; 0, or as the recipe says. Published: 0.5.")
    ] = None,
    limit_gb: Annotated[float, typer.Option(help="Skip forms whose n x n matrices are estimated to be larger.")] = 8.0,
    channels: Annotated[int, typer.Option(min=1, help="Features per token, for attention and encoder.")] = 96,
    heads: Annotated[int, typer.Option(min=1, help="Heads, for attention and encoder.")] = 4,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the encoder.")] = 10,
    json: Annotated[Path | None, typer.Option(help="Write all measurements, exponents and findings here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw time and memory over points here, such as x.png.")] = None,
) -> None:
    """Print memory and time of a training step over the number of points.

    A step is forward, mean squared error to a random target, and backward.
    Types are interleaved, so ratios hold on a busy machine; OMP_NUM_THREADS=1
    and --clock processor make them steadier. Memory is the peak beyond weights
    and input.

    fourier is computed as Q (K^T V), softmax by the fused kernel; with
    -explicit, both as in the paper, with an n x n matrix. Each type's costs
    are fitted as a power of the points. The paper's two claims (memory of
    fourier against softmax, backward time of galerkin against linear) are
    measured at the largest length.

    python -m benchmarks profile attention --batch 1 --lengths 2048,4096,8192

    python -m benchmarks profile encoder --types galerkin,linear --plot x.png

    python -m benchmarks profile darcy-paper burgers-paper --repeats 3
    """
    settings = Settings(
        types=tuple(split(types)) or None,
        lengths=tuple(map(whole, split(lengths))) or None,
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
        draw(found, plot)


def split(text: str | None) -> list[str]:
    """Return the parts of `a,b,c`."""
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def whole(text: str) -> int:
    """Return a length.

    Raises:
        BadParameter: It is no positive whole number.
    """
    if not text.isdecimal() or int(text) == 0:
        raise typer.BadParameter(f"expected positive whole numbers such as 512,1024 but got {text!r}")
    return int(text)


def show(found: Profile) -> None:
    """Print all tables, and the reasons of missing figures."""
    console = Console()
    for table in tables(found):
        console.print(table)
    for reason in skipped(found):
        console.print(reason, style="yellow")
