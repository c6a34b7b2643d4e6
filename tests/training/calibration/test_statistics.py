"""Statistics of inputs: independent of the resolution, finite for any field, and fixed by a hand-made example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.calibration import InputStatistics


def waves(sides: tuple[int, ...], count: int = 12) -> Tensor:
    """Return smooth positive fields of one random family on the cell centres of any grid."""
    axes = torch.meshgrid(*((torch.arange(n) + 0.5) / n for n in sides), indexing="ij")
    generator = torch.Generator().manual_seed(0)
    fields = torch.zeros(count, *sides)
    for frequency in (1, 2, 3):
        amplitude = torch.randn(count, *(1,) * len(sides), generator=generator) / frequency
        fields += amplitude * torch.stack([torch.cos(torch.pi * frequency * axis) for axis in axes]).prod(0)
    return fields.exp()


@pytest.mark.parametrize("sides", [(64,), (32, 48), (12, 16, 10)])
def test_a_finer_grid_has_nearly_the_same_statistics(sides: tuple[int, ...]) -> None:
    statistics = InputStatistics((True,), (False,) * len(sides))
    coarse, fine = waves(sides), waves(tuple(2 * side for side in sides))
    statistics.fit([coarse])
    # Extrema of a coarse grid lie half a cell beside those of a fine one.
    torch.testing.assert_close(statistics([coarse]), statistics([fine]), rtol=0.15, atol=0.15)


def test_a_half_of_two_levels_is_seen_as_such() -> None:
    statistics = InputStatistics((False,), periodic=(False,))
    field = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    statistics.fit([field])
    mean, deviation, low, high, *_ = statistics([field])[0]
    found = torch.stack([mean, deviation.exp(), low, high])
    torch.testing.assert_close(found, torch.tensor([0.0, 1.0, -1.0, 1.0]), rtol=2e-3, atol=1e-6)
    near = statistics([field])[0, 4:12]
    assert near.sum().item() == pytest.approx(1)
    # One step of two deviations is the total variation.
    assert statistics([field])[0, 14].exp().item() == pytest.approx(2, rel=1e-3)


def test_the_roughness_shows_the_level_of_noise() -> None:
    statistics, fields = InputStatistics((False,), (False, False)), waves((32, 48))
    statistics.fit([fields])
    noise = torch.randn(fields.shape, generator=torch.Generator().manual_seed(1)) * fields.std()
    sizes = [statistics.roughness([fields + level * noise]).exp().mean(0) for level in (0.1, 1.0)]
    torch.testing.assert_close(sizes[1] / sizes[0], torch.full((2,), 10.0), rtol=0.05, atol=0)
    assert statistics.roughness([fields]).exp().max() < 0.1


@pytest.mark.parametrize("sides", [(2, 7), (3, 3)])
def test_axes_of_few_points_have_finite_statistics(sides: tuple[int, int]) -> None:
    statistics, fields = InputStatistics((False,), (False, False)), torch.rand(4, *sides)
    statistics.fit([fields])
    assert statistics([fields]).isfinite().all()
    assert statistics.roughness([fields]).isfinite().all()


@pytest.mark.parametrize("value", [1e-30, 1.0, 1e30])
def test_constant_fields_have_finite_statistics(value: float) -> None:
    statistics = InputStatistics((True,), periodic=(False, True))
    statistics.fit([torch.full((3, 8, 9), value)])
    assert statistics([torch.rand(2, 8, 9) + 0.1]).isfinite().all()


def test_components_and_parameters_are_channels_of_their_own() -> None:
    statistics = InputStatistics((False, False, True, False), periodic=(False, True))
    arguments = [torch.randn(5, 2, 8, 9), torch.rand(5, 8, 9) + 1, torch.randn(5)]
    statistics.fit(arguments)
    assert statistics(arguments).shape == (5, 3 * 24 + 1)
    moved = [arguments[0].flip(1), *arguments[1:]]
    assert not torch.equal(statistics(moved)[:, :24], statistics(arguments)[:, :24])


@pytest.mark.parametrize("sides", [(9,), (7, 11), (4, 5, 6)])
def test_a_channel_among_others_has_the_statistics_that_it_has_alone(sides: tuple[int, ...]) -> None:
    periodic = tuple(axis % 2 == 0 for axis in range(len(sides)))
    arguments = [torch.rand(5) + 1, torch.rand(5, 2, *sides) + 1, torch.rand(5), torch.rand(5, *sides) + 1]
    logarithms = (True, True, False, False, True)
    together = InputStatistics(logarithms, periodic)
    together.fit(arguments)
    channels = [arguments[0], *arguments[1].unbind(1), *arguments[2:]]
    found, rough = [], []
    for channel, logarithm in zip(channels, logarithms, strict=True):
        alone = InputStatistics((logarithm,), periodic)
        alone.fit([channel])
        found.append(alone([channel]))
        rough.append(alone.roughness([channel]))
    torch.testing.assert_close(together(arguments), torch.cat(found, dim=1))
    torch.testing.assert_close(together.roughness(arguments), torch.cat(rough, dim=1))
