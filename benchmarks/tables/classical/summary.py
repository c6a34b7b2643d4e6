"""The README's table: each network beside the best classical method at its accuracy.

`pareto` has measured `darcy` and `burgers`, `solvers` the inverse problem, each in one run on the same fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.tables.classical.pareto import Point
from training.evaluation import table

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER = ("model", "input", "fields", "network error", "network ms", "baseline", "baseline error", "baseline ms")
CLOSE = 1.05  # of the least error: what is more exact than that is not worth its time
INVERSION = "total variation"


def rows(pareto: Mapping[str, Any], solvers: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per model and input.

    Args:
        pareto: The results of `pareto`.
        solvers: The results of `solvers`, of which the inverse problem is shown.

    Returns:
        Cells in the order of `HEADER`: mean relative L2 errors, and milliseconds of processor time per field.
    """
    points = [Point(**each) for each in pareto["points"]]
    networks = [each for each in points if each.method == "network"]
    inverse = [each for each in solvers["solvers"] if each["model"] == "darcy_inverse"]
    return [*(beside(each, points) for each in networks), *map(inversion, inverse)]


def beside(network: Point, points: list[Point]) -> tuple[str, ...]:
    """Return the row of a network that was measured by `pareto`."""
    same = [each for each in points if (each.model, each.input) == (network.model, network.input)]
    best = baseline(network, [each for each in same if each is not network])
    return (
        network.model,
        network.input,
        str(network.fields),
        table.scientific(network.error),
        milliseconds(network.seconds),
        best.method,
        table.scientific(best.error),
        milliseconds(best.seconds),
    )


def baseline(network: Point, methods: list[Point]) -> Point:
    """Return the fastest classical method that is as accurate as the network, or else nearly the most accurate one."""
    enough = max(network.error, CLOSE * min(each.error for each in methods))
    return min((each for each in methods if each.error <= enough), key=lambda each: each.seconds)


def inversion(both: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the row of the inverse problem at one level of noise."""
    return (
        both["model"],
        both["input"],
        str(both["fields"]),
        table.scientific(both["network_error"]),
        milliseconds(both["network_seconds"]),
        INVERSION,
        table.scientific(both["solver_error"]),
        milliseconds(both["solver_seconds"]),
    )


def milliseconds(seconds: float) -> str:
    """Return milliseconds with two digits, or without decimals and with a separator of thousands."""
    return f"{1e3 * seconds:,.0f}" if seconds >= 0.01 else f"{1e3 * seconds:.2g}"
