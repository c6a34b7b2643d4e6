"""The commands that measure the tables of the documentation and write them into its pages."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import (
    accuracy,
    aims,
    breakeven,
    charts,
    forward,
    headlines,
    latency,
    load,
    mixed_grids,
    overhead,
    page,
    picture,
    readme,
    settings,
    soak,
    solvers,
    steps,
    summary,
)
from benchmarks.profiling.plot import draw as draw_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKPOINTS = Path("checkpoints")
PAGE, PICTURES = Path("docs/accuracy.md"), Path("docs/accuracy")
ABLATION, NEURALOP = Path("docs/ablation.json"), Path("docs/neuralop.json")
PROFILE = Path("docs/profile.png")

Repository = Annotated[Path, typer.Option(help="Exported models.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer grids, batches and turns.")]
MODELS = Path("model_repository")
HOUR = 60.0  # minutes of a full soak, which `make bench` leaves out

app = typer.Typer(help=__doc__)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    repository: Repository = MODELS,
    quick: Quick = False,
) -> None:
    """Measure everything that the README and docs/ print, or what the command names."""
    if context.invoked_subcommand is not None:
        return
    if not quick:
        tell_readme(repository)
        tell_overhead()
        tell_mixed_grids(repository)
    with TemporaryDirectory() as folder:
        write_forward(repository, Path(folder), quick=quick)
        tell_steps(quick)
        [(points, _)] = load.ONE  # the grid of the published network that the service is asked for
        write_service(repository, forward.graph(Path(folder), points), quick=quick)
    tell_headlines(quick)
    tell_solvers(repository, quick)
    tell_breakeven(quick)
    if not quick:
        tell_summary()


def tell_readme(repository: Path) -> None:
    """Draw the pictures of single fields, and write settings, errors and the times of one prediction."""
    picture.draw_darcy(repository, Path("docs/darcy.png"))
    picture.draw_inverse(repository, Path("docs/darcy_inverse.png"))
    tell_settings()
    tell_accuracy()
    publish("latency", latency.HEADER, latency.rows(repository))


@app.command("accuracy")
def tell_accuracy(
    measure: Annotated[bool, typer.Option("--measure", help="Measure first: minutes, and the test sets.")] = False,
) -> None:
    """Write the released models' errors and times into docs/accuracy.md, from their cards."""
    if measure:
        accuracy.measure(CHECKPOINTS, PICTURES)
    accuracy.write_page(PAGE, CHECKPOINTS, ABLATION, NEURALOP)


@app.command("summary")
def tell_summary() -> None:
    """Write the README's table from the cards and from what `forward` and `solvers` measured."""
    first, fifth = measured()
    publish("summary", summary.HEADER, summary.rows(CHECKPOINTS, first, fifth))


@app.command("settings")
def tell_settings() -> None:
    """Write the service's settings into docs/settings.md."""
    publish("settings", settings.HEADER, settings.rows())


@app.command("overhead")
def tell_overhead() -> None:
    """Measure what the gateway adds to an answer; into docs/benchmarks.md."""
    put_table("overhead", overhead.HEADER, overhead.rows())


@app.command("mixed-grids")
def tell_mixed_grids(repository: Repository = MODELS) -> None:
    """Measure batches and throughput of one grid and of four; into docs/benchmarks.md."""
    put_table("mixed-grids", mixed_grids.HEADER, mixed_grids.rows(repository))


@app.command("soak")
def tell_soak(
    repository: Repository = MODELS,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 60.0,
) -> None:
    """Load a service for a while; into docs/benchmarks.md. The exit status is 1 after an error or a loss."""
    report = soak.measure(repository, minutes)
    put_table("soak", soak.HEADER, report.rows(), quick=minutes < HOUR)
    raise typer.Exit(0 if report.whole else 1)


@app.command("forward")
def tell_forward(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Measure the Darcy operator's forward pass beside every alternative; into docs/benchmarks.md."""
    with TemporaryDirectory() as folder:
        write_forward(repository, Path(folder), quick=quick)


def write_forward(repository: Path, folder: Path, *, quick: bool) -> None:
    """Do what `tell_forward` says; the folder keeps the exported networks."""
    found = forward.measure(forward.QUICK if quick else forward.FULL, repository, folder)
    charts.draw_forward(found, page.FOLDER / "forward.png")
    put("forward", forward.document(found), forward.tables(found), quick=quick)


@app.command("steps")
def tell_steps(quick: Quick = False) -> None:
    """Measure a training step of the paper recipes beside the reference's; into docs/benchmarks.md."""
    found = steps.measure(quick=quick)
    put("steps", steps.document(found), steps.tables(found), quick=quick)


@app.command("service")
def tell_service(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Load the service, a naive one and LitServe; into docs/benchmarks.md."""
    write_service(repository, None, quick=quick)


def write_service(repository: Path, graph: Path | None, *, quick: bool) -> None:
    """Do what `tell_service` says, with the published network's graph if there is one."""
    found = load.measure(load.QUICK if quick else load.FULL, repository, graph)
    charts.draw_service(found, page.FOLDER / "service.png")
    put("service", load.document(found), load.tables(found), quick=quick)


@app.command("headlines")
def tell_headlines(quick: Quick = False) -> None:
    """Profile the attentions for the paper's claims; into docs/benchmarks.md and, unless quick, docs/layers.md."""
    found = headlines.measure(quick=quick)
    put("headlines", headlines.document(found), headlines.tables(found), quick=quick)
    if not quick:
        publish("layers", headlines.LAYERS, headlines.layers(found))
        draw_profile(found, PROFILE)


@app.command("solvers")
def tell_solvers(repository: Repository = MODELS, quick: Quick = False) -> None:
    """Measure the inverse and Burgers networks beside their solvers; into docs/benchmarks.md."""
    found = solvers.measure(repository, quick=quick)
    put("solvers", solvers.document(found), solvers.tables(found), quick=quick)


@app.command("breakeven")
def tell_breakeven(quick: Quick = False) -> None:
    """Say how many solves repay each model, from what `forward` and `solvers` measured; into docs/benchmarks.md."""
    first, fifth = measured()
    found = breakeven.measure(CHECKPOINTS, first, fifth)
    put("breakeven", breakeven.document(found), breakeven.tables(found), quick=quick)


def measured() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `forward` and `solvers` measured last.

    Raises:
        BadParameter: One of them has not run.
    """
    first, fifth = (page.read(name) for name in ("forward", "solvers"))
    if first is None or fifth is None:
        raise typer.BadParameter("expected figures of `forward` and `solvers`: run these first")
    return first, fifth


def put(name: str, document: dict[str, Any], tables: dict[str, page.Table], *, quick: bool) -> None:
    """Show a run's tables and publish them."""
    for header, rows in tables.values():
        show(header, rows)
    page.publish(name, document, tables, quick=quick)
    readme.write(page.PAGE, "aims", *aims.table())


def put_table(name: str, header: tuple[str, ...], rows: list[tuple[str, ...]], *, quick: bool = False) -> None:
    """Show and publish a run that is one table: a document a row."""
    document = {"rows": [dict(zip(header, row, strict=True)) for row in rows]}
    put(name, document, {name: (header, rows)}, quick=quick)


def publish(name: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Show a table and write it into the page that holds it."""
    show(header, rows)
    readme.write(readme.page_of(name), name, header, rows)


def show(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table."""
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    app()
