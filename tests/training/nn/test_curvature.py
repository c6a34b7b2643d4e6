"""Slopes and curvatures: exact for parabolas, similar on all grids, and damped noise."""

from __future__ import annotations

import torch

from physics.numerics.grid import WALL
from training.nn.measured import FEATURES, AxisDifferences, derivatives


def coordinates(points: int) -> torch.Tensor:
    return WALL + (1 - 2 * WALL) * torch.linspace(0, 1, points, dtype=torch.float64)


def derived(u: torch.Tensor, working: int, *widths: float) -> torch.Tensor:
    target = torch.arange(working)
    axes = [AxisDifferences(torch.arange(side), target, WALL, u.dtype) for side in u.shape[1:]]
    return derivatives(u, axes, widths)


def dome(rows: int, columns: int) -> torch.Tensor:
    """Return a field that is a parabola along each axis and vanishes on the walls."""
    y, x = coordinates(rows)[:, None], coordinates(columns)[None]
    return (y * (1 - y) * x * (1 - x))[None]


def test_curvatures_of_parabolas_are_exact_up_to_the_walls() -> None:
    y, x = coordinates(29)[:, None], coordinates(29)[None]
    [found] = derived(dome(29, 29), 29, 1.0)
    torch.testing.assert_close(found[2], (-2 * x * (1 - x)).expand(29, 29))
    torch.testing.assert_close(found[3], (-2 * y * (1 - y)).expand(29, 29))


def test_slopes_of_parabolas_are_exact_inside() -> None:
    y, x = coordinates(29)[:, None], coordinates(29)[None]
    [found] = derived(dome(29, 29), 29, 1.0)
    torch.testing.assert_close(found[0, 1:-1], ((1 - 2 * y) * x * (1 - x))[1:-1])
    torch.testing.assert_close(found[1, :, 1:-1], (y * (1 - y) * (1 - 2 * x))[:, 1:-1])


def test_features_hardly_depend_on_the_grid_of_the_input() -> None:
    coarse, fine = derived(dome(57, 85), 29, 2.0, 4.0), derived(dome(113, 169), 29, 2.0, 4.0)
    assert coarse.shape == (1, 2 * FEATURES, 29, 29)
    inside = slice(4, -4)
    torch.testing.assert_close(coarse[..., inside, inside], fine[..., inside, inside], rtol=0.02, atol=1e-3)


def test_wide_averages_damp_the_curvature_of_noise() -> None:
    torch.manual_seed(0)
    found = derived(torch.randn(4, 141, 141, dtype=torch.float64), 141, 1.0, 4.0)[..., 8:-8, 8:-8]
    narrow, wide = found[:, :FEATURES], found[:, FEATURES:]
    assert (wide[:, 2:].std() < 0.1 * narrow[:, 2:].std()).all()
