"""Table 5, network and solver: takes the exported models, gives time and error of both on the same fresh fields.

`darcy_inverse` beside the regularised adjoint inversion, which is told how large the noise is; `burgers` beside the
spectral integration that makes the truth. One thread each, the processor's time, one field after the other.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import physics.averages
import physics.burgers
import physics.darcy
from benchmarks.forward import newest, relative
from benchmarks.turns import Side, take_turns
from physics.grid import WALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benchmarks.page import Table

SEED, OTHERS = 900, 16  # of the fields; and how many tell the pressure's deviation, the unit of noise
GRID, BLOCKS, POINTS = 141, (36, 36), (512, 2048, 8192)
NOISE, QUICK_NOISE = (0.0, 0.01, 0.1), (0.01,)
HEADER = (
    "model",
    "input",
    "fields",
    "network ms",
    "solver ms",
    "solver's time over it",
    "network error",
    "solver error",
)


@dataclass(frozen=True)
class Both:
    """Network and solver on the same fields: seconds a field, mean relative L2 errors."""

    model: str
    asked: str
    fields: int
    network_seconds: float
    solver_seconds: float
    network_error: float
    solver_error: float


def measure(repository: Path, *, quick: bool) -> list[Both]:
    """Ask both models and both solvers."""
    fields = 1 if quick else 3
    inverse = list(inversions(repository, QUICK_NOISE if quick else NOISE, fields))
    return inverse + list(integrations(repository, POINTS[:1] if quick else POINTS, 3 * fields))


def inversions(repository: Path, noise: tuple[float, ...], fields: int) -> Iterator[Both]:
    """Find permeabilities of blocks in pressures with noise."""
    samples = [physics.darcy.sample(SEED + n) for n in range(fields + OTHERS)]
    pressures = np.stack([physics.darcy.restrict(pressure, GRID) for _, pressure in samples])
    clean, spread = pressures[:fields], pressures[fields:].std(axis=0)
    truth = np.stack([physics.averages.coarsen(coefficient, BLOCKS, WALL) for coefficient, _ in samples[:fields]])
    random = np.random.default_rng(SEED)
    for level in noise:
        given = clean + level * spread * random.standard_normal(clean.shape)
        asked = f"{GRID} x {GRID}, {level:.0%} noise"
        told = {"deviation": (level * spread).tolist(), "blocks": BLOCKS}
        yield both(repository / "darcy_inverse", asked, "Inversion", told, given, truth)


def integrations(repository: Path, grids: tuple[int, ...], fields: int) -> Iterator[Both]:
    """Integrate Burgers' equation from initial values on every grid."""
    samples = np.stack([physics.burgers.sample(SEED + n) for n in range(fields)])
    for points in grids:
        given, truth = np.moveaxis(samples[:, :, :: samples.shape[2] // points], 1, 0)
        yield both(repository / "burgers", f"{points} points", "Integration", {}, given, truth)


def both(model: Path, asked: str, solver: str, told: dict[str, Any], given: NDArray[Any], truth: NDArray[Any]) -> Both:
    """Let both answer all fields; nothing is warmed up, for a solver takes seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "given.npy", given)
        common = {"file": str(folder / "given.npy"), "batch": len(given)}
        graph = common | {"graph": str(newest(model)), "single": True}
        sides = [
            Side("network", "benchmarks.baselines.ours:Graph", arguments=graph, asked=True),
            Side("solver", f"benchmarks.baselines.classical:{solver}", arguments=common | told, asked=True),
        ]
        network, classical = take_turns(sides, 1, folder, warm=False)
        errors = [relative(np.load(folder / f"{n}.npy"), truth) for n in range(2)]
    count = len(given)
    return Both(model.name, asked, count, network.seconds / count, classical.seconds / count, *errors)


def document(found: list[Both]) -> dict[str, Any]:
    """Give everything that was measured."""
    return {"solvers": [asdict(each) for each in found]}


def tables(found: list[Both]) -> dict[str, Table]:
    """Lay out the page's table."""
    return {"solvers": (HEADER, [row(each) for each in found])}


def row(each: Both) -> tuple[str, ...]:
    """Give one question's row."""
    return (
        each.model,
        each.asked,
        f"{each.fields}",
        f"{1e3 * each.network_seconds:.0f}",
        f"{1e3 * each.solver_seconds:.0f}",
        f"{each.solver_seconds / each.network_seconds:.1f}",
        f"{each.network_error:.2e}",
        f"{each.solver_error:.2e}",
    )
