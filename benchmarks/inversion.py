"""Inversion from sensors: the network's derivatives beside the finite volumes and their adjoint, in one optimiser.

A case is a permeability of the prior on 421 x 421 cells, its pressure at 64 sensors, and noise. Both methods invert on
85 x 85 points. The score is the error of the mean, the coverage of the 90 % intervals, and the processor time of the
estimate, without that of the draws, which is the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Array, ResultFile, Row, newest_graph, one_thread
from physics import darcy
from physics.numerics.grid import CELLS, axis, relative_l2
from physics.numerics.volumes import Linearised
from physics.posterior.laplace import Coordinates, Posterior, estimate, summarise
from physics.posterior.prior import KarhunenLoeve, LogNormal, Material, TwoMaterials
from physics.posterior.sensors import Sensors, lattice
from physics.registry import Linear

Linearise = Callable[[Array], Linear]
Summary = dict[str, NDArray[np.float32]]


POINTS, SIDE = 85, 8  # of the grid of the inversion, and sensors along each axis
NOISE = 0.01  # deviation of the measurements, relative to the root mean square of the pressure at the sensors
MODES, SHARP = 2048, 1e-6  # of the true fields: far more than are estimated; width of the step between true materials
BATCH, ITERATIONS, SAMPLES, CASES, DRAWN = 64, 50, 200, 50, 3
NETWORK, CLASSICAL = "network (vjp, jvp)", "finite volumes (adjoint)"
FACTS = {"points": POINTS, "sensors": SIDE**2, "noise": NOISE, "modes": KarhunenLoeve().modes}


@dataclass(frozen=True)
class Prior:
    """A prior: what the inversions assume, and what draws the true permeabilities."""

    name: str
    material: Material
    truth: Material
    #: An interval that misses the truth by less than this still covers it: the assumed step between two materials
    #: reaches neither of them.
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
    """The graphs of `darcy` and its derivatives at a permeability [rows, columns], in ONNX Runtime on one thread."""

    def __init__(self, graphs: dict[str, Any], permeability: Array) -> None:
        self._graphs, self._permeability = graphs, permeability
        self.solution = self._run("darcy", "solution", {}, 1)[0]

    def pull(self, cotangents: Array) -> Array:
        """Return the gradients of the inner products of the pressure and the cotangents [batch, rows, columns]."""
        vectors = {"cotangents.solution": cotangents}
        return self._run("darcy_vjp", "gradients.coefficient", vectors, len(cotangents))

    def push(self, tangents: Array) -> Array:
        """Return the derivatives of the pressure along directions of the permeability [batch, rows, columns]."""
        vectors = {"tangents.coefficient": tangents, "tangents.source": np.zeros_like(tangents)}
        return self._run("darcy_jvp", "tangents.solution", vectors, len(tangents))

    def _run(self, model: str, output: str, vectors: dict[str, Array], count: int) -> Array:
        inputs = np.repeat(self._permeability[None], count, axis=0)
        arrays = {"coefficient": inputs, "source": np.ones_like(inputs), **vectors}
        sent = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        return np.asarray(self._graphs[model].run([output], sent)[0], dtype=np.float64)


def methods(repository: Path) -> dict[str, Linearise]:
    """Return both forward models by name, as functions of a permeability."""
    names = ("darcy", "darcy_vjp", "darcy_jvp")
    graphs = {name: one_thread(newest_graph(repository / name)) for name in names}
    return {NETWORK: partial(Network, graphs), CLASSICAL: Linearised}


def measure(repository: Path, kept: ResultFile, *, quick: bool) -> Iterator[Row]:
    """Yield a row per case and method."""
    done, error = {(row["prior"], row["seed"], row["method"]) for row in kept.rows}, model_error(repository)
    yield from kept.rows[:]
    forwards = methods(repository)
    for seed in range(2 if quick else CASES):
        for case in (Case(prior, seed) for prior in PRIORS):
            for name, forward in forwards.items():
                if (case.prior.name, seed, name) not in done:
                    yield kept.add(invert(case, name, forward, error)[0])


def invert(case: Case, name: str, forward: Linearise, model_error: float) -> tuple[Row, Summary]:
    """Invert one case."""
    points, (values, noise) = axis(POINTS), case.measurements
    deviation = np.hypot(noise, model_error * np.sqrt(np.square(values).mean()))
    coordinates = Coordinates(KarhunenLoeve(), case.prior.material, points, points)
    sensors = Sensors(lattice(SIDE), points, points)
    problem = Posterior(coordinates, sensors, values, np.full(len(values), deviation), forward, BATCH)
    start = time.process_time()
    found = estimate(problem, ITERATIONS)
    seconds = time.process_time() - start
    summary = summarise(found, problem.coordinates, SAMPLES, np.random.default_rng(case.seed))
    truth, slack = case.truth, case.prior.slack
    covered = (summary["lower"] - slack <= truth) & (truth <= summary["upper"] + slack)
    return {
        "prior": case.prior.name,
        "seed": case.seed,
        "method": name,
        "error": float(relative_l2(summary["mean"][None], truth[None])[0]),
        "optimum": float(relative_l2(summary["optimum"][None], truth[None])[0]),
        "coverage": float(covered.mean()),
        "width": float((summary["upper"] - summary["lower"]).mean() / truth.mean()),
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
        fields = (case.truth, learnt["mean"], classical["mean"])
        images = [panel.imshow(field, **limits) for panel, field in zip(row[:3], fields, strict=True)]
        figure.colorbar(images[2], ax=row[2])
        figure.colorbar(
            row[3].imshow(learnt["deviation"], origin="lower", extent=(0, 1, 0, 1), cmap="magma"), ax=row[3]
        )
        rows, columns = np.moveaxis(lattice(SIDE), -1, 0)
        row[0].plot(columns, rows, "w.", markersize=3)
        row[0].set_ylabel(prior.name)
        for panel, title in zip(row, titles, strict=True):
            panel.set_title(title, fontsize=10)
            panel.set_xticks([])
            panel.set_yticks([])
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
