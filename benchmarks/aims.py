"""What was aimed at: takes the figures of all tables that have run, gives what each aim reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import forward, load, page, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.page import Table

HEADER = ("aim", "wanted", "reached")
NONE = "not measured in this run"
GRID = 141

Figures = "Mapping[str, Any]"


def table() -> Table:
    """Lay out every aim; one whose table has not run, or not at its grid, is said to be unmeasured."""
    return HEADER, [(aim, wanted, reached(source, figure)) for aim, wanted, source, figure in AIMS]


def reached(source: str, figure: Callable[[Any], str]) -> str:
    """Give an aim's figure out of the run it stands in."""
    found = page.read(source)
    try:
        return NONE if found is None else figure(found)
    except LookupError:
        return NONE


def cell(found: Mapping[str, Any], grid: int) -> dict[str, Any]:
    """Give the sides at a grid, one field at a time.

    Raises:
        LookupError: that grid was not measured.
    """
    chosen = next((each for each in found["cells"] if (each["grid"], each["batch"]) == (grid, 1)), None)
    if chosen is None:
        raise LookupError(grid)
    return {side["name"]: side for side in chosen["sides"]} | {"errors": chosen["errors"]}


def times(faster: str, slower: str) -> Callable[[Any], str]:
    """Give how many times as fast one side is as another at 141."""

    def figure(found: Any) -> str:
        sides = cell(found, GRID)
        return f"{sides[slower]['seconds'] / sides[faster]['seconds']:.1f} times"

    return figure


def above_floor(found: Any) -> str:
    """Give the published network's time in ONNX Runtime over its floor."""
    sides = cell(found, GRID)
    product = sides[forward.PRODUCT]
    floor = sides[forward.EXACT[0]]["facts"]["flops"] / (product["facts"]["work"] / product["seconds"])
    return f"{sides[forward.RUNTIME]['seconds'] / floor:.2f} of the floor"


def beside_lu(found: Any) -> str:
    """Give the released network beside the sparse LU, with both errors."""
    errors = cell(found, GRID)["errors"]
    ours, theirs = errors[forward.RELEASED], errors[forward.LU]
    return f"{times(forward.RELEASED, forward.LU)(found)}, errors {ours:.1e} and {theirs:.1e}"


def point_cost(name: str) -> Callable[[Any], str]:
    """Give the time of a point at 421 over that at 85."""

    def figure(found: Any) -> str:
        fine, coarse = (cell(found, grid)[name]["seconds"] / grid**2 for grid in (421, 85))
        return f"{fine / coarse:.2f}"

    return figure


def inversion(found: Any) -> str:
    """Give the inverse network beside the adjoint inversion, each level of noise."""
    rows = [row for row in found["solvers"] if row["model"] == "darcy_inverse"]
    return "; ".join(
        f"{row['solver_seconds'] / row['network_seconds']:.0f} times ({row['asked'].partition(', ')[2]}: errors "
        f"{row['network_error']:.1e} and {row['solver_error']:.1e})"
        for row in rows
    )


def training(who: str) -> Callable[[Any], str]:
    """Give speed and memory of somebody's step, recipe by recipe."""

    def figure(found: Any) -> str:
        parts = []
        for name, sides in found["steps"].items():
            theirs, ours = ({side["name"]: side for side in sides}[each] for each in (steps.REFERENCE, who))
            memory = (ours["peak"] - ours["before"]) / (theirs["peak"] - theirs["before"])
            parts.append(f"{name}: {theirs['seconds'] / ours['seconds']:.1f} times, {memory:.0%} of the memory")
        return "; ".join(parts)

    return figure


def served(found: Any) -> str:
    """Give the gateway's throughput over the naive service's, format by format."""
    rate = {
        each["road"]: each["fields_per_second"]
        for each in found["loads"]
        if (each["grids"], each["in_flight"]) == (1, 16)
    }
    return "; ".join(
        f"{kind}: {rate[f'{load.GATEWAY}, {kind}'] / rate[f'{load.NAIVE}, {kind}']:.1f} times"
        for kind in ("npy", "JSON")
    )


def kept(found: Any) -> str:
    """Give the shares of ONNX Runtime's own throughput."""
    rates = dict(found["kept"])
    most = rates.pop(load.ALONE)
    return "; ".join(f"{name}: {rate / most:.0%}" for name, rate in rates.items())


def headlines(found: Any) -> str:
    """Give the answers to the paper's claims."""
    claims = found["profile"]["headlines"]
    return "; ".join(f"{claim['title']}: {claim['found']:.0%}" for claim in claims)


def overhead(grid: int, column: str, unit: str) -> Callable[[Any], str]:
    """Give what the gateway adds to the identity's answer, road by road."""

    def figure(found: Any) -> str:
        rows = [row for row in found["rows"] if row["grid"] == f"{grid} x {grid}"]
        roads = {row["road to the identity's answer"].removeprefix("gateway, "): row[column] for row in rows}
        return "; ".join(f"{road}: {roads[road]} {unit}" for road in ("npy over HTTP", "gRPC"))

    return figure


def mixed(found: Any) -> str:
    """Give batches and throughput of four grids beside those of one, model by model."""
    rows = [row for row in found["rows"] if row["road"] == "gateway"]
    return "; ".join(f"{row['model']}: {row['of it']} and {row['of them']}" for row in rows)


def soaked(found: Any) -> str:
    """Give what became of the requests of a long load."""
    figures = {row["what"]: row["figure"] for row in found["rows"]}
    slopes = (figures[f"{part}: its slope in the second half, MiB/h"] for part in ("gateway", "Triton"))
    told = (f"{figures[word]} {word}" for word in ("requests", "errors", "lost"))
    return f"{', '.join(told)}; memory {', '.join(slopes)} MiB/h"


#: What, how much, in which run's figures, and how it is read from them.
AIMS: tuple[tuple[str, str, str, Callable[[Any], str]], ...] = (
    (
        "published network at 141, ONNX Runtime, against reference eager",
        "2.5 times",
        "forward",
        times(forward.RUNTIME, forward.REFERENCE),
    ),
    ("the same, time over the floor of its products", "at most 1.3", "forward", above_floor),
    ("released `darcy` against reference eager", "8 times", "forward", times(forward.RELEASED, forward.REFERENCE)),
    ("released `darcy` against splu, at equal or lower error", "4 times", "forward", beside_lu),
    ("inverse against adjoint inversion, at equal or lower error", "100 times", "solvers", inversion),
    (
        "the published networks' training step against reference",
        "5 times, half the memory",
        "steps",
        training(steps.OURS),
    ),
    ("the released networks' training step against it", "5 times, half the memory", "steps", training(steps.RELEASED)),
    ("service against the naive service, 16 in flight", "2 times", "service", served),
    ("of ONNX Runtime's throughput kept, published network at 141", "85 %", "service", kept),
    (
        "what the gateway adds to Triton's answer, identity at 141",
        "at most 2 ms",
        "overhead",
        overhead(141, "more than Triton, ms", "ms"),
    ),
    ("the same at 421", "at most 1.3 times", "overhead", overhead(421, "times Triton", "times")),
    ("four grids against one, 16 in flight: batches and throughput", "60 % and 90 %", "mixed-grids", mixed),
    ("an hour at 80 % of the capacity", "no error, no loss, flat memory", "soak", soaked),
    ("time a point at 421 over 85, published network", "at most 1.1", "forward", point_cost(forward.RUNTIME)),
    (
        "Fourier against softmax memory, as published and best; Galerkin against linear, backward",
        "33 % and 98 % less; twice as fast",
        "headlines",
        headlines,
    ),
)
