"""What models say about their error: how close bounds are, how often estimates hold, what a tolerance costs.

Predictions are those of the released graphs in ONNX Runtime on one thread, with the source 1, continued as the gateway
continues them: what the network does not solve well enough, and what is unlike its training data, by the refined graph
and then by the classical solver. The truth is the solution on 421 x 421 cells. Bounds are compared with the distances
of the prediction to two solutions on its own grid, from sparse factorisations in double precision: that of the equation
as it was sent, and that of the equation whose conductances the network corrected.

Foreign inputs of `burgers` and `navier_stokes` are continued in the same way. Their truths are integrated on finer
grids and with smaller steps, from the trigonometric interpolant of the input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx.utils import Extractor
from scipy.sparse.linalg import splu
from threadpoolctl import threadpool_limits

import physics.darcy
from benchmarks.harness import Array, Row, feed, interleave, one_thread, timed
from export.released import FOLDER, GRAPH
from export.triton_config import CARD
from physics import burgers, cole_hopf, navier_stokes
from physics.families import FAMILIES
from physics.numerics import volumes
from physics.numerics.grid import CELLS, WALL, axis, relative_l2
from schema.card import FRAME, Card
from serving.quality import (
    ANY,
    BY,
    ERROR_BOUND,
    ERROR_ESTIMATE,
    NETWORK,
    NOVELTY,
    OUTSIDE,
    REFINED,
    SOLVE_BOUND,
    SOLVER,
    Quality,
    split,
)
from training import checkpoint
from training.nn.elliptic.certified_gradients import Faces, means
from training.operators.elliptic import EllipticOperator

Bounded: TypeAlias = tuple[Array, float | None]  # a solution and its error bound; None where the graph has none

FAMILY_SEED, SEED, FRAMES = 7_000, 6_000, 10


def line(seed: int) -> Array:
    """Draw an initial velocity of the training distribution."""
    return burgers.example(512, seed)


def vorticity(seed: int) -> Array:
    """Draw the vorticity of a training trajectory's start."""
    return np.asarray(navier_stokes.initial_vorticity(np.random.default_rng(seed), 1)[0])


LINES: dict[str, Callable[[int], Array]] = {
    "as trained": line,
    "five times as large": lambda seed: 5 * line(seed),
    "fronts": lambda seed: np.sign(line(seed)),
    "short waves": lambda seed: np.roll(np.sin(8 * np.pi * np.arange(512) / 512), seed),
    "white noise": lambda seed: np.random.default_rng(seed).standard_normal(512),
}
FLOWS: dict[str, Callable[[int], Array]] = {
    "as trained": vorticity,
    "ten times as fast": lambda seed: 10 * vorticity(seed),
    "thirty times as fast": lambda seed: 30 * vorticity(seed),
    "patches": lambda seed: 2 * np.sign(vorticity(seed)),
    "white noise": lambda seed: np.random.default_rng(seed).standard_normal((64, 64)),
}
"""Initial velocities and vorticities by a seed; those but the first are unlike the training data."""


def released(checkpoint: Path, name: str) -> Path:
    """Return a released graph of a checkpoint: that of the model, or of a companion."""
    return checkpoint / FOLDER / name / GRAPH


@dataclass(frozen=True)
class Graph:
    """A released graph and its card."""

    session: Any
    card: Card

    @classmethod
    def of(cls, checkpoint: Path, name: str) -> Graph:
        """Open a released graph of a checkpoint on one thread."""
        path = released(checkpoint, name)
        return cls(one_thread(path), Card.model_validate(json.loads(path.with_name(CARD).read_text())))

    def __call__(self, fields: Array) -> tuple[Array, Quality]:
        """Return the outputs for inputs `[B, *grid]`, of trajectories `FRAMES` frames, and what is known about them."""
        names = [each.name for each in self.session.get_outputs()]
        more = {each.name: np.full(len(fields), each.default, np.float32) for each in self.card.parameters}
        if self.card.frames is not None:
            more[FRAME] = np.zeros((len(fields), FRAMES), np.int32)
        results = dict(zip(names, self.session.run(names, feed(self.session, fields) | more), strict=True))
        outputs, quality = split(results, self.card.quality)
        return outputs[self.card.outputs[0].name], quality


def respond(network: Graph, refined: Graph, fields: NDArray[np.float32]) -> tuple[Array, Quality]:
    """Return the solutions that the gateway sends for coefficients `[B, H, W]`, and what is known about them."""
    solutions, quality = network(fields)
    verdict = ANY.judge(network.card, quality)
    if (mask := verdict.loose | verdict.out_of_distribution).any():
        solutions[mask], known = refined(fields[mask])
        quality = quality.continued(mask, REFINED, known.numbers)
    if (mask := ANY.judge(network.card, quality, refined.card).loose).any():
        solutions[mask] = [physics.darcy.solve(field) for field in fields[mask]]
        pairs = zip(fields[mask], solutions[mask], strict=True)
        bounds = np.array([physics.darcy.bound(*pair) for pair in pairs], np.float32)
        quality = quality.continued(mask, SOLVER, {ERROR_BOUND: bounds, SOLVE_BOUND: bounds})
    return solutions, quality


def families(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per family of permeabilities and grid, for the checkpoint of `darcy` with its released graphs."""
    operator = cast("EllipticOperator", checkpoint.load_operator(folder).operator).double()
    graphs = [Graph.of(folder, name) for name in (folder.name, f"{folder.name}_refined")]
    for family in FAMILIES:
        samples = drawn(family, range(FAMILY_SEED, FAMILY_SEED + (1 if quick else 8)))
        for grid in (43,) if quick else (43, 85, 141, 211):
            yield row(family, grid, samples, operator, graphs)


def drawn(family: str, seeds: Sequence[int]) -> list[tuple[Array, Array]]:
    """Return fields of a family and their solutions, on the whole mesh."""
    fields = (FAMILIES[family](np.random.default_rng(seed), axis(CELLS)) for seed in seeds)
    return [(field, physics.darcy.solve(field)) for field in fields]


def row(
    family: str, grid: int, samples: list[tuple[Array, Array]], operator: EllipticOperator, graphs: Sequence[Graph]
) -> Row:
    """Return errors of responses and finite volumes, bounds divided by what they bound, and shares of the fields.

    `samples` are fields and their solutions; the operator is in double precision; `graphs` are the model and its
    refinement.
    """
    fields, truths = (np.stack([physics.darcy.restrict(pair[n], grid) for pair in samples]) for n in range(2))
    batch, (network, refined) = fields.astype(np.float32), graphs
    solutions, quality = respond(network, refined, batch)
    numbers = {name: values.astype(float) for name, values in quality.numbers.items()}
    pairs = list(zip(batch, solutions, strict=True))
    to_plain = [distance(means(tensor(field)), solution) for field, solution in pairs]
    to_own = [
        distance(operator.faces(tensor(field)), solution) if by == NETWORK else plain
        for (field, solution), by, plain in zip(pairs, quality.by, to_plain, strict=True)
    ]
    quotients = np.concatenate([numbers[ERROR_BOUND] / to_plain, numbers[SOLVE_BOUND] / to_own])
    errors = relative_l2(solutions.astype(float), truths)
    plain = relative_l2(np.stack([physics.darcy.solve(field) for field in fields]), truths)
    estimates = numbers[ERROR_ESTIMATE]
    estimated = np.isfinite(estimates)
    return {
        "family": family,
        "grid": grid,
        "fields": len(fields),
        "finite_volumes": plain.mean().item(),
        "finite_volumes_standard_error": standard_error(plain),
        "error": errors.mean().item(),
        "standard_error": standard_error(errors),
        "ratio": (errors.mean() / plain.mean()).item(),
        "error_bound": numbers[ERROR_BOUND].max().item(),
        "solve_bound": numbers[SOLVE_BOUND].max().item(),
        "closest": quotients.min().item(),
        "loosest": quotients.max().item(),
        "estimate": estimates[estimated].mean().item() if estimated.any() else None,
        "covered": (errors <= estimates)[estimated].mean().item() if estimated.any() else None,
        "outside": (numbers[NOVELTY] < OUTSIDE).mean().item(),
        "solved_by": {name: int((quality.by == index).sum()) for index, name in enumerate(BY)},
    }


def foreign(checkpoints: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per model and family of inputs: errors of the network, of the method alone, and of the response."""
    for model, family, draw, method, exact in (
        *(("burgers", *each, cole_hopf.converged, fine_line) for each in LINES.items()),
        *(("navier_stokes", *each, flow, fine_flow) for each in FLOWS.items()),
    ):
        fields = np.stack([draw(FAMILY_SEED + n) for n in range(2 if quick else 8)]).astype(np.float32)
        graph = Graph.of(checkpoints / model, model)
        found, quality = graph(fields)
        solved, truth = (np.stack([of(field) for field in fields]).reshape(len(fields), -1) for of in (method, exact))
        network = found.reshape(truth.shape)
        continued = ANY.judge(graph.card, quality).out_of_distribution
        sides = {"network": network, "method": solved, "response": np.where(continued[:, None], solved, network)}
        errors = {name: relative_l2(each.astype(float), truth) for name, each in sides.items()}
        yield {
            "model": model,
            "family": family,
            "fields": len(fields),
            **{name: each.mean().item() for name, each in errors.items()},
            **{f"{name}_standard_error": standard_error(each) for name, each in errors.items()},
            "continued": int(continued.sum()),
        }


def fine_line(initial: Array) -> Array:
    """Return the velocity at t = 1 by spectral integration on 8,192 points with a quarter of the usual step."""
    return burgers.solve(initial, resolution=8192, step=burgers.STEP / 4)


def flow(initial: Array) -> Array:
    """Return `FRAMES` frames by the solver of the service."""
    return navier_stokes.trajectory(initial, FRAMES, 1.0)


def fine_flow(initial: Array) -> Array:
    """Return the same frames from twice as many points per axis, at those of the input."""
    rows = burgers.interpolate(initial.astype(float), 2 * initial.shape[1])
    whole = burgers.interpolate(rows.T, 2 * initial.shape[0]).T
    return navier_stokes.trajectory(whole, FRAMES, 1.0)[:, ::2, ::2]


def standard_error(values: Array) -> float | None:
    """Return the standard error of a mean; None for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def tensor(field: Array) -> torch.Tensor:
    """Return a field as a batch of one in double precision."""
    return torch.from_numpy(np.asarray(field, np.float64))[None]


@torch.inference_mode()
def distance(faces: Faces, solution: NDArray[np.float32]) -> float:
    """Return how far a prediction [rows, columns] is from the solution for coefficients of the faces, in their norm."""
    matrix = volumes.assembled(*volumes.weighted(faces.across[0].numpy(), faces.down[0].numpy(), WALL)).tocsc()
    exact = splu(matrix).solve(volumes.areas(solution.shape, WALL).ravel())
    missing = exact - solution.astype(float).ravel()
    return float(np.sqrt((missing @ (matrix @ missing)) / (exact @ (matrix @ exact))))


def tolerance(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per grid and response: its largest bound, mean error, and median seconds per field.

    The responses are those of the gateway: the pressure alone, the model with all that is known about its error, the
    model and then `darcy_refined`, the model and then the classical solver. The last two solve the plain equation.
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
                solutions, bounds = zip(*found.outputs, strict=True)
                errors = relative_l2(np.stack(solutions), truth)
                yield {
                    "grid": points,
                    "fields": len(inputs),
                    "method": name,
                    "bound": None if None in bounds else max(bounds),
                    "error": errors.mean().item(),
                    "standard_error": standard_error(errors),
                    "seconds": found.seconds,
                }


def responding(graph: Path | bytes) -> Callable[[Array], Bounded]:
    """Return a graph as a map of a field to its solution and bound; every output is computed, as for a response."""
    session = one_thread(graph)
    names = [each.name for each in session.get_outputs()]

    def respond(field: Array) -> Bounded:
        found = dict(zip(names, session.run(None, feed(session, field[None])), strict=True))
        return found["solution"][0], found["error_bound"].item() if "error_bound" in found else None

    return respond


def solved(field: Array) -> Bounded:
    """Return the solution of the classical solver as the gateway sends it, in float32, and its bound."""
    found = physics.darcy.solve(field).astype(np.float32)
    return found, float(physics.darcy.bound(field, found))
