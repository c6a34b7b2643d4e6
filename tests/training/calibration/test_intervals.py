"""Intervals of numbers: how often they hold, for errors of five kinds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from schema.parts import Axis, Quantity
from schema.problem import Description, GridLimits
from training.calibration import Measured, calibrate
from training.calibration.calibration import intervals

CALIBRATION, TEST, REPETITIONS = 300, 2000, 20
DEVIATION = 1e-6  # of the number, in its units

#: How large errors are, in deviations, of a field and of standard normal numbers.
LAWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "alike": lambda _, z: 0.1 * z.abs(),
    "growing with the input": lambda x, z: 0.1 * x.std(dim=1) * z.abs(),
    "of heavy tails": lambda _, z: 0.1 * z.abs() ** 3,
    "larger for one half": lambda x, z: torch.where(x.mean(dim=1) > 0, 0.5, 0.02) * z.abs(),
    "rarely wrong": lambda _, z: torch.where(z.abs() > 1.5, 1.0, 0.01) * z.abs(),
}


def described() -> Description:
    return Description(
        name="drag",
        title="drag",
        equation="",
        inputs=(Quantity(name="shape"),),
        outputs=(Quantity(name="drag", scalar=True),),
        axes=(Axis(name="x"),),
        boundary="",
        points="",
        grid=GridLimits(minimum=4, maximum=32, declared=(16,)),
        distribution="",
    )


def drawn(law: str, samples: int, seed: int) -> Measured:
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.standard_normal((samples, 16)), axis=1) * rng.uniform(0.2, 2, (samples, 1)) / 4
    field, z = torch.from_numpy(x).float(), torch.from_numpy(rng.standard_normal(samples)).float()
    return Measured([field], scalars=LAWS[law](field, z)[:, None])


@pytest.mark.parametrize("law", LAWS)
def test_intervals_hold_for_nine_of_ten_samples(law: str) -> None:
    """With 300 calibration samples one draw has a coverage of 90 +- 1.7 %: the mean over draws is what is promised."""
    test, coverages = drawn(law, TEST, 99), []
    assert test.scalars is not None
    for seed in range(REPETITIONS):
        held = drawn(law, CALIBRATION, 3 * seed + 1)
        found = calibrate(described(), [drawn(law, 256, 3 * seed)], [held], {"drag": torch.tensor(DEVIATION)})
        assert found is not None
        assert found.names == ("error_estimate", "novelty")
        half, _ = found(*test.inputs)
        coverages.append((DEVIATION * test.scalars[:, 0] <= half[:, 0]).double().mean().item())
    mean, error = np.mean(coverages), np.std(coverages, ddof=1) / REPETITIONS**0.5
    print(f"{law}: {100 * mean:.1f} +- {100 * error:.1f} %")  # noqa: T201 -- docs/quality.md has it
    assert 0.88 <= mean <= 0.92, mean
    assert error < 0.006
    covered = coverages[-1]
    rows = intervals(found, {"error_estimate": half}, test.scalars)
    assert rows["drag"][0]["coverage"] == pytest.approx(covered, abs=1e-4)


def test_few_samples_give_no_interval() -> None:
    found = calibrate(described(), [drawn("alike", 32, 0)], [drawn("alike", 8, 1)], {"drag": torch.tensor(1.0)})
    assert found is not None
    assert found.names == ("novelty",)
