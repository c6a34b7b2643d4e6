"""Step operators on a part of the grid: what lies outside changes nothing, and every frame is 0 there."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from training.operators.field import FieldConfig
from training.operators.trajectory import TrajectoryConfig, TrajectoryOperator

STEP = FieldConfig(
    input_components=(0, 4, 2, 0),  # a steady field, a vector and a scalar of two frames each, a forcing
    input_scales=("log", "linear", "linear", "linear"),
    masked=True,
    parameter_scales=("linear",),
    output_components=(2, 0),
    output_scales=("linear", "linear"),
    periodic=(False, True),
    points=("cells", "left"),
    working=(9, 12),
    patch=3,
    channels=16,
    heads=2,
    layers=1,
    feedforward=16,
    detail=8,
    modes=4,
    spectral=1,
    unet=1,
)
CONFIG = TrajectoryConfig(step=STEP, history=2, components=(2, 0), states=(1, 2), conserved=(False, False), forced=(3,))
FRAMES = torch.zeros(3, 4, dtype=torch.int32)


def arguments(rows: int = 10, columns: int = 14) -> list[Tensor]:
    """Return the arguments of a rollout of four frames, without the last one that counts them."""
    grid, inside = (rows, columns), torch.ones(3, rows, columns)
    inside[:, 2:5, 1:4], inside[1, 6:, 9:] = 0, 0
    fields = [torch.rand(3, *grid) + 0.1, torch.randn(3, 2, 2, *grid), torch.randn(3, 2, *grid)]
    return [*fields, torch.randn(3, 4, *grid), inside, torch.randn(3)]


def fitted() -> TrajectoryOperator:
    torch.manual_seed(0)
    operator, given = TrajectoryOperator(CONFIG).eval(), arguments()
    following = [each[:, -1] + 0.1 * torch.randn_like(each[:, -1]) + 0.3 for each in given[1:3]]
    operator.fit_normalisers(*given, *following)
    return operator


@torch.inference_mode()
def test_what_lies_outside_changes_no_frame_and_every_frame_is_0_there() -> None:
    operator, given = fitted(), arguments()
    expected, seen, inside = operator(*given, FRAMES), operator.canonical(*given, FRAMES), given[4] == 1
    given[0][~inside] = -1.0  # of no logarithm
    for index in (1, 2, 3):  # [batch, frame, (component), *grid]
        outside = ~inside.reshape(3, *(1,) * (given[index].ndim - 3), *inside.shape[1:])
        given[index] = torch.where(outside, torch.nan, given[index])
    found = operator(*given, FRAMES)
    for one, other in zip((*found, *operator.canonical(*given, FRAMES)), (*expected, *seen), strict=True):
        assert torch.equal(one, other)
    assert not found[0].permute(0, 3, 4, 1, 2)[~inside].any()
    assert not found[1].permute(0, 2, 3, 1)[~inside].any()
    assert found[1].permute(0, 2, 3, 1)[inside].abs().min() > 0


@torch.inference_mode()
def test_what_a_step_makes_of_the_domain_is_the_same_in_all_steps() -> None:
    """A rollout has it from its beginning, the step of a graph by itself."""
    operator, given = fitted(), arguments()
    made, inputs = operator.rollout(given, 4), given
    for frame in range(4):
        inputs = operator.moved(inputs, frame, operator.advance)
        for index, output in zip(CONFIG.states, made, strict=True):
            assert torch.equal(inputs[index][:, -1], output[:, frame])


def test_nothing_is_conserved_or_bounded_on_a_part_of_the_grid() -> None:
    for change in (
        {"conserved": (True, False)},
        {"bounded": True, "step": STEP.model_copy(update={"periodic": (True, True)})},
    ):
        with pytest.raises(ValidationError, match="expected nothing bounded or conserved with a mask"):
            TrajectoryConfig.model_validate(CONFIG.model_dump() | change)
