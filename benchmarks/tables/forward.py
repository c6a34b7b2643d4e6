"""The table of the forward pass: time, memory and error of the Darcy operator and of its alternatives.

The published network has the same weights everywhere (the reference's random ones): in the reference's eager torch, in
this project's, and as the two exported graphs. Beside it are the released `darcy`, another library's Fourier neural
operator, and solvers on the same field. Each is a process of its own with one thread, and they are interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import physics.darcy
from benchmarks.baselines.interleaving import Measured, Side, interleave
from benchmarks.baselines.process import Baseline
from benchmarks.profiling.growth import exponent
from benchmarks.repository import newest_graph
from physics.numerics.norms import relative_l2

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.report.page import Table

REFERENCE, RUNTIME, RELEASED = "reference, eager", "Petrov, ONNX Runtime", "released darcy, ONNX Runtime"
EXACT = ("Petrov, eager", "Petrov, TorchScript", RUNTIME)  # the same network with the same weights as the reference
STEPS = 6  # of conjugate gradients, to the error of the grids below 421 (see the table of error against time)
LU, AMG, GRADIENTS = "scipy splu", "pyamg", "Petrov, conjugate gradients"
STOPPED = f"{GRADIENTS}, {STEPS} steps, float32"
PRODUCT, COPY = "product", "copy"
CORE = (PRODUCT, COPY)
FIELDS = 8
HEADER = ("grid", "batch", "side", "ms per field", "speed relative to the reference", "peak MiB", "relative L2 error")
GROWTH = ("side", "growth of the time with the points", "time per point at {last} divided by that at {first}")
ROOFLINE = (
    "grid",
    "GF per field",
    "GF/s of a product",
    "GB/s of a copy",
    "floor, ms",
    "ONNX Runtime, ms",
    "divided by the floor",
)


@dataclass(frozen=True)
class Plan:
    """The size of a run: grids, and rounds per batch."""

    grids: tuple[int, ...] = (85, 141, 211, 421)
    rounds: tuple[tuple[int, int], ...] = ((1, 9), (8, 3))


FULL, QUICK = Plan(), Plan((141,), ((1, 2),))


@dataclass(frozen=True)
class Cell:
    """All sides at one grid and batch, and the errors of those that have an output."""

    grid: int
    batch: int
    sides: tuple[Measured, ...]
    errors: dict[str, float]

    def side(self, name: str) -> Measured:
        """Return one side."""
        [found] = [side for side in self.sides if side.name == name]
        return found


def measure(plan: Plan, repository: Path, folder: Path) -> list[Cell]:
    """Measure grid by grid: fields, weights and graphs first, then every batch.

    Args:
        plan: The size of the run.
        repository: The exported models.
        folder: The folder of the files; `graph` is the path of a network in it.
    """
    samples = [physics.darcy.sample(seed) for seed in range(FIELDS)]
    coefficients, pressures = (np.stack(each) for each in zip(*samples, strict=True))
    cells = []
    for points in plan.grids:
        fields, truth = (physics.darcy.restrict(each, points) for each in (coefficients, pressures))
        own = graph(folder, points).parent
        own.mkdir()
        export(points, fields, own)
        for batch, rounds in plan.rounds:
            np.save(own / "batch.npy", fields[:batch].astype(np.float32))
            found = interleave(sides(batch, repository, own), rounds, own)
            cells.append(Cell(points, batch, tuple(found), errors(found, own, truth[:batch])))
    return cells


def graph(folder: Path, points: int) -> Path:
    """Return the path to which `measure` writes the published network of a grid."""
    return folder / f"{points}" / "model.onnx"


def export(points: int, fields: NDArray[Any], folder: Path) -> None:
    """Write the reference's random weights, and export them as graphs.

    Args:
        points: Points per axis.
        fields: Coefficients [field, points, points].
        folder: The folder of the files.
    """
    np.save(folder / "batch.npy", fields[:1].astype(np.float32))
    weights = str(folder / "weights.pt")
    with Baseline("benchmarks.baselines.subjects.reference:Forward", "reference") as worker:
        worker.prepare(file=str(folder / "batch.npy"), batch=1, weights=weights)
    with Baseline("benchmarks.baselines.subjects.petrov:Export") as baseline:
        baseline.prepare(
            points=points, weights=weights, onnx=str(folder / "model.onnx"), torchscript=str(folder / "model.pt")
        )


def sides(batch: int, repository: Path, folder: Path) -> list[Side]:
    """Return all sides, and the two that measure the core's own speed.

    Args:
        batch: The number of fields.
        repository: The exported models.
        folder: The folder of the fields, weights and graphs.
    """
    common = {"file": str(folder / "batch.npy"), "batch": batch}
    weighted = common | {"weights": str(folder / "weights.pt")}
    petrov, classical = "benchmarks.baselines.subjects.petrov", "benchmarks.baselines.subjects.classical"
    return [
        Side(REFERENCE, "benchmarks.baselines.subjects.reference:Forward", "reference", weighted, keep_output=True),
        Side(EXACT[0], f"{petrov}:Eager", arguments=weighted, keep_output=True),
        Side(
            EXACT[1],
            f"{petrov}:TorchScript",
            arguments={"file": common["file"], "graph": str(folder / "model.pt")},
            keep_output=True,
        ),
        Side(RUNTIME, f"{petrov}:Graph", arguments=common | {"graph": str(folder / "model.onnx")}, keep_output=True),
        Side(
            RELEASED,
            f"{petrov}:Graph",
            arguments=common | {"graph": str(newest_graph(repository / "darcy"))},
            keep_output=True,
        ),
        Side("neuraloperator's FNO, eager", "benchmarks.baselines.subjects.fno:Forward", "neuralop", common),
        Side(LU, f"{classical}:SparseLU", "pyamg", common, keep_output=True),
        Side(AMG, f"{classical}:Multigrid", "pyamg", common, keep_output=True),
        Side(GRADIENTS, f"{classical}:ConjugateGradients", arguments=common, keep_output=True),
        Side(STOPPED, f"{classical}:StoppedGradients", arguments=common | {"steps": STEPS}, keep_output=True),
        Side(PRODUCT, "benchmarks.baselines.subjects.roofline:Product"),
        Side(COPY, "benchmarks.baselines.subjects.roofline:Copy"),
    ]


def errors(found: list[Measured], folder: Path, truth: NDArray[Any]) -> dict[str, float]:
    """Return the mean relative L2 error of each output; those of random weights are relative to the reference's.

    Args:
        found: The measured sides.
        folder: The folder of their outputs.
        truth: The solutions [field, points, points].
    """
    outputs = {side.name: np.load(path) for n, side in enumerate(found) if (path := folder / f"{n}.npy").exists()}
    published = outputs.pop(REFERENCE)
    return {name: relative(output, published if name in EXACT else truth) for name, output in outputs.items()}


def relative(output: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the mean over the fields of the relative L2 difference."""
    return float(relative_l2(output, expected).mean())


def document(found: list[Cell]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "cells": [
            {
                "grid": cell.grid,
                "batch": cell.batch,
                "errors": cell.errors,
                "sides": [side.document() for side in cell.sides],
            }
            for cell in found
        ]
    }


def tables(found: list[Cell]) -> dict[str, Table]:
    """Return the page's three tables."""
    first, last = found[0].grid, found[-1].grid
    return {
        "forward": (HEADER, [row for cell in found for row in rows(cell)]),
        "growth": (tuple(title.format(first=first, last=last) for title in GROWTH), growth(found)),
        "roofline": (ROOFLINE, [roofline(cell) for cell in found if cell.batch == 1]),
    }


def rows(cell: Cell) -> list[tuple[str, ...]]:
    """Return a row per side at one grid and batch."""
    reference = cell.side(REFERENCE)
    return [
        (
            f"{cell.grid}",
            f"{cell.batch}",
            side.name,
            f"{1e3 * side.seconds / cell.batch:.1f}",
            f"{side.times(reference):.2f}",
            f"{side.memory:.0f}",
            error(cell, side.name),
        )
        for side in cell.sides
        if side.name not in CORE
    ]


def error(cell: Cell, name: str) -> str:
    """Return a side's error; with random weights it is the difference from the reference."""
    if name not in cell.errors:
        return "random weights"
    return f"{cell.errors[name]:.0e} from the reference" if name in EXACT else f"{cell.errors[name]:.2e}"


def growth(found: list[Cell]) -> list[tuple[str, ...]]:
    """Return the time of each side for one field as a power of the number of points; empty for one grid."""
    single = [cell for cell in found if cell.batch == 1]
    if len({cell.grid for cell in single}) == 1:
        return []
    points = [cell.grid**2 for cell in single]
    grown: list[tuple[str, ...]] = []
    for name in (side.name for side in single[0].sides if side.name not in CORE):
        seconds = [cell.side(name).seconds for cell in single]
        ratio = (seconds[-1] / points[-1]) / (seconds[0] / points[0])
        grown.append((name, f"n^{exponent(points, seconds):.2f}", f"{ratio:.2f}"))
    return grown


def roofline(cell: Cell) -> tuple[str, ...]:
    """Return the time of ONNX Runtime beside that of the network's products, at the rate of a large one in this run."""
    flops = cell.side(EXACT[0]).facts["flops"]
    rate, copied = (cell.side(name).facts["work"] / cell.side(name).seconds for name in CORE)
    floor, found = flops / rate, cell.side(RUNTIME).seconds
    return (
        f"{cell.grid}",
        f"{flops / 1e9:.2f}",
        f"{rate / 1e9:.0f}",
        f"{copied / 1e9:.1f}",
        f"{1e3 * floor:.0f}",
        f"{1e3 * found:.0f}",
        f"{found / floor:.2f}",
    )
