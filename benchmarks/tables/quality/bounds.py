"""How close the bounds of `darcy` are and how often its estimates hold, by family of permeabilities and by grid.

A bound is compared with the distance of the prediction to the solution of the model's own finite volumes, whose
conductances its network corrects. That solution comes from a sparse factorisation in double precision. An estimate is
compared with the error against the solution on 421 x 421 cells. Predictions are those of the released graph in ONNX
Runtime. The source is 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from scipy.sparse.linalg import splu

import physics.darcy
from benchmarks.repository import one_thread
from export.released import FOLDER, GRAPH
from physics.families import FAMILIES
from physics.numerics import volumes
from physics.numerics.grid import CELLS, WALL, axis
from physics.numerics.norms import relative_l2
from training import checkpoint
from training.calibration.novelty import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from onnxruntime import InferenceSession

    from benchmarks.report.page import Table
    from training.operators.elliptic import EllipticOperator

    Plane = NDArray[np.float64]
    Sample = tuple[Plane, Plane]

GRIDS, QUICK_GRIDS = (43, 85, 141, 211), (43,)
FIELDS, QUICK_FIELDS = 8, 1
FIRST_SEED = 7_000
OUTPUTS = ("solution", "error_bound", "error_estimate", "novelty")


@dataclass(frozen=True)
class Row:
    """The predictions of a family on a grid.

    Attributes:
        family: Name of the family.
        grid: Points per axis.
        fields: How many predictions.
        bound: The largest `error_bound`.
        closest: The least quotient of a bound and its distance; below 1 the bound would be wrong.
        loosest: The largest quotient.
        estimate: The mean `error_estimate`.
        error: The mean relative L2 error.
        covered: The share of errors below their estimate.
        outside: The share of fields that the model found unlike its training data.
    """

    family: str
    grid: int
    fields: int
    bound: float
    closest: float
    loosest: float
    estimate: float
    error: float
    covered: float
    outside: float


def measure(folder: Path, *, quick: bool) -> list[Row]:
    """Measure every family on every grid.

    Args:
        folder: The checkpoint of the network, with its released graph.
        quick: A single field per family, on a single grid.
    """
    network = cast("EllipticOperator", checkpoint.load_operator(folder).operator).double()
    graph = one_thread(folder / FOLDER / folder.name / GRAPH)
    seeds = range(FIRST_SEED, FIRST_SEED + (QUICK_FIELDS if quick else FIELDS))
    found = []
    for family in FAMILIES:
        samples = drawn(family, seeds)
        found += [row(family, grid, samples, network, graph) for grid in (QUICK_GRIDS if quick else GRIDS)]
    return found


def drawn(family: str, seeds: Sequence[int]) -> list[Sample]:
    """Return fields of a family and their solutions, on the whole mesh."""
    fields = (FAMILIES[family](np.random.default_rng(seed), axis(CELLS)) for seed in seeds)
    return [(field, physics.darcy.solve(field)) for field in fields]


def row(family: str, grid: int, samples: list[Sample], network: EllipticOperator, graph: InferenceSession) -> Row:
    """Predict all fields of a family on a grid.

    Args:
        family: Name of the family.
        grid: Points per axis.
        samples: Its fields and their solutions.
        network: The operator, in double precision.
        graph: The same as a graph.
    """
    fields, truths = (np.stack([physics.darcy.restrict(pair[n], grid) for pair in samples]) for n in range(2))
    batch = fields.astype(np.float32)
    inputs = {"coefficient": batch, "source": np.ones_like(batch)}
    solutions, bounds, estimates, novelty = graph.run(list(OUTPUTS), inputs)
    bounds, estimates = bounds[:, 0].astype(float), estimates[:, 0].astype(float)
    quotients = bounds / np.array([distance(network, *pair) for pair in zip(batch, solutions, strict=True)])
    errors = relative_l2(solutions.astype(float), truths)
    return Row(
        family=family,
        grid=grid,
        fields=len(fields),
        bound=bounds.max().item(),
        closest=quotients.min().item(),
        loosest=quotients.max().item(),
        estimate=estimates.mean().item(),
        error=errors.mean().item(),
        covered=(errors <= estimates).mean().item(),
        outside=(novelty < OUTSIDE).mean().item(),
    )


@torch.inference_mode()
def distance(network: EllipticOperator, coefficient: NDArray[np.float32], solution: NDArray[np.float32]) -> float:
    """Return how far a prediction is from the solution of the model's finite volumes, in their energy norm.

    Args:
        network: The operator, in double precision.
        coefficient: Permeability [rows, columns].
        solution: The prediction [rows, columns].
    """
    faces = network.faces(torch.from_numpy(coefficient)[None].double())
    matrix = volumes.assembled(*volumes.weighted(faces.across[0].numpy(), faces.down[0].numpy(), WALL)).tocsc()
    exact = splu(matrix).solve(volumes.areas(coefficient.shape, WALL).ravel())
    missing = exact - solution.astype(float).ravel()
    return float(np.sqrt((missing @ (matrix @ missing)) / (exact @ (matrix @ exact))))


def document(rows: list[Row]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"rows": [asdict(each) for each in rows]}


def tables(rows: list[Row]) -> dict[str, Table]:
    """Return the page's tables: quotients of bound and distance, and shares of errors below their estimates."""
    families = {family: [each for each in rows if each.family == family] for family in FAMILIES}
    grids = [f"{each.grid} x {each.grid}" for each in families[rows[0].family]]
    quotients = [
        (name, *(f"{each.closest:.2f} to {each.loosest:.2f}" for each in found)) for name, found in families.items()
    ]
    shares = [
        (name, *(f"{each.covered:.2f}" for each in found), f"{np.mean([each.outside for each in found]):.2f}")
        for name, found in families.items()
    ]
    return {"bounds": (("family", *grids), quotients), "estimates": (("family", *grids, "outside"), shares)}
