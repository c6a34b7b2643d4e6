r"""Relative errors per sample.

With e = p - u, all points counting alike:

.. math::
    e_{L2} = \frac{\|e\|}{\|u\|}, \qquad
    e_{H1} = \frac{\|\nabla e\|}{\|\nabla u\|}, \qquad
    e_a = \left(\frac{\int a\,|\nabla e|^2}{\int a\,|\nabla u|^2}\right)^{1/2}.

The gradient of e_H1 (the seminorm: without e itself) is that of differences of neighbours over their distance, walls
left out. The energy norm e_a, for Darcy's pressure alone, is the quadratic form of the finite volumes on the output's
grid, :math:`v^T A(a) v = \sum_{faces} a_{face} (v_1 - v_2)^2\, length/distance`, with the mean of both sides' a on a
face and v = 0 on the walls (`physics.numerics.volumes`): the norm in which that method is optimal. u is the solution on
the fine mesh, taken at the grid's points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from physics.numerics import volumes
from physics.numerics.norms import relative_l2
from training.evaluation.case import Case
from training.problems.problem import Conditions

Each = NDArray[np.float64]
Fields = NDArray[np.floating[Any]]


def relative_h1(found: Fields, truth: Fields) -> Each:
    """Compute e_H1 `[sample]` of predictions `[sample, *grid]`."""
    return slope(np.subtract(found, truth, dtype=np.float64)) / slope(truth.astype(np.float64))


def relative_energy(coefficients: Fields, found: Fields, truth: Fields, wall: float) -> Each:
    """Compute e_a of fields on the weights' grid.

    Args:
        coefficients: The weight a `[sample, row, column]`.
        found: Predictions `[sample, row, column]`.
        truth: True fields `[sample, row, column]`.
        wall: Distance from the outermost points to the walls, in sides of the square.

    Returns:
        e_a `[sample]`.
    """
    pairs = []
    for a, p, u in zip(*(fields.astype(np.float64) for fields in (coefficients, found, truth)), strict=True):
        A, e, v = volumes.matrix(a, wall), (p - u).ravel(), u.ravel()
        pairs.append((e @ (A @ e), v @ (A @ v)))
    error, size = np.asarray(pairs).T
    return np.asarray(np.sqrt(error / size))


def summary(case: Case, found: Fields) -> dict[str, Any]:
    """Compute the figures of a row: those of `distribution` of the case's first fields, mean e_H1, and mean e_a."""
    inputs, truth = case.samples.inputs[: len(found)], case.truth[: len(found)]
    figures = distribution(relative_l2(found, truth)) | {"relative_h1": relative_h1(found, truth).mean()}
    if case.problem.energy_weight is not None:
        wall = Conditions(case.mesh).wall
        figures["relative_energy"] = relative_energy(inputs, found, truth, wall).mean()
    return {"fields": len(found)} | rounded(figures)


def distribution(errors: Each) -> dict[str, float]:
    """Return mean, standard error of the mean (of two samples or more), median, 95th percentile and worst of errors."""
    figures = {"relative_l2": errors.mean()}
    if len(errors) > 1:
        figures["standard_error"] = errors.std(ddof=1) / np.sqrt(len(errors))
    return figures | {
        "median": np.median(errors),
        "percentile_95": np.percentile(errors, 95),
        "worst": errors.max(),
    }


def significant(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Return figures with four digits."""
    return {name: significant(value) for name, value in figures.items()}


def slope(fields: NDArray[np.float64]) -> Each:
    """Compute the norm of the gradient: axes in units of the square's side, each derivative's mean over its faces."""
    squares = [
        np.square(np.diff(fields, axis=axis) * (points - 1)).reshape(len(fields), -1).mean(axis=1)
        for axis, points in enumerate(fields.shape[1:], start=1)
    ]
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))
