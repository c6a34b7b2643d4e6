"""Transfers between grids: exact where they have to be, for every rule of points, open ends and closed circles."""

from __future__ import annotations

import math

import pytest
import torch

from training.nn.grids import AxisRule, Rule, transfer
from training.nn.pointwise import BoundaryConv
from training.nn.spectral import BoundarySpectralConv, SpectralConv, band_limited

RULES = [
    AxisRule("cells", periodic=False),
    AxisRule("cells", periodic=True),
    AxisRule("nodes", periodic=False),
    AxisRule("left", periodic=True),
]


def points(count: int, rule: Rule) -> torch.Tensor:
    index = torch.arange(count, dtype=torch.float64)
    return {"cells": (index + 0.5) / count, "nodes": index / (count - 1), "left": index / count}[rule]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("side", [5, 12, 421])
def test_the_same_grid_is_carried_to_itself_exactly(rule: AxisRule, side: int) -> None:
    x = torch.randn(2, 3, side)
    assert torch.equal(transfer(x, [torch.arange(side)], [rule]), x)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("source", "target"), [(9, 31), (31, 9), (40, 41)])
def test_constants_stay(rule: AxisRule, source: int, target: int) -> None:
    carried = transfer(torch.full((1, 1, source), 3.5, dtype=torch.float64), [torch.arange(target)], [rule])
    assert torch.allclose(carried, torch.full((1, 1, target), 3.5, dtype=torch.float64))


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.periodic], ids=str)
def test_straight_lines_stay_inside_the_outermost_points(rule: AxisRule) -> None:
    x, y = points(8, rule.points), points(29, rule.points)
    carried = transfer(x[None, None], [torch.arange(29)], [rule])[0, 0]
    assert torch.allclose(carried, y.clamp(x[0], x[-1]))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.periodic], ids=str)
def test_the_error_on_a_circle_falls_with_order_two(rule: AxisRule) -> None:
    def wave(count: int) -> torch.Tensor:
        return torch.sin(2 * math.pi * points(count, rule.points) + 1)

    errors = [
        (transfer(wave(n)[None, None], [torch.arange(200)], [rule])[0, 0] - wave(200)).abs().max() for n in (20, 40)
    ]
    assert 3.5 < float(errors[0] / errors[1]) < 4.5


def test_axes_are_carried_one_by_one() -> None:
    x = torch.randn(2, 3, 6, 7)
    rules = [AxisRule("nodes", periodic=False), AxisRule("left", periodic=True)]
    both = transfer(x, [torch.arange(9), torch.arange(10)], rules)
    first = transfer(x, [torch.arange(9), torch.arange(7)], rules)
    assert both.shape == (2, 3, 9, 10)
    assert torch.allclose(both, transfer(first, [torch.arange(9), torch.arange(10)], rules), atol=1e-6)


@pytest.mark.parametrize(
    "layer", [BoundaryConv(2, 3, [True, False]), BoundarySpectralConv(2, 3, 4, [True, False], (12, 10))]
)
def test_layers_commute_with_shifts_along_a_periodic_axis_only(layer: torch.nn.Module) -> None:
    x = torch.randn(1, 2, 12, 10)
    along = (layer(x.roll(5, 2)) - layer(x).roll(5, 2)).abs().max()
    across = (layer(x.roll(5, 3)) - layer(x).roll(5, 3)).abs().max()
    assert along < 1e-5
    assert across > 1e-2


def test_a_spectral_layer_with_periodic_axes_is_that_of_the_other_operators() -> None:
    x, layer = torch.randn(2, 2, 12, 10), BoundarySpectralConv(2, 3, 4, [True, True], (12, 10))
    other = SpectralConv(2, 3, 4, 2)
    other.load_state_dict(layer.state_dict())
    assert torch.allclose(layer(x), other(x), atol=1e-5)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_layers_keep_the_grid_on_one_to_three_axes(axes: int) -> None:
    x = torch.randn(2, 2, *range(6, 6 + axes))
    for layer in (BoundaryConv(2, 5, [True] * axes), BoundarySpectralConv(2, 5, 3, [False] * axes, x.shape[2:])):
        assert layer(x).shape == (2, 5, *x.shape[2:])


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.periodic], ids=str)
@pytest.mark.parametrize(("source", "target"), [(16, 40), (40, 16), (15, 16), (16, 16)])
def test_a_fourier_series_carries_resolved_waves_exactly(rule: AxisRule, source: int, target: int) -> None:
    def waves(count: int) -> torch.Tensor:
        angle = 2 * math.pi * points(count, rule.points)
        return (torch.sin(7 * angle + 1) + 2 * torch.cos(3 * angle) + 0.5)[None, None]

    found = band_limited(waves(source), [torch.arange(target)], [rule], [9])
    torch.testing.assert_close(found, waves(target))


def test_a_fourier_series_on_its_own_grid_keeps_any_field() -> None:
    x = torch.randn(2, 3, 8, 9, dtype=torch.float64)
    rules = [AxisRule("left", periodic=True), AxisRule("cells", periodic=True)]
    torch.testing.assert_close(band_limited(x, [torch.arange(8), torch.arange(9)], rules, [5, 5]), x)


def test_a_fourier_series_drops_what_the_coarser_grid_does_not_resolve() -> None:
    wave = torch.cos(2 * math.pi * 7 * torch.arange(32, dtype=torch.float64) / 32)[None, None]
    found = band_limited(wave, [torch.arange(8)], [AxisRule("left", periodic=True)], [17])
    assert float(found.abs().max()) < 1e-12
