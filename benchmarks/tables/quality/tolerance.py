"""What a tolerance costs: the released graph, its refinement, the classical solver; and how bounds fall by iteration.

The responses are those of the gateway's routes: the model alone, the model and then `darcy_refined`, the model and then
the classical solver, which solves the equation without corrections. The released graphs run in ONNX Runtime. Times are
processor times of one field alone on one thread.
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
from benchmarks.repository import one_thread
from export.released import FOLDER, GRAPH
from physics.families import FAMILIES
from physics.numerics.grid import axis
from physics.numerics.norms import relative_l2
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
HEADER = ("grid", "fields", "response", "largest error_bound", "error", "ms")
STEPS = (7, 10, 14, 20, 28)
POINTS, DRAWS = 141, 2  # of the table of families


@dataclass(frozen=True)
class Row:
    """A response on a grid: its largest bound, its mean relative L2 error, and its median seconds per field."""

    grid: int
    fields: int
    method: str
    bound: float
    error: float
    seconds: float


@dataclass(frozen=True)
class Family:
    """The largest bound on fields of a family after each number of iterations."""

    name: str
    bounds: dict[int, float]


def measure(folder: Path, *, quick: bool) -> tuple[list[Row], list[Family]]:
    """Measure every response on every grid, and the bounds of every family.

    Args:
        folder: The checkpoint of the network.
        quick: Fewer fields and grids.
    """
    network = checkpoint.load_operator(folder).operator
    model, refined = (graph(folder / FOLDER / name / GRAPH) for name in (folder.name, f"{folder.name}_refined"))
    responses = {
        "network": model,
        "network, then more iterations": after(model, refined),
        "network, then classical solver": after(model, solved),
    }
    samples = [physics.darcy.sample(SEED + n) for n in range(QUICK_FIELDS if quick else FIELDS)]
    with threadpool_limits(1), torch.inference_mode():
        found = [row for points in (QUICK_GRIDS if quick else GRIDS) for row in rows(responses, points, samples)]
        return found, [family(name, network) for name in FAMILIES]


def rows(responses: dict[str, Solve], points: int, samples: list[tuple[NDArray[Any], NDArray[Any]]]) -> Iterator[Row]:
    """Yield the rows of a grid.

    Args:
        responses: Maps of a coefficient to its solution and a bound, by name.
        points: Points per axis.
        samples: Coefficients and solutions on the whole mesh.
    """
    inputs, truth = (np.stack([physics.darcy.restrict(pair[part], points) for pair in samples]) for part in range(2))
    for name, response in responses.items():
        yield row(points, name, response, inputs, truth)


def graph(path: Path) -> Solve:
    """Return a graph as a map of a coefficient to its solution and its bound."""
    session = one_thread(path)

    def solve(coefficient: NDArray[np.float32]) -> tuple[NDArray[Any], float]:
        batch = coefficient[None]
        inputs = {"coefficient": batch, "source": np.ones_like(batch)}
        solution, bound = session.run(["solution", "error_bound"], inputs)
        return solution[0], bound.item()

    return solve


def solved(coefficient: NDArray[np.float32]) -> tuple[NDArray[Any], float]:
    """Return the solution of the classical solver as the gateway sends it, in float32, and its bound."""
    found = physics.darcy.solve(coefficient).astype(np.float32)
    return found, physics.darcy.bound(coefficient, found)


def after(first: Solve, second: Solve) -> Solve:
    """Return what a request gets whose first response has too large a bound."""

    def solve(coefficient: NDArray[np.float32]) -> tuple[NDArray[Any], float]:
        first(coefficient)
        return second(coefficient)

    return solve


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


def family(name: str, network: Operator) -> Family:
    """Return the bounds of a family after each number of iterations, in PyTorch.

    Args:
        name: The family.
        network: The network.
    """
    config, points = cast("EllipticConfig", network.config), axis(POINTS)
    drawn = np.stack([FAMILIES[name](np.random.default_rng(SEED + n), points) for n in range(DRAWS)])
    fields, bounds = torch.from_numpy(drawn).float(), {}
    for steps in STEPS:
        network.config = config.model_copy(update={"steps": steps})
        bounds[steps] = network.with_quality(fields)[1].max().item()
    network.config = config
    return Family(name, bounds)


def document(found: list[Row], families: list[Family]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "rows": [asdict(each) for each in found],
        "points": POINTS,
        "families": [asdict(each) for each in families],
    }


def tables(found: list[Row], families: list[Family]) -> dict[str, Table]:
    """Return the page's tables."""
    header = ("family", *(f"{steps} iterations" for steps in STEPS))
    bounds = [(each.name, *(f"{each.bounds[steps]:.1e}" for steps in STEPS)) for each in families]
    return {"tolerance": (HEADER, [cells(each) for each in found]), "iterations": (header, bounds)}


def cells(each: Row) -> tuple[str, ...]:
    """Return a row of the table."""
    grid = f"{each.grid} x {each.grid}"
    error, milliseconds = table.scientific(each.error), f"{1e3 * each.seconds:.0f}"
    return (grid, str(each.fields), each.method, f"{each.bound:.1e}", error, milliseconds)
