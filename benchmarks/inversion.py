"""Inversion from sensors: the network's derivatives beside the finite volumes and their adjoint, in one optimiser.

A case is a permeability of the prior on 421 x 421 cells, its pressure at 64 sensors, and noise. Both methods invert on
85 x 85 points. The score is the error of the mean, the coverage of the 90 % intervals, and the processor time of the
estimate, without that of the draws, which is the same.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.harness import newest_graph, one_thread
from physics import darcy
from physics.numerics.grid import CELLS, axis, relative_l2
from physics.numerics.volumes import Linearised
from physics.posterior.prior import KarhunenLoeve, LogNormal, TwoMaterials
from physics.posterior.sensors import Sensors, lattice
from serving.inversion.estimate import estimate, summarise
from serving.inversion.posterior import ClassicalModel, Coordinates, Posterior

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.harness import Array, Kept, Row
    from physics.posterior.prior import Material
    from serving.inversion.estimate import Summary
    from serving.inversion.posterior import Forward

POINTS, SIDE = 85, 8  # of the grid of the inversion, and sensors along each axis
NOISE = 0.01  # deviation of the measurements, relative to the root mean square of the pressure at the sensors
MODES, SHARP = 2048, 1e-6  # of the true fields: far more than are estimated; width of the step between true materials
BATCH, ITERATIONS, SAMPLES, CASES, DRAWN = 64, 50, 200, 50, 3
NETWORK, CLASSICAL = "network (vjp, jvp)", "finite volumes (adjoint)"
FACTS = {"points": POINTS, "sensors": SIDE**2, "noise": NOISE, "modes": KarhunenLoeve().modes}


@dataclass(frozen=True)
class Prior:
    """A prior, and what draws the true permeabilities.

    Attributes:
        name: Its name in the tables.
        material: What the inversions assume.
        truth: What the permeabilities are.
        slack: An interval that misses the truth by less than this still covers it: the assumed step between two
            materials reaches neither of them.
    """

    name: str
    material: Material
    truth: Material
    slack: float = 0.0


PRIORS = (
    Prior("smooth (log-normal)", LogNormal(), LogNormal()),
    Prior("two materials", TwoMaterials(), TwoMaterials(width=SHARP), slack=0.09),
)


@dataclass(frozen=True)
class Case:
    """A true permeability with measurements, by its prior and the seed of permeability and noise."""

    prior: Prior
    seed: int

    @cached_property
    def fine(self) -> Array:
        """The permeability on 421 x 421 cells."""
        basis, points = KarhunenLoeve(MODES), axis(CELLS)
        field = basis.field(basis.sample(1, np.random.default_rng([self.seed, 0])), points, points)
        return np.asarray(self.prior.truth.permeability(field)[0])

    @property
    def truth(self) -> Array:
        """The permeability [POINTS, POINTS] on the grid of the inversion."""
        return np.asarray(darcy.restrict(self.fine, POINTS), dtype=np.float64)

    @cached_property
    def measurements(self) -> tuple[Array, float]:
        """The measured pressures at the sensors, and the standard deviation of their errors."""
        points = axis(CELLS)
        clean = Sensors(lattice(SIDE), points, points).observe(darcy.solve(self.fine)[None])[0]
        deviation = NOISE * float(np.sqrt(np.square(clean).mean()))
        return clean + deviation * np.random.default_rng([self.seed, 1]).standard_normal(len(clean)), deviation


class Network:
    """The graphs of `darcy` and its derivatives as a forward model, in ONNX Runtime on one thread."""

    def __init__(self, repository: Path) -> None:
        names = {"solve": "darcy", "pull": "darcy_vjp", "push": "darcy_jvp"}
        self._graphs = {kind: one_thread(newest_graph(repository / name)) for kind, name in names.items()}

    def solve(self, inputs: Array) -> Array:
        """Return the pressures of permeabilities [batch, rows, columns]."""
        return self._run("solve", ["solution"], inputs, {})[0]

    def pull(self, inputs: Array, cotangents: Array) -> tuple[Array, Array]:
        """Return the pressures, and the gradients of their inner products with the cotangents."""
        vectors = {"cotangents.solution": cotangents}
        pressure, gradients = self._run("pull", ["solution", "gradients.coefficient"], inputs, vectors)
        return pressure, gradients

    def push(self, inputs: Array, tangents: Array) -> tuple[Array, Array]:
        """Return the pressures, and their derivatives along the tangents."""
        vectors = {"tangents.coefficient": tangents, "tangents.source": np.zeros_like(inputs)}
        pressure, derivatives = self._run("push", ["solution", "tangents.solution"], inputs, vectors)
        return pressure, derivatives

    def _run(self, kind: str, names: list[str], inputs: Array, vectors: dict[str, Array]) -> list[Array]:
        arrays = {"coefficient": inputs, "source": np.ones_like(inputs), **vectors}
        sent = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        return [np.asarray(found, dtype=np.float64) for found in self._graphs[kind].run(names, sent)]


def methods(repository: Path) -> dict[str, Forward]:
    """Return both forward models by name."""
    return {NETWORK: Network(repository), CLASSICAL: ClassicalModel(Linearised)}


def measure(repository: Path, kept: Kept, *, quick: bool) -> Iterator[Row]:
    """Yield a row per case and method."""
    done, error = {(row["prior"], row["seed"]) for row in kept.rows}, model_error(repository)
    yield from kept.rows[:]
    forwards = methods(repository)
    for seed in range(2 if quick else CASES):
        for case in (Case(prior, seed) for prior in PRIORS if (prior.name, seed) not in done):
            for name, forward in forwards.items():
                yield kept.add(invert(case, name, forward, error)[0])


def invert(case: Case, name: str, forward: Forward, model_error: float) -> tuple[Row, Summary]:
    """Invert one case."""
    points, (values, noise) = axis(POINTS), case.measurements
    deviation = np.hypot(noise, model_error * np.sqrt(np.square(values).mean()))
    coordinates = Coordinates(KarhunenLoeve(), case.prior.material, points, points)
    sensors = Sensors(lattice(SIDE), points, points)
    problem = Posterior(coordinates, sensors, values, np.full(len(values), deviation), forward, BATCH)
    start = time.process_time()
    found = estimate(problem, np.zeros(problem.modes), ITERATIONS)
    seconds = time.process_time() - start
    summary = summarise(found, problem.coordinates, SAMPLES, np.random.default_rng(case.seed))
    truth, slack = case.truth, case.prior.slack
    covered = (summary.lower - slack <= truth) & (truth <= summary.upper + slack)
    return {
        "prior": case.prior.name,
        "seed": case.seed,
        "method": name,
        "error": float(relative_l2(summary.mean[None], truth[None])[0]),
        "optimum": float(relative_l2(summary.optimum[None], truth[None])[0]),
        "coverage": float(covered.mean()),
        "width": float((summary.upper - summary.lower).mean() / truth.mean()),
        "misfit": found.progress.misfit or 0.0,
        "iterations": found.progress.iterations,
        "seconds": seconds,
    }, summary


def model_error(repository: Path) -> float:
    """Return the relative error that the card of `darcy` publishes for the grid, as the service uses it."""
    card = json.loads((newest_graph(repository / "darcy").parent / "card.json").read_text())
    return next(float(each["relative_l2"]) for each in card["errors"] if each["grid"] == [POINTS, POINTS])


def draw(repository: Path, target: Path) -> None:
    """Draw a row per prior: the truth, and the mean and deviation that both methods infer from the sensors."""
    mpl.use("agg")
    figure, axes = plt.subplots(len(PRIORS), 4, figsize=(10.5, 5.2), layout="constrained")
    titles = ("truth and sensors", "mean, network", "mean, finite volumes", "deviation, network")
    error, forwards = model_error(repository), methods(repository).values()
    for row, prior in zip(axes, PRIORS, strict=True):
        case = Case(prior, DRAWN)
        learnt, classical = (invert(case, "", forward, error)[1] for forward in forwards)
        limits = {"vmin": case.truth.min(), "vmax": case.truth.max(), "origin": "lower", "extent": (0, 1, 0, 1)}
        fields = (case.truth, learnt.mean, classical.mean)
        images = [panel.imshow(field, **limits) for panel, field in zip(row[:3], fields, strict=True)]
        figure.colorbar(images[2], ax=row[2])
        figure.colorbar(row[3].imshow(learnt.deviation, origin="lower", extent=(0, 1, 0, 1), cmap="magma"), ax=row[3])
        rows, columns = np.moveaxis(lattice(SIDE), -1, 0)
        row[0].plot(columns, rows, "w.", markersize=3)
        row[0].set_ylabel(prior.name)
        for panel, title in zip(row, titles, strict=True):
            panel.set_title(title, fontsize=10)
            panel.set_xticks([])
            panel.set_yticks([])
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
