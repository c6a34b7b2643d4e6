"""The table of derivative products: a prediction, a value with its gradient, and a value with its tangent.

The exported graphs run in ONNX Runtime on one thread, one field at a time and interleaved; times are medians of
processor time, and the ratio is that of the medians.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import physics.burgers
import physics.darcy
from benchmarks.repository import feed, newest_graph, one_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.report.page import Table

SEED = 900
PLANES, LINES = (85, 141), (512, 8192)
GRIDS = {"darcy": PLANES, "darcy_inverse": PLANES, "burgers": LINES, "burgers_galerkin": LINES}
ROUNDS, QUICK_ROUNDS = 31, 3
HEADER = ("model", "input", "prediction", "value and gradient", "ratio", "value and tangent")


@dataclass(frozen=True)
class Products:
    """Median seconds of one field by each graph of a model."""

    model: str
    input: str
    prediction: float
    gradient: float
    tangent: float

    @property
    def ratio(self) -> float:
        """The time of a value and gradient divided by that of a prediction."""
        return self.gradient / self.prediction


def measure(repository: Path, *, quick: bool) -> list[Products]:
    """Measure every model on every grid.

    Args:
        repository: The exported models.
        quick: Fewer rounds, and the coarsest grid only.
    """
    return [
        products(repository, model, points, QUICK_ROUNDS if quick else ROUNDS)
        for model, grids in GRIDS.items()
        for points in (grids[:1] if quick else grids)
    ]


def products(repository: Path, model: str, points: int, rounds: int) -> Products:
    """Measure one model on one grid, the three graphs interleaved, after a warm-up."""
    field = sample(model, points)
    runs = [runner(newest_graph(repository / name), field) for name in (model, f"{model}_vjp", f"{model}_jvp")]
    for run in runs:
        run()
    times = [[seconds(run) for run in runs] for _ in range(rounds)]
    name = f"{points} points" if field.ndim == 1 else f"{points} x {points}"
    return Products(model, name, *(statistics.median(each) for each in zip(*times, strict=True)))


def sample(model: str, points: int) -> NDArray[Any]:
    """Return an input field of a model: permeability, pressure, or initial velocity."""
    if GRIDS[model] == LINES:
        return physics.burgers.example(points, SEED)
    permeability, pressure = physics.darcy.sample(SEED)
    return physics.darcy.restrict(permeability if model == "darcy" else pressure, points)


def runner(graph: Path, field: NDArray[Any]) -> Callable[[], object]:
    """Return a function that runs a graph on one field; tangents and cotangents are ones."""
    session = one_thread(graph)
    inputs = feed(session, field[None])
    return lambda: session.run(None, inputs)


def seconds(run: Callable[[], object]) -> float:
    """Return the processor time of one run."""
    started = time.process_time()
    run()
    return time.process_time() - started


def document(found: list[Products]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"products": [asdict(each) for each in found]}


def table(found: list[Products]) -> Table:
    """Return header and rows, in milliseconds."""
    return HEADER, [row(each) for each in found]


def row(each: Products) -> tuple[str, ...]:
    """Return one model's row on one grid."""
    prediction, gradient, tangent = (f"{1e3 * value:.1f}" for value in (each.prediction, each.gradient, each.tangent))
    return (each.model, each.input, prediction, gradient, f"{each.ratio:.1f}", tangent)
