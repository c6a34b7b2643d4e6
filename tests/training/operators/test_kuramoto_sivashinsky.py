"""The step operator whose fine waves are damped: what it damps, what it keeps, and that it stays on its symmetries."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from training.operators.field import FieldConfig
from training.operators.kuramoto_sivashinsky import KuramotoSivashinskyConfig, KuramotoSivashinskyOperator

STEP = FieldConfig(
    input_components=(0,),
    input_scales=("linear",),
    parameter_scales=("linear",),
    output_components=(0,),
    output_scales=("linear",),
    periodic=(True,),
    points=("left",),
    working=(32,),
    translation=(True,),
    band_limited=True,
    gated=True,
    layers=0,
    modes=6,
    detail=8,
)
CONFIG = KuramotoSivashinskyConfig(step=STEP, components=(0,), states=(0,), conserved=(True,), cut=3.0)
LENGTHS, STILL = torch.tensor([18.0, 36.0]), torch.zeros(2, 1)


@pytest.fixture
def operator() -> KuramotoSivashinskyOperator:
    torch.manual_seed(0)
    return KuramotoSivashinskyOperator(CONFIG).eval()


def wave(number: int, points: int) -> Tensor:
    """Return cos(2 pi k x / L + 1) for both periods, `[2, points]`."""
    return torch.cos(2 * math.pi * number * torch.arange(points) / points + 1).expand(2, -1)


@pytest.mark.parametrize("points", [24, 41, 128])
@pytest.mark.parametrize("number", [0, 3, 8, 11])
def test_a_wave_is_damped_by_its_physical_wave_number(
    operator: KuramotoSivashinskyOperator, number: int, points: int
) -> None:
    factor = torch.exp(-((2 * math.pi * number / LENGTHS / CONFIG.cut) ** 16))
    expected = factor[:, None] * wave(number, points)
    torch.testing.assert_close(operator.damped(wave(number, points), LENGTHS, STILL), expected, atol=2e-6, rtol=1e-5)


def test_waves_beyond_the_working_grid_are_dropped(operator: KuramotoSivashinskyOperator) -> None:
    assert operator.damped(wave(20, 64), torch.full((2,), 1e3), STILL).abs().max() < 1e-5


@torch.inference_mode()
def test_a_rollout_forgets_fine_waves_keeps_the_mean_and_moves_with_a_shift(
    operator: KuramotoSivashinskyOperator,
) -> None:
    start = 0.3 + wave(2, 48) + 0.1 * wave(15, 48)
    [found] = operator.rollout([start, LENGTHS], 3)
    fine = torch.fft.rfft(found, norm="forward").abs()[..., 15]
    assert fine[0].max() < 1e-6  # 15 waves on 18 units of length
    torch.testing.assert_close(found.mean(dim=2), torch.full((2, 3), float(start.mean())))
    # Three of 48 points are two of the working grid's 32.
    [moved] = operator.rollout([start.roll(3, dims=1), LENGTHS], 3)
    torch.testing.assert_close(moved, found.roll(3, dims=2), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_a_mean_moves_the_solution_and_changes_nothing_else(operator: KuramotoSivashinskyOperator) -> None:
    start = wave(2, 48) + 0.1 * wave(5, 48)
    start -= start.mean(dim=1, keepdim=True)
    [still] = operator.rollout([start, LENGTHS], 3)
    # Within an interval of 2 the frame moves by 3, then by 6 of 48 points of the period.
    mean = 3 / 48 * LENGTHS[:, None] / CONFIG.interval
    for factor, points in ((1, 3), (-2, -6)):
        [moved] = operator.rollout([start + factor * mean, LENGTHS], 3)
        for frame in range(3):
            expected = still[:, frame].roll(points * (frame + 1), dims=1) + factor * mean
            torch.testing.assert_close(moved[:, frame], expected, atol=2e-5, rtol=1e-4)


def test_the_derivative_by_the_mean_has_the_shift(operator: KuramotoSivashinskyOperator) -> None:
    start = wave(2, 48) + 0.1 * wave(5, 48)
    start -= start.mean(dim=1, keepdim=True)

    def rolled(mean: Tensor) -> Tensor:
        [found] = operator.rollout([start + mean, LENGTHS], 3)
        return found

    step, weights = 0.01, rolled(torch.tensor(0.0)).detach().roll(5, dims=2)
    mean = torch.tensor(0.0, requires_grad=True)
    (weights * rolled(mean)).sum().backward()
    with torch.no_grad():
        quotient = (weights * (rolled(mean + step) - rolled(mean - step))).sum() / (2 * step)
    assert abs(float(quotient) / float(weights.sum()) - 1) > 1  # the waves move, and their mean is not all that changes
    torch.testing.assert_close(mean.grad, quotient, atol=0.0, rtol=0.02)


@pytest.mark.parametrize("constant", [0.0, 3.0, -100.0, 1e20])
@torch.inference_mode()
def test_a_constant_stays_near_itself(operator: KuramotoSivashinskyOperator, constant: float) -> None:
    [found] = operator.rollout([torch.full((2, 64), constant), LENGTHS], 8)
    assert found.isfinite().all()
    torch.testing.assert_close(found.mean(dim=2), torch.full((2, 8), constant), atol=1e-4, rtol=1e-5)
