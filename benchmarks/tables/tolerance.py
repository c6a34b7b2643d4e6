"""What a tolerance costs: more iterations of the network's own equation, beside the classical solver.

The released `darcy` stops after a fixed number of conjugate gradients. With more of them its bound falls to the
rounding of single precision. `?tolerance=` is met by the classical solver, which solves the equation without
corrections. Times are processor times of one field alone on one thread, the network before its export.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import physics.darcy
from physics.norms import relative_l2
from training import checkpoint
from training.evaluation import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.report.page import Table
    from training.operators import Operator
    from training.operators.elliptic import EllipticConfig

    Solve = Callable[[NDArray[np.float32]], tuple[NDArray[Any], float]]

SEED = 6_000
GRIDS, QUICK_GRIDS = (85, 141, 421), (85,)
FIELDS, QUICK_FIELDS = 8, 2
STEPS = (7, 10, 14, 20, 28)
HEADER = ("grid", "fields", "method", "largest error_bound", "error", "ms")


@dataclass(frozen=True)
class Row:
    """A method on a grid: its largest bound, its mean relative L2 error, and its median seconds per field."""

    grid: int
    fields: int
    method: str
    bound: float
    error: float
    seconds: float


def measure(folder: Path, *, quick: bool) -> list[Row]:
    """Measure every method on every grid.

    Args:
        folder: The checkpoint of the network.
        quick: Fewer fields and grids.
    """
    network = checkpoint.load_operator(folder).operator
    samples = [physics.darcy.sample(SEED + n) for n in range(QUICK_FIELDS if quick else FIELDS)]
    with threadpool_limits(1), torch.inference_mode():
        return [row for points in (QUICK_GRIDS if quick else GRIDS) for row in rows(network, points, samples)]


def rows(network: Operator, points: int, samples: list[tuple[NDArray[Any], NDArray[Any]]]) -> Iterator[Row]:
    """Yield the rows of a grid.

    Args:
        network: The network.
        points: Points per axis.
        samples: Coefficients and solutions on the whole mesh.
    """
    inputs, truth = (np.stack([physics.darcy.restrict(pair[part], points) for pair in samples]) for part in range(2))
    config = cast("EllipticConfig", network.config)
    for steps in STEPS:
        network.config = config.model_copy(update={"steps": steps})
        yield row(points, f"network, {steps} iterations", iterated(network), inputs, truth)
    network.config = config
    yield row(points, "classical solver", solved, inputs, truth)


def iterated(network: Operator) -> Solve:
    """Return a network as a map of a coefficient to its solution and its bound."""

    def solve(coefficient: NDArray[np.float32]) -> tuple[NDArray[Any], float]:
        solution, bound, *_ = network.with_quality(torch.from_numpy(coefficient)[None])
        return solution[0].numpy(), bound.item()

    return solve


def solved(coefficient: NDArray[np.float32]) -> tuple[NDArray[Any], float]:
    """Return the solution of the classical solver as the gateway sends it, in float32, and its bound."""
    found = physics.darcy.solve(coefficient).astype(np.float32)
    return found, physics.darcy.bound(coefficient, found)


def row(points: int, name: str, method: Solve, inputs: NDArray[Any], truth: NDArray[Any]) -> Row:
    """Run a method on every field.

    Args:
        points: Points per axis.
        name: Its name.
        method: Maps a coefficient to its solution and a bound.
        inputs: The coefficients.
        truth: The solutions on the whole mesh, at the grid's points.
    """
    method(inputs[0].astype(np.float32))
    seconds, found, bounds = [], [], []
    for coefficient in inputs.astype(np.float32):
        begun = time.process_time()
        solution, bound = method(coefficient)
        seconds.append(time.process_time() - begun)
        found.append(solution)
        bounds.append(bound)
    error = float(relative_l2(np.stack(found), truth).mean())
    return Row(points, len(inputs), name, max(bounds), error, statistics.median(seconds))


def document(found: list[Row]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"rows": [asdict(each) for each in found]}


def tables(found: list[Row]) -> dict[str, Table]:
    """Return the page's table."""
    return {"tolerance": (HEADER, [cells(each) for each in found])}


def cells(each: Row) -> tuple[str, ...]:
    """Return a row of the table."""
    grid = f"{each.grid} x {each.grid}"
    error, milliseconds = table.scientific(each.error), f"{1e3 * each.seconds:.0f}"
    return (grid, str(each.fields), each.method, f"{each.bound:.1e}", error, milliseconds)
