r"""The posterior of Karhunen-Loève coefficients given measurements at sensors, and its Laplace approximation.

With the prior :math:`\xi \sim N(0, 1)`, the input a(\xi) of a forward model F and measurements d at sensors with
independent errors of deviation sigma, the negative logarithm of the posterior density is

.. math::
    J(\xi) = \frac12 \sum_s \left(\frac{F(a(\xi))_s - d_s}{\sigma_s}\right)^2 + \frac12 |\xi|^2.

The steps to its minimum are those of Gauss-Newton in a trust region (`scipy.optimize.least_squares`): some ten of them,
where L-BFGS takes a hundred. Near the optimum the posterior is :math:`N(\xi^*, (J^T J + 1)^{-1})`, J the Jacobian of
the scaled residuals. Where the model runs is unknown here: it is a function that returns a `physics.registry.Linear`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import least_squares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from scipy.optimize import OptimizeResult

    from physics.posterior.prior import KarhunenLoeve, Material
    from physics.posterior.sensors import Sensors
    from physics.registry import Linear

    Array = NDArray[np.float64]
    Report = Callable[["Progress"], None]

# Of the objective, a half sum of squares: a thousandth of it is far below what the measurements distinguish.
TOLERANCE = 1e-3
#: Modes of the draws: those beyond the estimated ones, which the sensors hardly see, keep their prior distribution.
TAIL = 1024


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The input of the forward model as a function of Karhunen-Loève coefficients.

    The `material` maps the Gaussian field of the modes of `basis` to the input, at the positions of rows and columns.
    """

    basis: KarhunenLoeve
    material: Material
    rows: Array
    columns: Array

    def inputs(self, coefficients: Array) -> Array:
        """Return inputs [batch, rows, columns] of coefficients [batch, K]."""
        return self.material.permeability(self.basis.field(coefficients, self.rows, self.columns))


@dataclass(eq=False)
class Posterior:
    """The posterior of the coefficients."""

    coordinates: Coordinates  # the inputs
    sensors: Sensors  # on the grid of the inputs
    values: Array  # measurements d [S]
    deviation: Array  # their standard deviation sigma [S]
    linearise: Callable[[Array], Linear]  # an input [rows, columns] to the model there, with its products
    batch: int = 16  # most products of one call
    check: Callable[[], None] = lambda: None  # before every call of the model; what it raises ends the work
    _last: tuple[bytes, Linear] | None = None  # kept, since a Jacobian follows the residuals of the same coefficients

    def residuals(self, xi: Array) -> Array:
        """Return (F - d) / sigma [S] at coefficients [K]."""
        found = self._at(xi).solution
        return np.asarray((self.sensors.observe(found[None])[0] - self.values) / self.deviation)

    def jacobian(self, xi: Array) -> Array:
        """Return the derivatives of the residuals [S, K] at coefficients [K], by the fewer products of two kinds."""
        at, model = self.coordinates, self._at(xi)
        slope = at.material.slope(at.basis.field(xi[None], at.rows, at.columns))
        found = []
        if len(self.values) < at.basis.modes:
            for piece in self._pieces(np.diag(1 / self.deviation)):
                gradients = model.pull(self.sensors.adjoint(piece))
                found.append(at.basis.adjoint(gradients * slope, at.rows, at.columns))
            return np.concatenate(found)
        for piece in self._pieces(np.eye(at.basis.modes)):
            tangents = model.push(slope * at.basis.field(piece, at.rows, at.columns))
            found.append(self.sensors.observe(tangents))
        return np.asarray(np.concatenate(found).T / self.deviation[:, None])

    def _at(self, xi: Array) -> Linear:
        self.check()
        key = xi.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self.linearise(self.coordinates.inputs(xi[None])[0])
        return self._last[1]

    def _pieces(self, vectors: Array) -> Iterator[Array]:
        for start in range(0, len(vectors), self.batch):
            self.check()
            yield vectors[start : start + self.batch]


@dataclass(frozen=True)
class Progress:
    """How far an estimate has come: Gauss-Newton steps so far, and after them misfit and objective J.

    The misfit is the root mean square of (model - measurement) / deviation, about 1 where the model explains the data.
    """

    iterations: int = 0
    misfit: float | None = None
    objective: float | None = None


@dataclass(frozen=True, eq=False)
class Estimate:
    """The posterior's Gaussian approximation."""

    coefficients: Array  # the most probable ones [K]
    root: Array  # R [K, K] with the covariance R R^T
    predicted: Array  # the model's values at the sensors [S]
    progress: Progress  # of the last step
    converged: bool  # whether the steps ended before their limit

    def draw(self, samples: int, rng: np.random.Generator) -> Array:
        """Draw coefficients [samples, K]."""
        noise = rng.standard_normal((samples, len(self.coefficients)))
        return np.asarray(self.coefficients + noise @ self.root.T)


def estimate(posterior: Posterior, iterations: int, report: Report = lambda _: None) -> Estimate:
    """Maximise the posterior density from the prior's mean, and approximate it at the maximum.

    There are at most so many evaluations of the model, about one per step; `report` is called after every step.
    """
    latest, prior = Progress(), np.eye(posterior.coordinates.basis.modes)

    def progress(intermediate_result: OptimizeResult) -> None:  # SciPy passes it by this name
        nonlocal latest
        step = intermediate_result
        data = max(2 * step.cost - step.x @ step.x, 0.0)
        latest = Progress(step.nit, float(np.sqrt(data / len(posterior.values))), float(step.cost))
        report(latest)

    def residuals(xi: Array) -> Array:
        return np.concatenate([posterior.residuals(xi), xi])

    def jacobian(xi: Array) -> Array:
        return np.vstack([posterior.jacobian(xi), prior])

    found = least_squares(
        residuals,
        np.zeros(len(prior)),
        jacobian,
        max_nfev=iterations,
        callback=progress,
        ftol=TOLERANCE,
        xtol=TOLERANCE,
        gtol=TOLERANCE,
    )
    scaled = found.fun[: len(posterior.values)]
    slope = np.asarray(found.jac)
    factor = cholesky(slope.T @ slope, lower=True)
    return Estimate(
        coefficients=found.x,
        root=np.asarray(solve_triangular(factor, prior, lower=True).T),
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
) -> dict[str, NDArray[np.float32]]:
    """Summarise draws of the posterior point by point; what `check` raises ends the work.

    Returns:
        Fields [rows, columns] in the units of the input: `optimum`, of the most probable coefficients, and `mean`,
        `deviation`, `lower` and `upper` (5 % and 95 % quantiles) of the draws. So many `rows_at_once` are computed
        together, which bounds the memory.
    """
    tail = replace(coordinates.basis, modes=max(coordinates.basis.modes, TAIL))
    beyond = rng.standard_normal((samples, tail.modes - coordinates.basis.modes))
    coefficients = np.hstack([found.draw(samples, rng), beyond])
    parts = []
    for start in range(0, len(coordinates.rows), rows_at_once):
        check()
        rows = coordinates.rows[start : start + rows_at_once]
        fields = replace(coordinates, basis=tail, rows=rows).inputs(coefficients)
        quantiles = np.quantile(fields, (0.05, 0.95), axis=0)
        parts.append(np.stack([fields.mean(axis=0), fields.std(axis=0), *quantiles]).astype(np.float32))
    optimum = coordinates.inputs(found.coefficients[None])[0].astype(np.float32)
    moments = zip(("mean", "deviation", "lower", "upper"), np.concatenate(parts, axis=1), strict=True)
    return {"optimum": optimum, **dict(moments)}
