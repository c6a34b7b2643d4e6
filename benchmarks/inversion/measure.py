"""Both methods on simulated cases: error, coverage of the 90 % intervals, and processor time."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.inversion.cases import NOISE, POINTS, PRIORS, SIDE, Case
from benchmarks.inversion.forward import Network
from physics.numerics.adjoint import Linearised
from physics.numerics.grid import axis
from physics.numerics.norms import relative_l2
from physics.posterior.karhunen_loeve import KarhunenLoeve
from physics.posterior.sensors import Sensors, lattice
from serving.inversion.classical import ClassicalModel
from serving.inversion.estimate import estimate, summarise
from serving.inversion.posterior import Coordinates, Posterior
from training.evaluation.timing import processor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from serving.inversion.estimate import Estimate, Summary
    from serving.inversion.posterior import Forward

CASES, QUICK_CASES = 50, 2
BATCH, ITERATIONS, SAMPLES = 64, 50, 200
NETWORK, CLASSICAL, PRIOR = "network (vjp, jvp)", "finite volumes (adjoint)", "prior alone"
HEADER = (
    "permeability",
    "forward model",
    "error of the mean",
    "standard error",
    "error of the optimum",
    "coverage of 90 % intervals",
    "steps",
    "processor s",
)


@dataclass(frozen=True)
class Row:
    """One inversion.

    Attributes:
        prior: Name of the prior.
        seed: Of the case.
        method: The forward model.
        error: Relative L2 distance of the posterior's mean to the truth.
        optimum: That of the most probable permeability.
        coverage: Share of the grid points whose interval holds the truth.
        width: Mean width of the intervals, relative to the mean permeability.
        misfit: Root mean square of (model - measurement) / deviation.
        iterations: Steps.
        seconds: Processor time of the estimate, without that of the draws, which is the same.
    """

    prior: str
    seed: int
    method: str
    error: float
    optimum: float
    coverage: float
    width: float
    misfit: float
    iterations: int
    seconds: float


def measure(repository: Path, file: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per case and method; those that the file holds are not computed again.

    Args:
        repository: Exported models.
        file: All rows are written here, after each case.
        quick: Measure a few cases, and write nothing.
    """
    rows = [] if quick else known(file)
    done = {(row.prior, row.seed) for row in rows}
    yield from rows
    methods: dict[str, Forward] = {NETWORK: Network(repository), CLASSICAL: ClassicalModel(Linearised)}
    error = model_error(repository)
    for seed in range(QUICK_CASES if quick else CASES):
        for case in (Case(prior, seed) for prior in PRIORS):
            if (case.prior.name, seed) in done:
                continue
            found = [run(case, name, forward, error)[0] for name, forward in methods.items()]
            rows += found
            yield from found
            if not quick:
                write(rows, file)


def run(case: Case, name: str, forward: Forward, model_error: float) -> tuple[Row, Summary]:
    """Invert one case.

    Args:
        case: The case.
        name: Name of the forward model.
        forward: The forward model.
        model_error: Its relative error, which is added to the noise; the same for both.
    """
    problem = posterior(case, forward, model_error)
    start = time.process_time()
    found = estimate(problem, np.zeros(problem.modes), ITERATIONS)
    seconds = time.process_time() - start
    summary = summarise(found, problem.coordinates, SAMPLES, np.random.default_rng(case.seed))
    return score(case, name, (found, summary), seconds), summary


def posterior(case: Case, forward: Forward, model_error: float) -> Posterior:
    """Return the posterior of a case for a forward model."""
    points = axis(POINTS)
    values, noise = case.measurements
    deviation = np.hypot(noise, model_error * np.sqrt(np.square(values).mean()))
    coordinates = Coordinates(KarhunenLoeve(), case.prior.material, points, points)
    sensors = Sensors(lattice(SIDE), points, points)
    return Posterior(coordinates, sensors, values, np.full(len(values), deviation), forward, BATCH)


def score(case: Case, name: str, result: tuple[Estimate, Summary], seconds: float) -> Row:
    """Compare an estimate and its summary with the truth."""
    (found, summary), truth = result, case.truth
    covered = (summary.lower - case.prior.slack <= truth) & (truth <= summary.upper + case.prior.slack)
    return Row(
        prior=case.prior.name,
        seed=case.seed,
        method=name,
        error=float(relative_l2(summary.mean[None], truth[None])[0]),
        optimum=float(relative_l2(summary.optimum[None], truth[None])[0]),
        coverage=float(covered.mean()),
        width=float((summary.upper - summary.lower).mean() / truth.mean()),
        misfit=found.progress.misfit or 0.0,
        iterations=found.progress.iterations,
        seconds=seconds,
    )


def model_error(repository: Path) -> float:
    """Return the relative error that the card of `darcy` publishes for the grid, as the service uses it."""
    version = max((repository / "darcy").glob("[0-9]*"), key=lambda path: int(path.name))
    errors = json.loads((version / "card.json").read_text())["errors"]
    return next(float(each["relative_l2"]) for each in errors if each["grid"] == [POINTS, POINTS])


def known(file: Path) -> list[Row]:
    """Return the rows of an earlier run."""
    return [Row(**row) for row in json.loads(file.read_text())["rows"]] if file.exists() else []


def write(rows: Sequence[Row], file: Path) -> None:
    """Write all rows."""
    settings = {"points": POINTS, "sensors": SIDE**2, "noise": NOISE, "modes": KarhunenLoeve().modes}
    document = {"processor": processor(), **settings, "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(document, indent=1) + "\n")


def table(rows: Sequence[Row]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return means over the cases, a row per prior and method."""
    cells: list[tuple[str, ...]] = []
    for prior in PRIORS:
        for method in (NETWORK, CLASSICAL):
            found = [row for row in rows if (row.prior, row.method) == (prior.name, method)]
            if found:
                cells.append((prior.name, method, *numbers(found)))
    return HEADER, cells


def numbers(found: Sequence[Row]) -> tuple[str, ...]:
    """Return the means of some rows as text."""
    errors = [row.error for row in found]
    spread = statistics.stdev(errors) / len(errors) ** 0.5 if len(errors) > 1 else 0.0
    return (
        f"{statistics.fmean(errors):.3f}",
        f"{spread:.3f}",
        f"{statistics.fmean(row.optimum for row in found):.3f}",
        f"{statistics.fmean(row.coverage for row in found):.2f}",
        f"{statistics.fmean(row.iterations for row in found):.0f}",
        f"{statistics.fmean(row.seconds for row in found):.1f}",
    )
