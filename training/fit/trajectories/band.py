"""The band of a user's trajectories: how many wave numbers their fields hold, which sets the working grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.trajectory_samples import TrajectorySamples

FIELDS = 256
"""Fields of each input and output that are looked at."""
TOLERANCE = 1e-5
"""What wave numbers beyond the band may hold of a field's deviation from its mean."""
OVERSAMPLING = 4
"""Points per wave number of the band: products of fields hold twice its wave numbers, products of those four times."""


def working_grid(samples: TrajectorySamples) -> tuple[int, ...]:
    """Return points per axis that resolve the fields and products of them, at most those of the data.

    Args:
        samples: Trajectories on periodic axes.
    """
    numbers = np.max([band(field) for field in training_fields(samples)], axis=0)
    return tuple(min(side, OVERSAMPLING * int(number)) for side, number in zip(samples.sides, numbers, strict=True))


def training_fields(samples: TrajectorySamples) -> Iterator[NDArray[Any]]:
    """Return some training samples of every field as `[field, *grid]`: the last frames of trajectories."""
    train = samples.split("train")
    problem = samples.problem
    for name in (*problem.outputs, *(name for name in problem.inputs if name not in problem.states)):
        values = samples.file[name]
        stop = min(train.stop, train.start + FIELDS)
        found = values[train.start : stop, -1] if name in problem.outputs else values[train.start : stop]
        yield found.reshape(-1, *samples.sides)


def band(fields: NDArray[Any]) -> list[int]:
    """Return per axis the largest wave number that fields `[field, *grid]` hold, at least 1.

    Example:
        >>> x = 2 * np.pi * np.arange(32) / 32
        >>> band((np.cos(5 * x) + 1e-7 * np.cos(9 * x))[None])
        [5]
    """
    found = []
    for axis in range(1, fields.ndim):
        energy = np.abs(np.fft.rfft(fields.astype(np.float64), axis=axis)) ** 2
        by_number = energy.sum(axis=tuple(other for other in range(fields.ndim) if other != axis))
        beyond = np.cumsum(by_number[:0:-1])[::-1]  # from wave number 1 on
        held = np.flatnonzero(beyond > TOLERANCE**2 * beyond[0]) if beyond[0] > 0 else [0]
        found.append(int(held[-1]) + 1)
    return found
