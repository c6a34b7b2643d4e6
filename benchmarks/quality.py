"""What `darcy` says about its error: how close its bounds are, how often its estimates hold, what a tolerance costs.

Predictions are those of the released graph in ONNX Runtime on one thread, with the source 1. The truth is the solution
on 421 x 421 cells. A bound is compared with the distance of the prediction to the solution of the model's own finite
volumes, whose conductances its network corrects; that solution comes from a sparse factorisation in double precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import torch
from onnx.utils import Extractor
from scipy.sparse.linalg import splu
from threadpoolctl import threadpool_limits

import physics.darcy
from benchmarks.harness import feed, interleave, one_thread, timed
from export.released import FOLDER, GRAPH
from physics.families import FAMILIES
from physics.numerics import volumes
from physics.numerics.grid import CELLS, WALL, axis, relative_l2
from training import checkpoint
from training.calibration.novelty import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.harness import Array, Row
    from training.operators.elliptic import EllipticOperator

FAMILY_SEED, SEED = 7_000, 6_000
OUTPUTS = ["solution", "error_bound", "error_estimate", "novelty"]


def released(checkpoint: Path, name: str) -> Path:
    """Return a released graph of a checkpoint: that of the model, or of a companion."""
    return checkpoint / FOLDER / name / GRAPH


def families(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per family of permeabilities and grid; see `row`.

    Args:
        folder: The checkpoint of `darcy`, with its released graph.
        quick: A single field per family, on a single grid.
    """
    network = cast("EllipticOperator", checkpoint.load_operator(folder).operator).double()
    session = one_thread(released(folder, folder.name))
    for family in FAMILIES:
        samples = drawn(family, range(FAMILY_SEED, FAMILY_SEED + (1 if quick else 8)))
        for grid in (43,) if quick else (43, 85, 141, 211):
            yield row(family, grid, samples, network, session)


def drawn(family: str, seeds: Sequence[int]) -> list[tuple[Array, Array]]:
    """Return fields of a family and their solutions, on the whole mesh."""
    fields = (FAMILIES[family](np.random.default_rng(seed), axis(CELLS)) for seed in seeds)
    return [(field, physics.darcy.solve(field)) for field in fields]


def row(family: str, grid: int, samples: list[tuple[Array, Array]], network: EllipticOperator, session: Any) -> Row:
    """Return the errors of network and finite volumes, bounds divided by what they bound, and shares of the fields.

    Args:
        family: Name of the family.
        grid: Points per axis.
        samples: Its fields and their solutions.
        network: The operator, in double precision.
        session: The same as a graph.
    """
    fields, truths = (np.stack([physics.darcy.restrict(pair[n], grid) for pair in samples]) for n in range(2))
    batch = fields.astype(np.float32)
    solutions, bounds, estimates, novelty = session.run(OUTPUTS, feed(session, batch))
    bounds, estimates = bounds[:, 0].astype(float), estimates[:, 0].astype(float)
    quotients = bounds / np.array([distance(network, *pair) for pair in zip(batch, solutions, strict=True)])
    errors = relative_l2(solutions.astype(float), truths)
    plain = relative_l2(np.stack([physics.darcy.solve(field) for field in fields]), truths)
    return {
        "family": family,
        "grid": grid,
        "fields": len(fields),
        "finite_volumes": plain.mean().item(),
        "error": errors.mean().item(),
        "bound": bounds.max().item(),
        "closest": quotients.min().item(),
        "loosest": quotients.max().item(),
        "estimate": estimates.mean().item(),
        "covered": (errors <= estimates).mean().item(),
        "outside": (novelty < OUTSIDE).mean().item(),
    }


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


def tolerance(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per grid and response: its largest bound, mean error, and median seconds per field.

    The responses are those of the gateway: the pressure alone, the model with all that is known about its error, the
    model and then `darcy_refined`, the model and then the classical solver.

    Args:
        folder: The checkpoint of `darcy`.
        quick: Fewer fields and grids.
    """
    whole = onnx.load(released(folder, folder.name))
    alone = Extractor(whole).extract_model([each.name for each in whole.graph.input], ["solution"])
    model, refined = (responding(released(folder, name)) for name in (folder.name, f"{folder.name}_refined"))
    methods = {
        "prediction alone": responding(alone.SerializeToString()),
        "network": model,
        "network, then more iterations": lambda field: (model(field), refined(field))[1],
        "network, then classical solver": lambda field: (model(field), solved(field))[1],
    }
    samples = [physics.darcy.sample(SEED + n) for n in range(2 if quick else 8)]
    with threadpool_limits(1):
        for points in (85,) if quick else (85, 141, 421):
            inputs, truth = (np.stack([physics.darcy.restrict(pair[n], points) for pair in samples]) for n in range(2))
            sides = {name: timed(method) for name, method in methods.items()}
            for name, found in interleave(sides, [(each.astype(np.float32),) for each in inputs], 1).items():
                solutions, bounds = np.split(np.stack(found.outputs), [points], axis=1)
                yield {
                    "grid": points,
                    "fields": len(inputs),
                    "method": name,
                    "bound": None if np.isnan(bounds).any() else bounds.max().item(),
                    "error": relative_l2(solutions, truth).mean().item(),
                    "seconds": found.seconds,
                }


def responding(graph: Path | bytes) -> Callable[[Array], Array]:
    """Return a graph as a map of a field to its solution, with a last row that holds the bound (NaN for none)."""
    session = one_thread(graph)
    names = [name for name in ("solution", "error_bound") if name in {each.name for each in session.get_outputs()}]
    # Without names every output is computed, as for a response.
    every = None if len(names) > 1 else names

    def respond(field: Array) -> Array:
        found = dict(zip((each.name for each in session.get_outputs()), session.run(every, feed(session, field[None]))))  # noqa: B905
        return with_bound(found["solution"][0], found.get("error_bound", np.full(1, np.nan)).item())

    return respond


def solved(field: Array) -> Array:
    """Return the solution of the classical solver as the gateway sends it, in float32, and its bound."""
    found = physics.darcy.solve(field).astype(np.float32)
    return with_bound(found, physics.darcy.bound(field, found))


def with_bound(solution: Array, bound: float) -> Array:
    """Append a row that holds the bound."""
    return np.concatenate([solution, np.full((1, solution.shape[1]), bound)])
