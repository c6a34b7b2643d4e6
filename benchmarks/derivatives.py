"""The cost of derivative products: a prediction, a value with its gradient, and a value with its tangent.

The exported graphs run in ONNX Runtime on one thread, one field at a time and interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import physics.burgers
import physics.darcy
from benchmarks.harness import Array, Row, feed, interleave, newest_graph, one_thread, timed

SEED, PLANES, LINES = 900, (85, 141), (512, 8192)
GRIDS = {"darcy": PLANES, "darcy_inverse": PLANES, "burgers": LINES, "burgers_galerkin": LINES}
GRAPHS = {"prediction": "", "gradient": "_vjp", "tangent": "_jvp"}


def measure(repository: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per model and grid: the median seconds of one field by each graph."""
    for model, grids in GRIDS.items():
        sides = {kind: timed(runner(newest_graph(repository / f"{model}{end}"))) for kind, end in GRAPHS.items()}
        for points in grids[:1] if quick else grids:
            field = sample(model, points)
            found = interleave(sides, [(field,)], 3 if quick else 31)
            name = f"{points} points" if field.ndim == 1 else f"{points} x {points}"
            yield {"model": model, "input": name} | {kind: each.seconds for kind, each in found.items()}


def sample(model: str, points: int) -> Array:
    """Return an input field of a model: permeability, pressure, or initial velocity."""
    if GRIDS[model] == LINES:
        return physics.burgers.example(points, SEED)
    permeability, pressure = physics.darcy.sample(SEED)
    return physics.darcy.restrict(permeability if model == "darcy" else pressure, points)


def runner(file: Path) -> Callable[[Array], Array]:
    """Return a graph as a map of one field; tangents and cotangents are ones, and all outputs are computed."""
    session = one_thread(file)

    def run(field: Array) -> Array:
        found: Array = session.run(None, feed(session, field[None]))[0]
        return found

    return run
