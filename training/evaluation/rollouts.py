"""Measures of predicted trajectories, frame by frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Frames = NDArray[np.floating[Any]]
Errors = NDArray[np.float64]
CORRELATED = 0.8  # below it a prediction says little about a chaotic flow
LOST = 1e3  # the relative error of a rollout that overflows


def bounded(errors: Errors) -> Errors:
    """Return errors of at most `LOST`, so that a rollout that overflows has a mean, too."""
    return np.minimum(np.nan_to_num(errors, nan=LOST, posinf=LOST), LOST)


def flat(frames: Frames) -> Errors:
    """Return `[sample, frame, (component), *grid]` as `[sample, frame, value]` in double precision."""
    return np.asarray(frames, dtype=np.float64).reshape(*frames.shape[:2], -1)


def relative_l2(found: Frames, truth: Frames) -> Errors:
    """Return the relative L2 error of every frame: `[sample, frame]`.

    Example:
        >>> relative_l2(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 0.0]]]))
        array([[2.]])
    """
    error, size = flat(found) - flat(truth), flat(truth)
    return np.asarray(np.linalg.norm(error, axis=-1) / np.linalg.norm(size, axis=-1))


def vrmse(found: Frames, truth: Frames) -> Errors:
    """Return the root mean square error over the truth's deviation in space, as The Well counts: `[sample, frame]`."""
    error, size = flat(found) - flat(truth), flat(truth)
    return np.asarray(np.sqrt((error**2).mean(axis=-1) / (size.var(axis=-1) + 1e-7)))


def correlation(found: Frames, truth: Frames) -> Errors:
    """Return the correlation in space of prediction and truth: `[sample, frame]`; 0 where one is constant."""
    first, second = (each - each.mean(axis=-1, keepdims=True) for each in (flat(found), flat(truth)))
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.divide((first * second).sum(axis=-1), sizes, out=np.zeros_like(sizes), where=sizes > 0)


def correlated_frames(correlations: Errors) -> NDArray[np.int64]:
    """Return for how many frames from the start the correlation stays at least `CORRELATED`: `[sample]`."""
    lost = correlations < CORRELATED
    return np.where(lost.any(axis=1), lost.argmax(axis=1), correlations.shape[1])


def spectrum(fields: Frames, axes: int) -> Errors:
    """Return the energy by wave number, summed over spheres of equal integer radius: `[sample, wave number]`.

    Args:
        fields: `[sample, (component), *grid]`; the energies of components are added.
        axes: The number of axes of the grid.
    """
    sides = fields.shape[fields.ndim - axes :]
    over = tuple(range(fields.ndim - axes, fields.ndim))
    energy = np.abs(np.fft.fftn(np.asarray(fields, dtype=np.float64), axes=over) / np.prod(sides)) ** 2
    numbers = np.meshgrid(*(np.fft.fftfreq(side, 1 / side) for side in sides), indexing="ij")
    radius = np.rint(np.sqrt(sum(each**2 for each in numbers))).astype(int).ravel()
    whole = energy.reshape(len(fields), -1, radius.size).sum(axis=1)
    return np.stack([np.bincount(radius, each)[: min(sides) // 2 + 1] for each in whole])
