"""The derivatives of the discrete flow are those of its solver."""

from __future__ import annotations

import numpy as np
import pytest

from physics import darcy
from physics.numerics.volumes import Linearised


def drawn(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, 13, 17))


def coefficient() -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 9, (13, 17))


def test_the_solution_is_the_solvers() -> None:
    np.testing.assert_allclose(Linearised(coefficient()).solution, darcy.solve(coefficient()), rtol=1e-8)


def test_tangents_are_the_limit_of_central_differences() -> None:
    a, b = coefficient(), drawn(2)
    central = np.stack([(Linearised(a + 1e-5 * d).solution - Linearised(a - 1e-5 * d).solution) / 2e-5 for d in b])
    np.testing.assert_allclose(Linearised(a).push(b), central, rtol=1e-6, atol=1e-9 * abs(central).max())


def test_pull_is_the_transpose_of_push() -> None:
    flow, b, c = Linearised(coefficient()), drawn(3), drawn(4)
    left = np.einsum("chw,bhw->cb", c, flow.push(b))
    right = np.einsum("chw,bhw->cb", flow.pull(c), b)
    assert left == pytest.approx(right, rel=1e-9)
