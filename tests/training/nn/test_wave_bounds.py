"""Waves of fields stay below those of the training fields, and fields below stay as they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.operators.trajectory import MARGIN, WaveBounds


def waves(sides: tuple[int, ...], numbers: tuple[int, ...], size: float = 1.0) -> Tensor:
    """Return a cosine of some wave numbers on a grid, in float64."""
    axes = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) / side for side in sides), indexing="ij")
    angle = sum(number * axis for number, axis in zip(numbers, axes, strict=True))
    return size * torch.cos(2 * torch.pi * angle + 0.3)  # type: ignore[arg-type] # the sum is no int


def fitted(sides: tuple[int, ...], *fields: Tensor) -> WaveBounds:
    bounds = WaveBounds(0, sides).double()
    bounds.fit(torch.stack(fields))
    return bounds


@pytest.mark.parametrize("sides", [(16,), (15,), (12, 16), (9, 8), (6, 8, 7)])
def test_fields_up_to_twice_the_training_fields_are_left_alone(sides: tuple[int, ...]) -> None:
    field = torch.randn(3, *sides, dtype=torch.float64)
    bounds = fitted(sides, *field)
    torch.testing.assert_close(bounds(field), field)
    torch.testing.assert_close(bounds(MARGIN * field), MARGIN * field)


@pytest.mark.parametrize(("sides", "numbers"), [((16,), (3,)), ((12, 16), (-2, 5)), ((12, 16), (4, 0))])
@pytest.mark.parametrize("finer", [1, 3])
def test_only_a_wave_that_is_too_large_is_cut_on_every_grid(
    sides: tuple[int, ...], numbers: tuple[int, ...], finer: int
) -> None:
    other = (1,) * len(sides)
    bounds = fitted(sides, waves(sides, numbers, 0.01) + waves(sides, other))
    grid = tuple(finer * side for side in sides)
    found = bounds((7.0 + waves(grid, numbers, 5.0) + waves(grid, other))[None])
    expected = 7.0 + waves(grid, numbers, 0.01 * MARGIN) + waves(grid, other)
    torch.testing.assert_close(found[0], expected)


def test_waves_that_no_training_field_has_are_dropped() -> None:
    bounds = fitted((16,), waves((16,), (2,)))
    torch.testing.assert_close(bounds(waves((16,), (5,))[None]), torch.zeros(1, 16, dtype=torch.float64))


@pytest.mark.parametrize("number", [-7, 7])
def test_waves_that_the_working_grid_does_not_resolve_are_dropped_on_finer_ones(number: int) -> None:
    bounds = fitted((12, 16), waves((12, 16), (5, 3)))  # on 12 points the waves 5 and -7 are one
    found = bounds(waves((36, 16), (number, 3))[None])
    torch.testing.assert_close(found, torch.zeros(1, 36, 16, dtype=torch.float64))


def test_the_highest_wave_of_a_coarser_grid_has_its_own_bound() -> None:
    bounds = fitted((12, 16), waves((12, 16), (5, 3)))
    field = waves((11, 16), (5, 3))[None]  # the last number that 11 points resolve
    torch.testing.assert_close(bounds(field), field)


def test_components_are_bounded_by_themselves() -> None:
    bounds = WaveBounds(2, (8,)).double()
    small, large = waves((8,), (1,), 0.1), waves((8,), (1,), 10.0)
    bounds.fit(torch.stack([small, large])[None])
    found = bounds(torch.stack([large, large])[None])
    torch.testing.assert_close(found[0], torch.stack([MARGIN * small, large]))


def test_shifted_fields_give_shifted_fields() -> None:
    bounds = fitted((16,), *torch.randn(4, 16, dtype=torch.float64))
    field = 10 * torch.randn(1, 16, dtype=torch.float64)
    torch.testing.assert_close(bounds(field.roll(5, dims=1)), bounds(field).roll(5, dims=1))


@pytest.mark.parametrize("size", [0.0, 1.0, 1e20])
def test_gradients_are_finite(size: float) -> None:
    bounds = WaveBounds(0, (8, 8))
    bounds.fit(torch.randn(2, 8, 8))
    field = (size * torch.randn(1, 8, 8)).requires_grad_()
    bounds(field).sum().backward()
    assert field.grad is not None
    assert torch.isfinite(field.grad).all()
