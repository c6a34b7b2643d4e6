"""Sensors interpolate bilinear fields exactly, and `adjoint` is the transpose of `observe`."""

from __future__ import annotations

import numpy as np
import pytest

from physics.numerics.grid import axis
from physics.posterior.sensors import Sensors, lattice


def test_a_bilinear_field_is_observed_exactly_up_to_the_walls() -> None:
    y, x = axis(9), axis(13)
    positions = np.vstack([np.random.default_rng(0).uniform(size=(20, 2)), [[0, 0], [1, 1], [0, 1], [y[3], x[4]]]])
    field = 1 + 2 * y[:, None] - 3 * x + 5 * y[:, None] * x
    rows, columns = positions.T
    found = Sensors(positions, y, x).observe(field[None])[0]
    np.testing.assert_allclose(found, 1 + 2 * rows - 3 * columns + 5 * rows * columns, rtol=1e-12, atol=1e-12)


def test_adjoint_is_the_transpose_of_observe() -> None:
    rng = np.random.default_rng(1)
    # Two sensors share a cell: their cotangents add up.
    positions = np.vstack([rng.uniform(size=(30, 2)), [[0.5, 0.5], [0.51, 0.5]]])
    sensors = Sensors(positions, axis(15), axis(11))
    fields, cotangents = rng.standard_normal((4, 15, 11)), rng.standard_normal((4, 32))
    left = (sensors.observe(fields) * cotangents).sum(axis=1)
    right = (fields * sensors.adjoint(cotangents)).sum(axis=(1, 2))
    np.testing.assert_allclose(left, right, rtol=1e-11)


@pytest.mark.parametrize("outside", [[-0.1, 0.5], [0.5, 1.01], [np.nan, 0.5]])
def test_a_sensor_outside_of_the_square_is_refused(outside: list[float]) -> None:
    with pytest.raises(ValueError, match="sensor 4"):
        Sensors(np.vstack([lattice(2), outside]), axis(5), axis(5))


def test_positions_need_two_columns() -> None:
    with pytest.raises(ValueError, match=r"\(sensors, 2\)"):
        Sensors(np.zeros((3, 3)), axis(5), axis(5))
