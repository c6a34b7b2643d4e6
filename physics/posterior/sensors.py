"""Sensors: the values of a field on a grid at a few points of the unit square, by bilinear interpolation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Sensors:
    """Bilinear interpolation of a tensor grid at points of the unit square.

    A sensor between the wall and the outermost points is extrapolated from the cell beside it.

    Raises:
        ValueError: A sensor lies outside of the unit square, or the positions are no finite [S, 2].

    Example:
        >>> sensors = Sensors(np.array([[0.25, 0.5]]), np.array([0.0, 1.0]), np.array([0.0, 1.0]))
        >>> sensors.observe(np.array([[[0.0, 0.0], [4.0, 4.0]]]))
        array([[1.]])
    """

    positions: NDArray[np.float64]  # the sensors (y, x) [S, 2], in sides of the square
    # Ascending positions [height] of the grid's rows, as `physics.numerics.grid.axis` gives them.
    rows: NDArray[np.float64]
    columns: NDArray[np.float64]  # ascending positions [width] of the grid's columns

    def __post_init__(self) -> None:
        positions = self.positions
        if positions.ndim != 2 or positions.shape[1] != 2:
            raise ValueError(f"expected sensors of shape (sensors, 2) but got {positions.shape}")
        outside = ~((positions >= 0) & (positions <= 1))
        if outside.any():
            sensor = int(np.argwhere(outside)[0, 0])
            raise ValueError(f"sensor {sensor} is at {positions[sensor].tolist()}, outside of the unit square")

    def observe(self, fields: ArrayLike) -> NDArray[np.float64]:
        """Interpolate fields [batch, height, width] at the sensors: [batch, S], in the units of the fields."""
        values = np.asarray(fields, dtype=np.float64)
        rows, columns, weights = self._stencil
        return np.asarray((values[:, rows, columns] * weights).sum(axis=1))

    def adjoint(self, gradients: ArrayLike) -> NDArray[np.float64]:
        """Apply the transpose of `observe`: derivatives by observations [batch, S] become those by fields."""
        cotangents = np.asarray(gradients, dtype=np.float64)
        rows, columns, weights = self._stencil
        batch, width = len(cotangents), len(self.columns)
        points = (rows * width + columns).ravel()
        fields = np.zeros((batch, len(self.rows) * width))
        # Sensors that share a grid point add up, which an assignment by index would not do.
        for sample, values in enumerate(cotangents[:, None] * weights):
            fields[sample] = np.bincount(points, values.ravel(), minlength=fields.shape[1])
        return fields.reshape(batch, len(self.rows), width)

    @cached_property
    def _stencil(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the rows, columns and weights of the four grid points around each sensor, [4, S] each."""
        (above, down), (left, across) = (
            _cell(points, self.positions[:, axis]) for axis, points in enumerate((self.rows, self.columns))
        )
        rows = np.stack([above, above, above + 1, above + 1])
        columns = np.stack([left, left + 1, left, left + 1])
        weights = [(1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across]
        return rows, columns, np.stack(weights)


def lattice(count: int) -> NDArray[np.float64]:
    """Return `count` x `count` sensors [count^2, 2] at the centres of equal squares.

    Example:
        >>> lattice(2).tolist()
        [[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]]
    """
    centres = (np.arange(count) + 0.5) / count
    return np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)


def _cell(points: NDArray[np.float64], positions: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cell of every position on an axis, and how far into it the position is, in cells."""
    first = np.clip(np.searchsorted(points, positions, side="right") - 1, 0, len(points) - 2)
    return first, (positions - points[first]) / (points[first + 1] - points[first])
