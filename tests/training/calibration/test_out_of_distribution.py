"""Foreign families: they keep shape and sign, and change every field."""

from __future__ import annotations

import pytest
import torch

from training.calibration.calibration import FAMILIES


@pytest.mark.parametrize("sides", [(31,), (12, 17), (6, 8, 9)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_changes_positive_fields_to_positive_fields(family: str, sides: tuple[int, ...]) -> None:
    fields = torch.rand(3, *sides, generator=torch.Generator().manual_seed(0)) + 0.1
    changed = FAMILIES[family](fields)
    assert changed.shape == fields.shape
    assert (changed > 0).all()
    assert all(not torch.allclose(one, other) for one, other in zip(changed, fields, strict=True))
    assert torch.isfinite(FAMILIES[family](fields - 0.5)).all()
