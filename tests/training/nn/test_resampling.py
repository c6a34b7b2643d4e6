"""Resampling of fields between grids: what is exact, and what is averaged."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.nn.grids import grid_coordinates, hat_matrix, indices, resample, sample
from training.nn.scalers import Downscaler, Upscaler, interpolate

SIDES = st.integers(2, 60)


@given(SIDES, SIDES)
def test_rows_are_weights(source: int, target: int) -> None:
    matrix = hat_matrix(torch.arange(source), torch.arange(target), torch.float64)
    assert matrix.min() >= 0
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(target, dtype=torch.float64))


@pytest.mark.parametrize("target", [(5, 9), (29, 17), (40, 31)])
def test_sampling_is_bilinear_interpolation_on_finer_and_coarser_grids(target: tuple[int, int]) -> None:
    x = torch.randn(2, 3, 29, 17, dtype=torch.float64)
    torch.testing.assert_close(sample(x, *map(torch.arange, target)), interpolate(x, target))


@given(SIDES)
def test_a_grid_is_resampled_to_itself_exactly(side: int) -> None:
    for average in (True, False):
        matrix = hat_matrix(torch.arange(side), torch.arange(side), torch.float32, average=average)
        assert torch.equal(matrix, torch.eye(side))


@pytest.mark.parametrize("target", [(29, 29), (57, 113), (30, 85)])
def test_refining_is_exact_for_linear_fields(target: tuple[int, int]) -> None:
    def plane(rows: int, columns: int) -> torch.Tensor:
        y, x = torch.linspace(0, 1, rows)[:, None], torch.linspace(0, 1, columns)[None]
        return 1 + 2 * y - 3 * x

    torch.testing.assert_close(
        resample(plane(29, 29), *map(torch.arange, target)), plane(*target), rtol=1e-5, atol=1e-5
    )


def test_coarsening_averages_instead_of_aliasing() -> None:
    checkerboard = torch.ones(85, 85)
    checkerboard[::2, ::2] = checkerboard[1::2, 1::2] = -1
    assert resample(checkerboard, torch.arange(29), torch.arange(29))[1:-1, 1:-1].abs().max() < 0.1


def test_the_cnn_reaches_the_configured_sizes() -> None:
    tokens = Downscaler(1, 10, stem=4, middle=17, side=9)(torch.randn(2, 1, 29, 29))
    assert tokens.shape == (2, 10, 9, 9)
    assert Upscaler(10, 5, middle=17, side=29)(tokens).shape == (2, 5, 29, 29)


@pytest.mark.parametrize("multiple", [1, 4, 16])
@pytest.mark.parametrize("bias", [False, True])
def test_padding_the_chain_keeps_the_output(multiple: int, *, bias: bool) -> None:
    layer, x = Downscaler(1, 10, stem=4, middle=17, side=9, bias=bias).double(), torch.randn(2, 1, 29, 29).double()
    expected = layer(x)
    layer.pad_chain(multiple)
    widths = [link[0].out_channels for link in layer.chain]
    assert all(width % multiple == 0 for width in widths)
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_the_cnn_scales_rectangles() -> None:
    tokens = Downscaler(2, 10, stem=4, middle=(9, 13), side=(5, 7))(torch.randn(2, 2, 15, 11))
    assert tokens.shape == (2, 10, 5, 7)
    assert Upscaler(10, 5, middle=(9, 13), side=(15, 11))(tokens).shape == (2, 5, 15, 11)


def test_reactivation_makes_a_difference_only_where_the_activation_is_not_idempotent() -> None:
    x = torch.randn(2, 3, 9, 9)
    for activation, same in (("relu", True), ("silu", False)):
        once = Upscaler(3, 4, 7, 9, activation=activation)
        twice = Upscaler(3, 4, 7, 9, activation=activation, reactivate=True)
        twice.load_state_dict(once.state_dict())
        assert torch.allclose(once(x), twice(x)) == same


def test_dropout_is_off_in_evaluation() -> None:
    x = torch.randn(1, 1, 9, 9)
    for layer in (Downscaler(1, 9, 4, 7, 5, dropout=0.5), Upscaler(1, 4, 7, 5, dropout=0.5, reactivate=True)):
        assert not torch.equal(layer(x), layer(x))
        layer.eval()
        assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize(("source", "target"), [(1, 1), (1, 4), (4, 1)])
def test_an_axis_of_one_point_has_its_value(source: int, target: int, average: bool) -> None:
    """One point is the mean of many, or the first of them; many have the value of one."""
    x = torch.arange(1.0, source + 1)[:, None].expand(source, 3)
    found = resample(x, torch.arange(target), torch.arange(3), average=average)
    expected = x.mean() if average else x[0, 0]
    torch.testing.assert_close(found, expected.expand(target, 3))
    assert grid_coordinates(indices((1, 3)), torch.float32).tolist() == [[[0, 0, 0]], [[0, 0.5, 1]]]
