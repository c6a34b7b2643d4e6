"""Rollouts of the general step operator whose waves are bounded by those of its training states."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from training.operators.field import FieldConfig
from training.operators.kuramoto_sivashinsky import KuramotoSivashinskyConfig
from training.operators.navier_stokes import NavierStokesConfig
from training.operators.trajectory import TrajectoryConfig, TrajectoryOperator

STEP = FieldConfig(
    input_components=(0,),
    input_scales=("linear",),
    output_components=(0,),
    output_scales=("linear",),
    periodic=(True,),
    points=("left",),
    working=(16,),
    layers=0,
    detail=8,
)
CONFIG = TrajectoryConfig(step=STEP, components=(0,), states=(0,), conserved=(True,), bounded=True)


@pytest.fixture
def states() -> torch.Tensor:
    """Return waves of number 1 and 2 on 16 points, `[sample, point]`."""
    x = torch.arange(16) * (2 * torch.pi / 16)
    phases = torch.arange(8)[:, None]
    return torch.cos(x + phases) + 0.1 * torch.cos(2 * x + phases)


def unstable(states: torch.Tensor) -> TrajectoryOperator:
    """Return an operator that has learned nothing, and whose increments are as large as its states."""
    torch.manual_seed(0)
    operator = TrajectoryOperator(CONFIG)
    operator.fit_normalisers(states, 3 * states)
    return operator


@pytest.mark.deep
def test_rollouts_stay_within_twice_the_training_states(states: torch.Tensor) -> None:
    operator = unstable(states)
    frames = torch.zeros(len(states), 300, dtype=torch.int32)
    with torch.inference_mode():
        bounded = operator.eval()(states, frames)
        free = operator.train()(states, frames)
    assert bounded.abs().max() <= 2 * 3 * 1.1 + 1e-4  # the sum of both waves
    assert not free.abs().max() <= 10 * bounded.abs().max()  # or not a number


def test_the_loss_sees_what_evaluation_bounds(states: torch.Tensor) -> None:
    operator = unstable(states)
    large = 100 * states
    with torch.no_grad():
        [free], [bounded] = operator.train().advance([large]), operator.eval().advance([large])
    assert free.norm() > 10 * bounded.norm()


def test_only_periodic_axes_have_waves() -> None:
    walls = STEP.model_copy(update={"periodic": (False,)})
    with pytest.raises(ValidationError, match="periodic axes only with bounded"):
        TrajectoryConfig(step=walls, components=(0,), states=(0,), conserved=(False,), bounded=True)


def test_waves_that_a_step_makes_too_energetic_are_damped_and_no_others() -> None:
    torch.manual_seed(0)
    states = torch.randn(8, 16)
    operator = TrajectoryOperator(CONFIG.model_copy(update={"damped": True}))
    operator.fit_normalisers(states, states + 1e-3 * torch.randn_like(states))
    with torch.no_grad():
        [free] = operator.eval().advance([states])
    # The true waves are half as large again as the predicted ones up to the third, a tenth of them beyond.
    spectrum = torch.fft.rfft(free)
    true = spectrum * torch.where(torch.arange(spectrum.shape[-1]) < 4, 1.5, 0.1)
    operator.fit_damping(states, torch.fft.irfft(true, n=16))
    with torch.no_grad():
        [damped] = operator.advance([states])
        operator.fit_damping(states, torch.fft.irfft(true, n=16))  # of a training that began with gains
        [again] = operator.advance([states])
        [trained] = operator.train().advance([states])
    gains = torch.fft.rfft(damped).abs() / spectrum.abs()
    torch.testing.assert_close(gains[:, 1:4], torch.ones(len(states), 3), rtol=1e-3, atol=0)
    torch.testing.assert_close(gains[:, 4:8], torch.full((len(states), 4), 0.1), rtol=1e-3, atol=0)
    torch.testing.assert_close(again, damped)
    high = torch.fft.rfft(trained)[:, 4:8].abs()
    torch.testing.assert_close(high, spectrum[:, 4:8].abs(), rtol=1e-3, atol=1e-4)  # the loss sees all of them


def test_waves_that_are_damped_are_bounded() -> None:
    with pytest.raises(ValidationError, match="expected bounded with damped"):
        TrajectoryConfig(step=STEP, components=(0,), states=(0,), conserved=(False,), damped=True)


@pytest.mark.parametrize("kind", [KuramotoSivashinskyConfig, NavierStokesConfig])
@pytest.mark.parametrize(
    ("key", "value"),
    [("bounded", True), ("history", 2), ("conserved", (False,)), ("components", (2,)), ("forced", (1,))],
)
def test_operators_of_one_equation_refuse_what_their_steps_do_not_do(
    kind: type[TrajectoryConfig], key: str, value: object
) -> None:
    held = {"step": STEP, "components": (0,), "states": (0,), "conserved": (True,)}
    assert kind.model_validate(held).history == 1
    with pytest.raises(ValidationError, match=rf"{key}: expected .* of the operator '[a-z-]+' but got"):
        kind.model_validate(held | {key: value})
