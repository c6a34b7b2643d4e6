"""The targets of the project, and the figures that the last runs reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.report import page
from benchmarks.service import published_network, servers, throughput
from benchmarks.tables import forward, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.report.page import Table

HEADER = ("quantity", "target", "measured")
NONE = "not measured in this run"
GRID = 141


def table() -> Table:
    """Return a row per target; a figure whose run is missing, or lacks its grid, is marked as not measured."""
    return HEADER, [(quantity, target, measured(source, figure)) for quantity, target, source, figure in TARGETS]


def measured(source: str, figure: Callable[[Any], str]) -> str:
    """Return a figure from the results of a run."""
    found = page.read(source)
    try:
        return NONE if found is None else figure(found)
    except LookupError:
        return NONE


def cell(found: Mapping[str, Any], grid: int) -> dict[str, Any]:
    """Return the measured sides at a grid, one field at a time, by their names.

    Raises:
        LookupError: That grid was not measured.
    """
    chosen = next((each for each in found["cells"] if (each["grid"], each["batch"]) == (grid, 1)), None)
    if chosen is None:
        raise LookupError(grid)
    return {side["name"]: side for side in chosen["sides"]} | {"errors": chosen["errors"]}


def speedup(faster: str, slower: str) -> Callable[[Any], str]:
    """Return the figure that says how many times as fast one side is as another at 141."""

    def figure(found: Any) -> str:
        sides = cell(found, GRID)
        return f"{sides[slower]['seconds'] / sides[faster]['seconds']:.1f} times"

    return figure


def above_floor(found: Any) -> str:
    """Return the published network's time in ONNX Runtime, divided by the time of its products alone."""
    sides = cell(found, GRID)
    product = sides[forward.PRODUCT]
    floor = sides[forward.EXACT[0]]["facts"]["flops"] / (product["facts"]["work"] / product["seconds"])
    return f"{sides[forward.RUNTIME]['seconds'] / floor:.2f} of the floor"


def beside(solver: str) -> Callable[[Any], str]:
    """Return the figure that has the speed of the released network beside a solver, with both errors."""

    def figure(found: Any) -> str:
        network, other = (cell(found, GRID)["errors"][name] for name in (forward.RELEASED, solver))
        return f"{speedup(forward.RELEASED, solver)(found)}, errors {network:.1e} and {other:.1e}"

    return figure


def point_cost(name: str) -> Callable[[Any], str]:
    """Return the figure that divides the time per point at 421 by that at 85."""

    def figure(found: Any) -> str:
        fine, coarse = (cell(found, grid)[name]["seconds"] / grid**2 for grid in (421, 85))
        return f"{fine / coarse:.2f}"

    return figure


def inversion(found: Any) -> str:
    """Return the speed of the inverse network beside the adjoint inversion, per level of noise."""
    rows = [row for row in found["solvers"] if row["model"] == "darcy_inverse"]
    return "; ".join(
        f"{row['solver_seconds'] / row['network_seconds']:.0f} times ({row['input'].partition(', ')[2]}: errors "
        f"{row['network_error']:.1e} and {row['solver_error']:.1e})"
        for row in rows
    )


def training(name: str) -> Callable[[Any], str]:
    """Return the figure of the speed and memory of one side's training step, per recipe."""

    def figure(found: Any) -> str:
        parts = []
        for recipe, sides in found["steps"].items():
            reference, own = ({side["name"]: side for side in sides}[each] for each in (steps.REFERENCE, name))
            memory = (own["peak"] - own["before"]) / (reference["peak"] - reference["before"])
            parts.append(f"{recipe}: {reference['seconds'] / own['seconds']:.1f} times, {memory:.0%} of the memory")
        return "; ".join(parts)

    return figure


def served(found: Any) -> str:
    """Return the gateway's throughput divided by the naive service's, per format."""
    rate = {
        each["route"]: each["fields_per_second"]
        for each in found["loads"]
        if (each["grids"], each["in_flight"]) == (1, 16)
    }
    return "; ".join(
        f"{kind}: {rate[f'{throughput.GATEWAY}, {kind}'] / rate[f'{servers.NAIVE}, {kind}']:.1f} times"
        for kind in ("npy", "JSON")
    )


def kept(found: Any) -> str:
    """Return each route's share of ONNX Runtime's own throughput."""
    rates = dict(found["kept"])
    most = rates.pop(published_network.ALONE)
    return "; ".join(f"{name}: {rate / most:.0%}" for name, rate in rates.items())


def claims(found: Any) -> str:
    """Return what was measured for the paper's claims."""
    return "; ".join(f"{claim['title']}: {claim['found']:.0%}" for claim in found["profile"]["claims"])


def overhead(grid: int, column: str, unit: str) -> Callable[[Any], str]:
    """Return the figure of the time that the gateway adds to the identity model, per route.

    Args:
        grid: Points per axis.
        column: The column of the table `overhead`.
        unit: The unit of that column.
    """

    def figure(found: Any) -> str:
        rows = [row for row in found["rows"] if row["grid"] == f"{grid} x {grid}"]
        routes = {row["route to the identity model"].removeprefix("gateway, "): row[column] for row in rows}
        return "; ".join(f"{route}: {routes[route]} {unit}" for route in ("npy over HTTP", "gRPC"))

    return figure


def mixed(found: Any) -> str:
    """Return batches and throughput of four grids, as shares of those of one, per model."""
    rows = [row for row in found["rows"] if row["route"] == "gateway"]
    return "; ".join(f"{row['model']}: {row['batch, share']} and {row['fields/s, share']}" for row in rows)


def soaked(found: Any) -> str:
    """Return the errors, losses and growth of memory of a long load."""
    figures = {row["quantity"]: row["figure"] for row in found["rows"]}
    slopes = (figures[f"{part}: slope of the memory in the second half, MiB/h"] for part in ("gateway", "Triton"))
    counts = (f"{figures[name]} {name}" for name in ("requests", "errors", "lost"))
    return f"{', '.join(counts)}; memory {', '.join(slopes)} MiB/h"


#: The quantity, its target, the run that measures it, and the function that reads it from the run's results.
TARGETS: tuple[tuple[str, str, str, Callable[[Any], str]], ...] = (
    (
        "published network at 141, ONNX Runtime, against reference eager",
        "2.5 times",
        "forward",
        speedup(forward.RUNTIME, forward.REFERENCE),
    ),
    ("the same, divided by the time of its matrix products", "at most 1.3", "forward", above_floor),
    ("released `darcy` against reference eager", "8 times", "forward", speedup(forward.RELEASED, forward.REFERENCE)),
    ("released `darcy` against splu, at equal or lower error", "4 times", "forward", beside(forward.LU)),
    (
        f"the same against conjugate gradients that stop after {forward.STEPS} steps, at the error of the grid",
        "none",
        "forward",
        beside(forward.STOPPED),
    ),
    ("inverse against adjoint inversion, at equal or lower error", "100 times", "solvers", inversion),
    (
        "the published networks' training step against reference",
        "5 times, half the memory",
        "steps",
        training(steps.PETROV),
    ),
    ("the released networks' training step against it", "5 times, half the memory", "steps", training(steps.RELEASED)),
    ("service against the naive service, 16 in flight", "2 times", "service", served),
    ("share of ONNX Runtime's own throughput, published network at 141", "85 %", "service", kept),
    (
        "time that the gateway adds to Triton's, identity model at 141",
        "at most 2 ms",
        "overhead",
        overhead(141, "more than Triton, ms", "ms"),
    ),
    ("the same at 421", "at most 1.3 times", "overhead", overhead(421, "times Triton", "times")),
    ("four grids against one, 16 in flight: batches and throughput", "60 % and 90 %", "mixed-grids", mixed),
    ("an hour at 80 % of the capacity", "no error, no loss, flat memory", "soak", soaked),
    (
        "time per point at 421 divided by that at 85, published network",
        "at most 1.1",
        "forward",
        point_cost(forward.RUNTIME),
    ),
    (
        "Fourier against softmax memory, as published and best; Galerkin against linear, backward",
        "33 % and 98 % less; twice as fast",
        "attention",
        claims,
    ),
)
