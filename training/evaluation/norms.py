r"""Errors of predictions: per sample of fields, and per frame of trajectories.

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
from physics.numerics.grid import relative_l2

Errors = NDArray[np.float64]
Fields = NDArray[np.floating[Any]]

CORRELATED = 0.8  # below it a prediction says little about a chaotic flow
LOST = 1e3  # the relative error of a rollout that overflows


def relative_h1(found: Fields, truth: Fields) -> Errors:
    """Compute e_H1 `[sample]` of predictions `[sample, *grid]`."""
    return slope(np.subtract(found, truth, dtype=np.float64)) / slope(truth.astype(np.float64))


def slope(fields: Errors) -> Errors:
    """Compute the norm of the gradient: axes in units of the square's side, each derivative's mean over its faces."""
    squares = [
        np.square(np.diff(fields, axis=axis) * (points - 1)).reshape(len(fields), -1).mean(axis=1)
        for axis, points in enumerate(fields.shape[1:], start=1)
    ]
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))


def relative_energy(coefficients: Fields, found: Fields, truth: Fields, wall: float) -> Errors:
    """Compute e_a `[sample]` of fields `[sample, row, column]`, `wall` from the outermost points."""
    pairs = []
    for a, p, u in zip(*(fields.astype(np.float64) for fields in (coefficients, found, truth)), strict=True):
        A, e, v = volumes.matrix(a, wall), (p - u).ravel(), u.ravel()
        pairs.append((e @ (A @ e), v @ (A @ v)))
    error, size = np.asarray(pairs).T
    return np.asarray(np.sqrt(error / size))


def distribution(errors: Errors) -> dict[str, float]:
    """Return mean, standard error of the mean (of two samples or more), median, 95th percentile and worst of errors."""
    figures = {"relative_l2": errors.mean()}
    if len(errors) > 1:
        figures["standard_error"] = errors.std(ddof=1) / np.sqrt(len(errors))
    return figures | {"median": np.median(errors), "percentile_95": np.percentile(errors, 95), "worst": errors.max()}


def significant(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Return figures with four digits."""
    return {name: significant(value) for name, value in figures.items()}


def frames_l2(found: Fields, truth: Fields) -> Errors:
    """Return the relative L2 error of every frame `[sample, frame]` `[sample, frame, ...]`."""
    return relative_l2(found.reshape(-1, *found.shape[2:]), truth.reshape(-1, *truth.shape[2:])).reshape(
        truth.shape[:2]
    )


def vrmse(found: Fields, truth: Fields) -> Errors:
    """Return the root mean square error over the truth's deviation in space, as The Well counts: `[sample, frame]`."""
    error, size = flat(found) - flat(truth), flat(truth)
    return np.asarray(np.sqrt((error**2).mean(axis=-1) / (size.var(axis=-1) + 1e-7)))


def correlation(found: Fields, truth: Fields) -> Errors:
    """Return the correlation in space of prediction and truth: `[sample, frame]`; 0 where one is constant."""
    first, second = (each - each.mean(axis=-1, keepdims=True) for each in (flat(found), flat(truth)))
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.divide((first * second).sum(axis=-1), sizes, out=np.zeros_like(sizes), where=sizes > 0)


def flat(frames: Fields) -> Errors:
    """Return `[sample, frame, (component), *grid]` as `[sample, frame, value]` in double precision."""
    return np.asarray(frames, dtype=np.float64).reshape(*frames.shape[:2], -1)


def bounded(errors: Errors) -> Errors:
    """Return errors of at most `LOST`, so that a rollout that overflows has a mean, too."""
    return np.minimum(np.nan_to_num(errors, nan=LOST, posinf=LOST), LOST)


def correlated_frames(correlations: Errors) -> NDArray[np.int64]:
    """Return for how many frames from the start the correlation stays at least `CORRELATED`: `[sample]`."""
    lost = correlations < CORRELATED
    return np.where(lost.any(axis=1), lost.argmax(axis=1), correlations.shape[1])


def spectrum(fields: Fields, axes: int) -> Errors:
    """Return the energy by wave number, summed over spheres of equal integer radius: `[sample, wave number]`."""
    sides = fields.shape[fields.ndim - axes :]
    over = tuple(range(fields.ndim - axes, fields.ndim))
    energy = np.abs(np.fft.fftn(np.asarray(fields, dtype=np.float64), axes=over) / np.prod(sides)) ** 2
    numbers = np.meshgrid(*(np.fft.fftfreq(side, 1 / side) for side in sides), indexing="ij")
    radius = np.rint(np.sqrt(sum(each**2 for each in numbers))).astype(int).ravel()
    whole = energy.reshape(len(fields), -1, radius.size).sum(axis=1)
    return np.stack([np.bincount(radius, each)[: min(sides) // 2 + 1] for each in whole])
