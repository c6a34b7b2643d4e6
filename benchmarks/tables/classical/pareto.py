"""Error against time: each network beside classical methods that are stopped where they are as accurate.

A method dominates another one on the same input where it is both faster and more accurate. All methods see the same
fields, one at a time on one thread, interleaved; times are processor times. The truth is the benchmark's: the solution
on 421 x 421 cells for `darcy`, the spectral solution for `burgers`.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

import physics.burgers
import physics.cole_hopf
import physics.darcy
import physics.numerics.early_stopping
from benchmarks.repository import feed, newest_graph, one_thread
from physics.numerics.grid import CELLS
from physics.numerics.norms import relative_l2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Solve = Callable[[NDArray[Any]], NDArray[Any]]

SEED = 5_000
DARCY_GRIDS, BURGERS_GRIDS = (85, 141, 211, 421), (512, 8192)
STEPS = (2, 4, 6, 8, 10)
#: Points and time steps of the spectral method. Larger steps overflow: 0.04 on 1 of 24 fields, 0.05 on 2.
INTEGRATIONS = ((128, 0.025), (128, 0.02), (256, 0.01), (1024, 0.002))
FIELDS, QUICK_FIELDS = 24, 4
REPETITIONS = 3
FINE = 2  # times as many cells per axis for the truth's own error
HEADER = ("model", "input", "method", "fields", "error", "standard error", "ms", "dominated by")


@dataclass(frozen=True)
class Point:
    """A method on one input: mean relative L2 error with its standard error, and milliseconds per field.

    `seconds` is the median over fields and repetitions.
    """

    model: str
    input: str
    method: str
    fields: int
    error: float
    standard_error: float
    seconds: float

    def dominates(self, other: Point) -> bool:
        """Return whether this method is faster and more accurate."""
        return self.seconds < other.seconds and self.error < other.error


def measure(repository: Path, *, quick: bool) -> list[Point]:
    """Measure every method on every input.

    Args:
        repository: The exported models.
        quick: Fewer fields and grids.
    """
    fields = QUICK_FIELDS if quick else FIELDS
    with threadpool_limits(1):
        return [
            *darcy(repository, DARCY_GRIDS[:2] if quick else DARCY_GRIDS, fields),
            *burgers(repository, BURGERS_GRIDS[:1] if quick else BURGERS_GRIDS, fields),
        ]


def darcy(repository: Path, grids: tuple[int, ...], fields: int) -> Iterator[Point]:
    """Yield the points of `darcy`: the network, and conjugate gradients stopped early and not at all."""
    samples = [physics.darcy.sample(SEED + n) for n in range(fields)]
    graph = network(repository / "darcy")
    solvers: dict[str, Solve] = {
        f"conjugate gradients, {steps} steps, float32": partial(physics.numerics.early_stopping.solve, steps=steps)
        for steps in STEPS
    }
    for points in grids:
        methods: dict[str, Solve] = {"network": graph, **solvers, "conjugate gradients to 1e-10": physics.darcy.solve}
        inputs, truth = (
            np.stack([physics.darcy.restrict(pair[part], points) for pair in samples]) for part in range(2)
        )
        yield from compare("darcy", f"{points} x {points}", methods, inputs, truth)


def burgers(repository: Path, grids: tuple[int, ...], fields: int) -> Iterator[Point]:
    """Yield the points of `burgers`: the network, the spectral method with larger steps, and the closed form."""
    samples = np.stack([physics.burgers.sample(SEED + n) for n in range(fields)])
    graph = network(repository / "burgers")
    solvers: dict[str, Solve] = {
        f"spectral, {points} points, step {step:g}": partial(physics.burgers.solve, resolution=points, step=step)
        for points, step in INTEGRATIONS
    }
    closed = partial(physics.cole_hopf.solve, resolution=128, dtype=np.float32)
    for points in grids:
        inputs, truth = np.moveaxis(samples[:, :, :: samples.shape[2] // points], 1, 0)
        methods: dict[str, Solve] = {"network": graph, **solvers, "closed form, 128 points, float32": closed}
        yield from compare("burgers", f"{points} points", methods, inputs, truth)


def compare(
    model: str, name: str, methods: Mapping[str, Solve], inputs: NDArray[Any], truth: NDArray[Any]
) -> list[Point]:
    """Run every method on every field, interleaved.

    Args:
        model: Name of the model.
        name: Name of the input.
        methods: Maps of one field to another.
        inputs: The input fields.
        truth: The true output fields.
    """
    for solve in methods.values():
        solve(inputs[0])
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    outputs: dict[str, list[NDArray[Any]]] = {method: [] for method in methods}
    for repetition in range(REPETITIONS):
        for number, field in enumerate(inputs):
            first = number % len(methods)  # so that no method always follows the one that fills the cache
            for method in [*methods][first:] + [*methods][:first]:
                start = time.process_time()
                output = methods[method](field)
                seconds[method].append(time.process_time() - start)
                if repetition == 0:
                    outputs[method].append(output)
    return [
        point(model, name, method, relative_l2(np.stack(outputs[method]), truth), seconds[method]) for method in methods
    ]


def point(model: str, name: str, method: str, errors: NDArray[np.float64], seconds: list[float]) -> Point:
    """Summarise the errors and times of a method."""
    spread = float(errors.std(ddof=1) / np.sqrt(len(errors)))
    return Point(model, name, method, len(errors), float(errors.mean()), spread, float(np.median(seconds)))


def network(model: Path) -> Solve:
    """Open a model's exported graph in ONNX Runtime on one thread; its first output is returned."""
    session = one_thread(newest_graph(model))
    output = session.get_outputs()[0].name

    def solve(field: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = session.run([output], feed(session, field[None]))[0][0]
        return found

    return solve


def own_error(fields: int) -> tuple[float, float]:
    """Return mean and standard error of the truth's own error: 421 x 421 cells beside twice as many per axis.

    The coefficient of the finer mesh has each cell of the coarser one four times, so both solve the same equation.
    """
    errors = []
    for n in range(fields):
        coefficient, pressure = physics.darcy.sample(SEED + n)
        fine = np.kron(coefficient, np.ones((FINE, FINE)))
        solution = physics.darcy.solve(fine, wall=0.5 / (FINE * CELLS))
        means = solution.reshape(CELLS, FINE, CELLS, FINE).mean(axis=(1, 3))
        errors.append(float(relative_l2(pressure[None], means[None])[0]))
    return float(np.mean(errors)), float(np.std(errors, ddof=1) / np.sqrt(fields))


def rows(found: list[Point]) -> list[tuple[str, ...]]:
    """Return a row per point, with the fastest method that dominates it."""
    cells: list[tuple[str, ...]] = []
    for one in found:
        better = [other for other in found if (other.model, other.input) == (one.model, one.input)]
        winners = sorted((other for other in better if other.dominates(one)), key=lambda other: other.seconds)
        cells.append(
            (
                one.model,
                one.input,
                one.method,
                str(one.fields),
                f"{one.error:.2e}",
                f"{one.standard_error:.0e}",
                f"{1e3 * one.seconds:.2f}",
                winners[0].method if winners else "",
            )
        )
    return cells


def document(found: list[Point], own: tuple[float, float]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "points": [asdict(each) for each in found],
        "truth": {"problem": "darcy", "relative_l2": own[0], "standard_error": own[1]},
    }
