"""Table 1, the Darcy operator's forward pass: takes grids and batches, gives what each way to an answer costs.

The published network is the same everywhere, with the reference's own random weights: in the reference's eager torch,
in ours, and as the two graphs we export. Beside it the released `darcy`, another library's Fourier neural operator, and
the solvers that see the same field. Every way is a process of its own on one thread, and they take turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import physics.darcy
from benchmarks.baselines.process import Rival
from benchmarks.profiling.growth import exponent
from benchmarks.turns import Measured, Side, take_turns

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.page import Table

REFERENCE, RUNTIME, RELEASED = "reference, eager", "ours, ONNX Runtime", "released darcy, ONNX Runtime"
EXACT = ("ours, eager", "ours, TorchScript", RUNTIME)  # the same network with the same weights as the reference
LU, AMG, GRADIENTS = "scipy splu", "pyamg", "ours, conjugate gradients"
PRODUCT, COPY = "product", "copy"
CORE = (PRODUCT, COPY)
FIELDS = 8
HEADER = ("grid", "batch", "who", "ms a field", "reference's time over it", "peak MiB", "relative L2 error")
GROWTH = ("who", "time grows with the points as", "time a point at {last} over {first}")
ROOFLINE = (
    "grid",
    "GF a field",
    "GF/s of a product",
    "GB/s of a copy",
    "floor, ms",
    "ONNX Runtime, ms",
    "times the floor",
)


@dataclass(frozen=True)
class Plan:
    """How much to measure: grids, and how many turns for each batch."""

    grids: tuple[int, ...] = (85, 141, 211, 421)
    turns: tuple[tuple[int, int], ...] = ((1, 9), (8, 3))


FULL, QUICK = Plan(), Plan((141,), ((1, 2),))


@dataclass(frozen=True)
class Cell:
    """All sides at one grid and batch; the errors are those of their answers, where they have one."""

    grid: int
    batch: int
    sides: tuple[Measured, ...]
    errors: dict[str, float]

    def side(self, name: str) -> Measured:
        """Give one side."""
        [found] = [side for side in self.sides if side.name == name]
        return found


def measure(plan: Plan, repository: Path, folder: Path) -> list[Cell]:
    """Measure grid by grid: fields, weights and graphs first, then every batch; `graph` tells which files stay."""
    samples = [physics.darcy.sample(seed) for seed in range(FIELDS)]
    coefficients, pressures = (np.stack(each) for each in zip(*samples, strict=True))
    cells = []
    for points in plan.grids:
        fields, truth = (physics.darcy.restrict(each, points) for each in (coefficients, pressures))
        place = graph(folder, points).parent
        place.mkdir()
        export(points, fields, place)
        for batch, turns in plan.turns:
            np.save(place / "batch.npy", fields[:batch].astype(np.float32))
            found = take_turns(sides(batch, repository, place), turns, place)
            cells.append(Cell(points, batch, tuple(found), errors(found, place, truth[:batch])))
    return cells


def graph(folder: Path, points: int) -> Path:
    """Tell where `measure` writes the published network of a grid."""
    return folder / f"{points}" / "model.onnx"


def export(points: int, fields: NDArray[Any], place: Path) -> None:
    """Let the reference write its random weights, and ours make graphs of them."""
    np.save(place / "batch.npy", fields[:1].astype(np.float32))
    weights = str(place / "weights.pt")
    with Rival("benchmarks.baselines.reference:Forward", "reference") as rival:
        rival.prepare(file=str(place / "batch.npy"), batch=1, weights=weights)
    with Rival("benchmarks.baselines.ours:Export") as rival:
        rival.prepare(
            points=points, weights=weights, onnx=str(place / "model.onnx"), torchscript=str(place / "model.pt")
        )


def sides(batch: int, repository: Path, place: Path) -> list[Side]:
    """Give all ways to an answer, and the core's own speed."""
    common = {"file": str(place / "batch.npy"), "batch": batch}
    weighed = common | {"weights": str(place / "weights.pt")}
    ours, classical = "benchmarks.baselines.ours", "benchmarks.baselines.classical"
    return [
        Side(REFERENCE, "benchmarks.baselines.reference:Forward", "reference", weighed, asked=True),
        Side(EXACT[0], f"{ours}:Eager", arguments=weighed, asked=True),
        Side(
            EXACT[1],
            f"{ours}:TorchScript",
            arguments={"file": common["file"], "graph": str(place / "model.pt")},
            asked=True,
        ),
        Side(RUNTIME, f"{ours}:Graph", arguments=common | {"graph": str(place / "model.onnx")}, asked=True),
        Side(RELEASED, f"{ours}:Graph", arguments=common | {"graph": str(newest(repository / "darcy"))}, asked=True),
        Side("neuraloperator's FNO, eager", "benchmarks.baselines.fno:Forward", "neuralop", common),
        Side(LU, f"{classical}:SparseLU", "pyamg", common, asked=True),
        Side(AMG, f"{classical}:Multigrid", "pyamg", common, asked=True),
        Side(GRADIENTS, f"{classical}:Ours", arguments=common, asked=True),
        Side(PRODUCT, "benchmarks.baselines.roofline:Product"),
        Side(COPY, "benchmarks.baselines.roofline:Copy"),
    ]


def newest(model: Path) -> Path:
    """Give the graph of a model's newest version."""
    return max(model.glob("[0-9]*/model.onnx"), key=lambda path: int(path.parent.name))


def errors(found: list[Measured], place: Path, truth: NDArray[np.float64]) -> dict[str, float]:
    """Give the mean relative L2 error of each answer; random weights are held against the reference's answer."""
    answers = {side.name: np.load(path) for n, side in enumerate(found) if (path := place / f"{n}.npy").exists()}
    published = answers.pop(REFERENCE)
    return {name: relative(answer, published if name in EXACT else truth) for name, answer in answers.items()}


def relative(answer: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Give the mean over the fields of the relative L2 difference."""
    norms = (np.linalg.norm(x.reshape(len(x), -1), axis=1) for x in (answer - wanted, wanted))
    difference, size = norms
    return float(np.mean(difference / size))


def document(found: list[Cell]) -> dict[str, Any]:
    """Give everything that was measured."""
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
    """Lay out the page's three tables."""
    first, last = found[0].grid, found[-1].grid
    return {
        "forward": (HEADER, [row for cell in found for row in rows(cell)]),
        "growth": (tuple(word.format(first=first, last=last) for word in GROWTH), growth(found)),
        "roofline": (ROOFLINE, [roofline(cell) for cell in found if cell.batch == 1]),
    }


def rows(cell: Cell) -> list[tuple[str, ...]]:
    """Give a row for everybody at one grid and batch."""
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
    """Give the error of who has one; random weights have none, but answer as the reference does."""
    if name not in cell.errors:
        return "random weights"
    return f"the reference's to {cell.errors[name]:.0e}" if name in EXACT else f"{cell.errors[name]:.2e}"


def growth(found: list[Cell]) -> list[tuple[str, ...]]:
    """Fit everybody's time for one field as a power of the number of points; one grid alone tells of none."""
    single = [cell for cell in found if cell.batch == 1]
    if len({cell.grid for cell in single}) == 1:
        return []
    points = [cell.grid**2 for cell in single]
    grown = []
    for name in (side.name for side in single[0].sides if side.name not in CORE):
        seconds = [cell.side(name).seconds for cell in single]
        ratio = (seconds[-1] / points[-1]) / (seconds[0] / points[0])
        grown.append((name, f"n^{exponent(points, seconds):.2f}", f"{ratio:.2f}"))
    return grown


def roofline(cell: Cell) -> tuple[str, ...]:
    """Hold ONNX Runtime against the products that the network needs, at the rate of a large product in the same run."""
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
