"""Families of permeabilities: positive functions of the position, equal on every grid."""

from __future__ import annotations

import numpy as np
import pytest

from physics.darcy import restrict
from physics.families import FAMILIES
from physics.numerics import grid


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_is_one_positive_field_on_every_grid(family: str) -> None:
    fine, coarse = (FAMILIES[family](np.random.default_rng(2), grid.axis(points)) for points in (141, 36))
    assert (fine > 0).all()
    np.testing.assert_allclose(restrict(fine, 36), coarse)
