"""The closed form of Burgers' equation agrees with the spectral integration."""

from __future__ import annotations

import numpy as np
import pytest

from physics import burgers, cole_hopf
from physics.norms import relative_l2


@pytest.mark.parametrize(("viscosity", "time"), [(0.01, 1.0), (0.03, 0.1), (0.005, 2.0)])
@pytest.mark.parametrize("mean", [0.0, 0.7])
def test_it_agrees_with_the_spectral_solution(viscosity: float, time: float, mean: float) -> None:
    initial = burgers.example(512, seed=3) + mean
    truth = burgers.solve(initial, time, viscosity, step=5e-4)
    assert relative_l2(cole_hopf.solve(initial, time, viscosity)[None], truth[None])[0] < 1e-6


def test_single_precision_and_128_points_are_enough() -> None:
    initial = burgers.example(1024, seed=4)
    found = cole_hopf.solve(initial, resolution=128, dtype=np.float32)
    assert relative_l2(found[None], burgers.solve(initial)[None])[0] < 1e-5
