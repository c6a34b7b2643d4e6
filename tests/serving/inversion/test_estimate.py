"""The estimate is the maximum of the posterior, and its covariance is right where the posterior is Gaussian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from physics import darcy
from physics.numerics.grid import axis
from physics.numerics.volumes import Linearised
from physics.posterior.prior import KarhunenLoeve, LogNormal, TwoMaterials
from physics.posterior.sensors import Sensors, lattice
from serving.inversion.estimate import Progress, estimate, summarise
from serving.inversion.posterior import ClassicalModel, Coordinates, Forward, Posterior

Fields = NDArray[np.float64]
POINTS = 15


@dataclass
class Linear:
    """The logarithm of the input: a linear problem in the coefficients of a log-normal prior."""

    def solve(self, inputs: Fields) -> Fields:
        return np.log(inputs)

    def pull(self, inputs: Fields, cotangents: Fields) -> tuple[Fields, Fields]:
        return np.log(inputs), cotangents / inputs

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        return np.log(inputs), tangents / inputs


def coordinates(modes: int, material: LogNormal | TwoMaterials) -> Coordinates:
    return Coordinates(KarhunenLoeve(modes), material, axis(POINTS), axis(POINTS))


def posterior(modes: int, sensors: int, forward: Forward, seed: int = 0) -> tuple[Posterior, Fields]:
    """Return the posterior of simulated measurements, and the true coefficients."""
    rng, at = np.random.default_rng(seed), coordinates(modes, LogNormal())
    truth = at.basis.sample(1, rng)
    watch = Sensors(lattice(sensors), at.rows, at.columns)
    clean = watch.observe(forward.solve(at.inputs(truth)))[0]
    deviation = np.full(len(clean), 0.01 * np.abs(clean).max())
    return Posterior(at, watch, clean + deviation * rng.standard_normal(len(clean)), deviation, forward, 3), truth[0]


@pytest.mark.parametrize("sensors", [3, 5])
def test_the_jacobian_is_the_limit_of_central_differences(sensors: int) -> None:
    """With 9 sensors it is computed by products with the transpose, with 25 by tangents; 16 modes are between."""
    problem, xi = posterior(16, sensors, ClassicalModel(Linearised))
    steps = 1e-4 * np.eye(16)
    central = (problem.residuals(xi + steps) - problem.residuals(xi - steps)).T / 2e-4
    np.testing.assert_allclose(problem.jacobian(xi), central, rtol=1e-4, atol=1e-4)


def test_the_estimate_of_a_linear_problem_is_the_gaussian_posterior() -> None:
    problem, _ = posterior(12, 4, Linear())
    found = estimate(problem, np.zeros(12), 20)
    matrix = problem.jacobian(np.zeros(12))
    precision = matrix.T @ matrix + np.eye(12)
    expected = -np.linalg.solve(precision, matrix.T @ problem.residuals(np.zeros((1, 12)))[0])
    assert found.converged
    np.testing.assert_allclose(found.coefficients, expected, atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.T, np.linalg.inv(precision), rtol=1e-6, atol=1e-12)
    drawn = found.draw(20_000, np.random.default_rng(1))
    np.testing.assert_allclose(np.cov(drawn.T), np.linalg.inv(precision), atol=0.03)


def test_a_flow_is_recovered_and_progress_is_reported() -> None:
    problem, truth = posterior(16, 6, ClassicalModel(Linearised))
    reported: list[Progress] = []
    found = estimate(problem, np.zeros(16), 30, reported.append)
    assert [step.iterations for step in reported] == sorted(step.iterations for step in reported)
    objectives = [step.objective or 0.0 for step in reported]
    assert objectives == sorted(objectives, reverse=True)
    assert 0.3 < (found.progress.misfit or 0.0) < 1.5
    scores = (found.coefficients - truth) / np.sqrt(np.square(found.root).sum(axis=1))
    assert np.sqrt(np.square(scores).mean()) < 2
    assert np.linalg.norm(found.coefficients - truth) < 0.7 * np.linalg.norm(truth)
    at_sensors = problem.sensors.observe(darcy.solve(problem.coordinates.inputs(found.coefficients[None])[0])[None])[0]
    np.testing.assert_allclose(found.predicted, at_sensors, rtol=1e-6)


def test_a_summary_does_not_depend_on_how_many_rows_are_computed_together() -> None:
    problem, _ = posterior(12, 4, Linear())
    found = estimate(problem, np.zeros(12), 20)
    few, many = (summarise(found, problem.coordinates, 50, np.random.default_rng(2), rows) for rows in (4, 100))
    for name in ("optimum", "mean", "deviation", "lower", "upper"):
        np.testing.assert_allclose(getattr(few, name), getattr(many, name), rtol=1e-6)
    assert (few.lower < few.upper).all()
    # The modes that are not estimated are as uncertain as in the prior: the deviation is above that of the draws alone.
    drawn = problem.coordinates.inputs(found.draw(500, np.random.default_rng(3))).std(axis=0)
    assert few.deviation.mean() > 1.05 * drawn.mean()


def test_the_measurements_of_most_of_the_prior_are_covered() -> None:
    """The 90 % intervals of the linear problem cover 90 % of the true coefficients, which the prior draws."""
    covered = []
    for seed in range(30):
        problem, truth = posterior(12, 4, Linear(), seed)
        found = estimate(problem, np.zeros(12), 20)
        scores = (found.coefficients - truth) / np.sqrt(np.square(found.root).sum(axis=1))
        covered.append(np.abs(scores) < 1.645)
    assert np.mean(covered) == pytest.approx(0.9, abs=0.05)


def test_a_classical_model_takes_batches_of_different_inputs() -> None:
    rng = np.random.default_rng(0)
    inputs, vectors = rng.uniform(1, 5, (3, 9, 11)), rng.standard_normal((3, 9, 11))
    model = ClassicalModel(Linearised)
    for index, (field, vector) in enumerate(zip(inputs, vectors, strict=True)):
        alone = Linearised(field)
        pulled, pushed = model.pull(inputs, vectors), model.push(inputs, vectors)
        np.testing.assert_allclose(pulled[0][index], alone.solution)
        np.testing.assert_allclose(pulled[1][index], alone.pull(vector[None])[0])
        np.testing.assert_allclose(pushed[1][index], alone.push(vector[None])[0])


def test_every_product_and_every_part_of_a_summary_can_be_the_last() -> None:
    """A job that is cancelled ends soon, also between the products at one input."""
    calls = []

    def check() -> None:
        calls.append(None)
        if len(calls) > 2:
            raise KeyboardInterrupt

    field = np.full((9, 11), 6.0)
    model = ClassicalModel(Linearised, check)
    for _ in range(2):
        model.push(field[None], field[None])
    with pytest.raises(KeyboardInterrupt):
        model.pull(field[None], field[None])
    problem, _ = posterior(12, 4, Linear())
    found = estimate(problem, np.zeros(12), 20)
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        summarise(found, problem.coordinates, 10, np.random.default_rng(0), 4, check)
