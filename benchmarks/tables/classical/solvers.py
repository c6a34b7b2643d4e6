"""The table of networks and solvers: time and error of both on the same new fields.

`darcy_inverse` is compared with the regularised adjoint inversion, which receives the level of the noise; `burgers`
with the spectral integration that also computes the truth. Each uses one thread and takes one field after the other;
times are processor times.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import physics.burgers
import physics.darcy
from benchmarks.baselines.interleaving import Side, interleave
from benchmarks.repository import newest_graph
from physics.numerics.averages import coarsen
from physics.numerics.grid import WALL
from physics.numerics.norms import relative_l2
from training.user_error import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benchmarks.report.page import Table

SEED = 900  # of the fields
OTHERS = 16  # further samples, for the pressure's standard deviation, which is the unit of the noise
FIELDS, QUICK_FIELDS = 12, 1
GRID, BLOCKS, POINTS = 141, (36, 36), (512, 2048, 8192)
NOISE, QUICK_NOISE = (0.0, 0.01, 0.1), (0.01,)
MODELS = ("darcy_inverse", "burgers")
HEADER = (
    "model",
    "input",
    "fields",
    "network ms",
    "solver ms",
    "speed relative to the solver",
    "network error",
    "solver error",
)


@dataclass(frozen=True)
class Task:
    """The fields of a comparison, their truth, and the class and options of the solver."""

    name: str
    fields: NDArray[Any]
    truth: NDArray[Any]
    solver: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Both:
    """Network and solver on the same fields: seconds per field, and mean relative L2 errors with standard errors."""

    model: str
    input: str
    fields: int
    network_seconds: float
    solver_seconds: float
    network_error: float
    solver_error: float
    network_standard_error: float
    solver_standard_error: float


def measure(repository: Path, models: tuple[str, ...] = MODELS, *, quick: bool) -> list[Both]:
    """Measure models and their solvers.

    Args:
        repository: The exported models.
        models: Which ones.
        quick: Fewer fields, levels of noise and grids.

    Raises:
        UserError: A model has no comparison.
    """
    if unknown := set(models) - set(MODELS):
        raise UserError(f"expected models among {', '.join(MODELS)} but got {', '.join(sorted(unknown))}")
    fields, found = QUICK_FIELDS if quick else FIELDS, list[Both]()
    if "darcy_inverse" in models:
        found += inversions(repository, QUICK_NOISE if quick else NOISE, fields)
    if "burgers" in models:
        found += integrations(repository, POINTS[:1] if quick else POINTS, fields)
    return found


def others(document: dict[str, Any] | None, models: tuple[str, ...]) -> list[Both]:
    """Return the rows of a former run whose models are not measured again."""
    return [Both(**row) for row in (document or {}).get("solvers", ()) if row["model"] not in models]


def position(each: Both) -> int:
    """Return the place of a row's model in the table."""
    return MODELS.index(each.model)


def inversions(repository: Path, noise: tuple[float, ...], fields: int) -> Iterator[Both]:
    """Yield the comparisons of `darcy_inverse`: permeability of blocks from pressure with noise.

    Args:
        repository: The exported models.
        noise: Levels of noise, as shares of the pressure's standard deviation.
        fields: The number of fields.
    """
    samples = [physics.darcy.sample(SEED + n) for n in range(fields + OTHERS)]
    pressures = np.stack([physics.darcy.restrict(pressure, GRID) for _, pressure in samples])
    clean, spread = pressures[:fields], pressures[fields:].std(axis=0)
    truth = np.stack([coarsen(coefficient, BLOCKS, WALL) for coefficient, _ in samples[:fields]])
    random = np.random.default_rng(SEED)
    for level in noise:
        noisy = clean + level * spread * random.standard_normal(clean.shape)
        name = f"{GRID} x {GRID}, {level:.0%} noise"
        options = {"deviation": (level * spread).tolist(), "blocks": BLOCKS}
        task = Task(name, noisy, truth, "Inversion", options)
        yield compare(repository / "darcy_inverse", task)


def integrations(repository: Path, grids: tuple[int, ...], fields: int) -> Iterator[Both]:
    """Yield the comparisons of `burgers`: the final values from the initial values, on every grid.

    Args:
        repository: The exported models.
        grids: Numbers of points.
        fields: The number of fields.
    """
    samples = np.stack([physics.burgers.sample(SEED + n) for n in range(fields)])
    for points in grids:
        initial, truth = np.moveaxis(samples[:, :, :: samples.shape[2] // points], 1, 0)
        yield compare(repository / "burgers", Task(f"{points} points", initial, truth, "Integration"))


def compare(model: Path, task: Task) -> Both:
    """Compute all fields by both, without a warm-up, since a solver takes seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "fields.npy", task.fields)
        common = {"file": str(folder / "fields.npy"), "batch": len(task.fields)}
        graph = common | {"graph": str(newest_graph(model)), "single": True}
        sides = [
            Side("network", "benchmarks.baselines.subjects.petrov:Graph", arguments=graph, keep_output=True),
            Side(
                "solver",
                f"benchmarks.baselines.subjects.classical:{task.solver}",
                arguments=common | task.options,
                keep_output=True,
            ),
        ]
        network, classical = interleave(sides, 1, folder, warm=False)
        errors = [relative_l2(np.load(folder / f"{n}.npy"), task.truth) for n in range(2)]
    count = len(task.fields)
    seconds = (side.seconds / count for side in (network, classical))
    means = (each.mean().item() for each in errors)
    spreads = (each.std().item() / max(count - 1, 1) ** 0.5 for each in errors)
    return Both(model.name, task.name, count, *seconds, *means, *spreads)


def document(found: list[Both]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"solvers": [asdict(each) for each in found]}


def tables(found: list[Both]) -> dict[str, Table]:
    """Return the page's table."""
    return {"solvers": (HEADER, [row(each) for each in found])}


def row(each: Both) -> tuple[str, ...]:
    """Return one comparison's row."""
    return (
        each.model,
        each.input,
        f"{each.fields}",
        f"{1e3 * each.network_seconds:.0f}",
        f"{1e3 * each.solver_seconds:.0f}",
        f"{each.solver_seconds / each.network_seconds:.1f}",
        f"{each.network_error:.2e} ± {each.network_standard_error:.0e}",
        f"{each.solver_error:.2e} ± {each.solver_standard_error:.0e}",
    )
