r"""The most probable coefficients and the Gaussian approximation of the posterior around them (Laplace).

The steps are those of Gauss-Newton in a trust region (`scipy.optimize.least_squares`), with the residuals
:math:`r(\xi) = ((F(a(\xi)) - d) / \sigma, \xi)`: some ten of them, where L-BFGS takes a hundred. Near the optimum the
posterior is :math:`N(\xi^*, (J^T J + 1)^{-1})`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import least_squares

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from scipy.optimize import OptimizeResult

    from serving.inversion.posterior import Coordinates, Posterior

    Report = Callable[["Progress"], None]

# Of the objective, a half sum of squares: a thousandth of it is far below what the measurements distinguish.
TOLERANCE = 1e-3
TAIL = 1024
"""Modes of the draws: those beyond the estimated ones, which the sensors hardly see, keep their prior distribution."""

LEVELS = (0.05, 0.95)


@dataclass(frozen=True)
class Progress:
    """How far an estimate has come.

    Attributes:
        iterations: Gauss-Newton steps so far.
        misfit: Root mean square of (model - measurement) / deviation; about 1 where the model explains the data.
        objective: The objective J.
    """

    iterations: int = 0
    misfit: float | None = None
    objective: float | None = None


@dataclass(frozen=True, eq=False)
class Estimate:
    """The posterior's Gaussian approximation.

    Attributes:
        coefficients: The most probable coefficients [K].
        root: R [K, K] with the covariance R R^T.
        predicted: The model's values at the sensors [S].
        progress: Of the last step.
        converged: Whether the steps ended before their limit.
    """

    coefficients: NDArray[np.float64]
    root: NDArray[np.float64]
    predicted: NDArray[np.float64]
    progress: Progress
    converged: bool

    def draw(self, samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw coefficients [samples, K]."""
        noise = rng.standard_normal((samples, len(self.coefficients)))
        return np.asarray(self.coefficients + noise @ self.root.T)


@dataclass(frozen=True, eq=False)
class Summary:
    """The posterior of the unknown input, point by point: each [rows, columns] in its units.

    Attributes:
        optimum: The input of the most probable coefficients.
        mean: The mean of the draws.
        deviation: Their standard deviation.
        lower: Their 5 % quantile.
        upper: Their 95 % quantile.
    """

    optimum: NDArray[np.float32]
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]


def estimate(
    posterior: Posterior, start: NDArray[np.float64], iterations: int, report: Report = lambda _: None
) -> Estimate:
    """Maximise the posterior density, and approximate it there.

    Args:
        posterior: The posterior.
        start: Coefficients [K] to start from; zeros are the prior's mean.
        iterations: Most evaluations of the model, about one per step.
        report: Called after every step.
    """
    latest = Progress()

    def residuals(xi: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([posterior.residuals(xi[None])[0], xi])

    def jacobian(xi: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.vstack([posterior.jacobian(xi), np.eye(posterior.modes)])

    def progress(intermediate_result: OptimizeResult) -> None:  # SciPy passes it by this name
        nonlocal latest
        step = intermediate_result
        data = max(2 * step.cost - step.x @ step.x, 0.0)
        latest = Progress(step.nit, float(np.sqrt(data / len(posterior.values))), float(step.cost))
        report(latest)

    ends = TOLERANCE
    found = least_squares(
        residuals, start, jacobian, max_nfev=iterations, callback=progress, ftol=ends, xtol=ends, gtol=ends
    )
    scaled = found.fun[: len(posterior.values)]
    return Estimate(
        coefficients=found.x,
        root=_inverse_root(np.asarray(found.jac)),
        predicted=posterior.values + posterior.deviation * scaled,
        progress=replace(latest, misfit=float(np.sqrt(np.square(scaled).mean())), objective=float(found.cost)),
        converged=found.status > 0,
    )


def summarise(
    found: Estimate,
    coordinates: Coordinates,
    samples: int,
    rng: np.random.Generator,
    rows_at_once: int = 16,
    check: Callable[[], None] = lambda: None,
) -> Summary:
    """Summarise draws of the posterior.

    Args:
        found: The approximation of the posterior.
        coordinates: The inputs of its coefficients.
        samples: How many draws.
        rng: The generator.
        rows_at_once: Rows of the grid that are computed together, which bounds the memory.
        check: Called before each of these parts; what it raises ends the work.
    """
    basis = coordinates.basis
    tail = replace(basis, modes=max(basis.modes, TAIL))
    beyond = rng.standard_normal((samples, tail.modes - basis.modes))
    drawn = replace(coordinates, basis=tail)
    coefficients = np.hstack([found.draw(samples, rng), beyond])
    parts: list[NDArray[np.float32]] = []
    for start in range(0, len(coordinates.rows), rows_at_once):
        check()
        parts.append(_moments(replace(drawn, rows=coordinates.rows[start : start + rows_at_once]).inputs(coefficients)))
    optimum = coordinates.inputs(found.coefficients[None])[0]
    return Summary(optimum.astype(np.float32), *np.concatenate(parts, axis=1))


def _moments(fields: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return mean, deviation and quantiles [4, rows, columns] of fields [samples, rows, columns]."""
    lower, upper = np.quantile(fields, LEVELS, axis=0)
    return np.stack([fields.mean(axis=0), fields.std(axis=0), lower, upper]).astype(np.float32)


def _inverse_root(jacobian: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R with R R^T = (J^T J)^-1, for a Jacobian that includes the prior's rows."""
    factor = cholesky(jacobian.T @ jacobian, lower=True)
    return np.asarray(solve_triangular(factor, np.eye(len(factor)), lower=True).T)
