"""The estimate is the maximum of the posterior, and its covariance is right where the posterior is Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from physics import darcy
from physics.numerics.grid import axis
from physics.numerics.volumes import Linearised
from physics.posterior.laplace import Coordinates, Posterior, Progress, estimate, summarise
from physics.posterior.prior import KarhunenLoeve, LogNormal, TwoMaterials
from physics.posterior.sensors import Sensors, lattice

Fields = NDArray[np.float64]
POINTS = 15


@dataclass
class Linear:
    """The logarithm of the input: a linear problem in the coefficients of a log-normal prior."""

    field: Fields

    @property
    def solution(self) -> Fields:
        return np.log(self.field)

    def pull(self, cotangents: Fields) -> Fields:
        return cotangents / self.field

    def push(self, tangents: Fields) -> Fields:
        return tangents / self.field


def coordinates(modes: int, material: LogNormal | TwoMaterials) -> Coordinates:
    return Coordinates(KarhunenLoeve(modes), material, axis(POINTS), axis(POINTS))


def posterior(modes: int, sensors: int, linearise: Callable[[Fields], Any], seed: int = 0) -> tuple[Posterior, Fields]:
    """Return the posterior of simulated measurements, and the true coefficients."""
    rng, at = np.random.default_rng(seed), coordinates(modes, LogNormal())
    [truth] = at.basis.sample(1, rng)
    watch = Sensors(lattice(sensors), at.rows, at.columns)
    [clean] = watch.observe(linearise(at.inputs(truth[None])[0]).solution[None])
    deviation = np.full(len(clean), 0.01 * np.abs(clean).max())
    return Posterior(at, watch, clean + deviation * rng.standard_normal(len(clean)), deviation, linearise, 3), truth


@pytest.mark.parametrize("sensors", [3, 5])
def test_the_jacobian_is_the_limit_of_central_differences(sensors: int) -> None:
    """With 9 sensors it is computed by products with the transpose, with 25 by tangents; 16 modes are between."""
    problem, xi = posterior(16, sensors, Linearised)
    steps = 1e-4 * np.eye(16)
    central = np.array([problem.residuals(xi + step) - problem.residuals(xi - step) for step in steps]).T / 2e-4
    np.testing.assert_allclose(problem.jacobian(xi), central, rtol=1e-4, atol=1e-4)


def test_the_estimate_of_a_linear_problem_is_the_gaussian_posterior() -> None:
    problem, _ = posterior(12, 4, Linear)
    found = estimate(problem, 20)
    matrix = problem.jacobian(np.zeros(12))
    precision = matrix.T @ matrix + np.eye(12)
    expected = -np.linalg.solve(precision, matrix.T @ problem.residuals(np.zeros(12)))
    assert found.converged
    np.testing.assert_allclose(found.coefficients, expected, atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.T, np.linalg.inv(precision), rtol=1e-6, atol=1e-12)
    drawn = found.draw(20_000, np.random.default_rng(1))
    np.testing.assert_allclose(np.cov(drawn.T), np.linalg.inv(precision), atol=0.03)


def test_a_flow_is_recovered_and_progress_is_reported() -> None:
    problem, truth = posterior(16, 6, Linearised)
    reported: list[Progress] = []
    found = estimate(problem, 30, reported.append)
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
    problem, _ = posterior(12, 4, Linear)
    found = estimate(problem, 20)
    few, many = (summarise(found, problem.coordinates, 50, np.random.default_rng(2), rows) for rows in (4, 100))
    for name in ("optimum", "mean", "deviation", "lower", "upper"):
        np.testing.assert_allclose(few[name], many[name], rtol=1e-6)
    assert (few["lower"] < few["upper"]).all()
    # The modes that are not estimated are as uncertain as in the prior: the deviation is above that of the draws alone.
    drawn = problem.coordinates.inputs(found.draw(500, np.random.default_rng(3))).std(axis=0)
    assert few["deviation"].mean() > 1.05 * drawn.mean()


def test_the_measurements_of_most_of_the_prior_are_covered() -> None:
    """The 90 % intervals of the linear problem cover 90 % of the true coefficients, which the prior draws."""
    covered = []
    for seed in range(30):
        problem, truth = posterior(12, 4, Linear, seed)
        found = estimate(problem, 20)
        scores = (found.coefficients - truth) / np.sqrt(np.square(found.root).sum(axis=1))
        covered.append(np.abs(scores) < 1.645)
    assert np.mean(covered) == pytest.approx(0.9, abs=0.05)


def test_every_product_and_every_part_of_a_summary_can_be_the_last() -> None:
    """A job that is cancelled ends soon, also between the products at one input, whose factors are kept."""
    calls, made = [], []

    def check() -> None:
        calls.append(None)
        if len(calls) > 2:
            raise KeyboardInterrupt

    def linearise(field: Fields) -> Linear:
        made.append(field)
        return Linear(field)

    problem, xi = posterior(12, 4, linearise)
    found = estimate(problem, 20)
    made.clear()
    problem.check = check
    problem.residuals(xi)
    with pytest.raises(KeyboardInterrupt):
        problem.jacobian(xi)
    assert len(made) == 1
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        summarise(found, problem.coordinates, 10, np.random.default_rng(0), 4, check)
