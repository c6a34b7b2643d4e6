"""The slopes of the materials are the derivatives of their permeabilities."""

from __future__ import annotations

import numpy as np
import pytest

from physics.posterior.prior import LogNormal, Material, TwoMaterials


@pytest.mark.parametrize("material", [LogNormal(), LogNormal(2.0, 1.5), TwoMaterials(), TwoMaterials(1.0, 50.0, 0.5)])
def test_the_slope_is_the_limit_of_central_differences(material: Material) -> None:
    z, h = np.linspace(-1, 1, 41), 1e-5
    central = (material.permeability(z + h) - material.permeability(z - h)) / (2 * h)
    np.testing.assert_allclose(material.slope(z), central, rtol=1e-5, atol=1e-6)


def test_two_materials_stay_between_their_permeabilities() -> None:
    a = TwoMaterials(3.0, 12.0, 0.05).permeability(np.linspace(-3, 3, 101))
    assert a.min() == pytest.approx(3.0)
    assert a.max() == pytest.approx(12.0)


def test_a_log_normal_does_not_overflow() -> None:
    z = np.array([-1e6, 0.0, 1e6])
    assert np.isfinite(LogNormal().permeability(z)).all()
    assert LogNormal().slope(z).tolist() == [0.0, pytest.approx(0.35 * 6), 0.0]


@pytest.mark.parametrize("wrong", [{"low": 12.0, "high": 3.0}, {"width": 0.0}, {"low": np.inf}])
def test_wrong_materials_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        TwoMaterials(**wrong)


@pytest.mark.parametrize("wrong", [{"median": 0.0}, {"deviation": np.nan}])
def test_a_wrong_log_normal_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        LogNormal(**wrong)
