"""The truncated Fourier transform against torch's FFT, and its independence of the grid."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.nn.decoders import published_deviation
from training.nn.lines import resample_periodic
from training.nn.spectral import SpectralConv, waves


def by_fft(layer: SpectralConv, x: Tensor) -> Tensor:
    """Return the output of the published layer, which assigns blocks of the spectrum, negative wave numbers last."""
    sides, M, letters = x.shape[2:], layer.modes, "xyz"[: x.ndim - 2]
    weight = torch.view_as_complex(layer.weight).unflatten(0, (M, *[2 * M] * (len(sides) - 1)))
    weight = weight.permute(*reversed(range(len(sides))), -2, -1)  # [first mode, ..., last mode, in, out]
    spectrum = torch.fft.rfftn(x, dim=tuple(range(2, x.ndim)))
    kept = torch.zeros(x.shape[0], weight.shape[-1], *spectrum.shape[2:], dtype=spectrum.dtype)
    for signs in product(*[(1, -1)] * (len(sides) - 1)):
        full = zip(signs, sides, strict=False)
        rows = [torch.arange(M) if sign > 0 else torch.arange(-M, 0) % side for sign, side in full]
        index = (slice(None), slice(None), *torch.meshgrid(*rows, torch.arange(M), indexing="ij"))
        block = weight[tuple(slice(M, None) if sign > 0 else slice(M) for sign in signs)]
        kept[index] = torch.einsum(f"bi{letters},{letters}io->bo{letters}", spectrum[index], block)
    return torch.nn.functional.silu(torch.fft.irfftn(kept, s=sides) + layer.residual(x))


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_layer_equals_the_fft_on_every_grid_that_resolves_its_modes(data: st.DataObject) -> None:
    sides = data.draw(st.lists(st.integers(3, 12), min_size=1, max_size=3))
    modes = data.draw(st.integers(1, min(sides) // 2 + 1))  # up to the Nyquist mode of the shortest axis
    torch.manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    layer = SpectralConv(3, 2, modes, len(sides)).double()
    x = torch.randn(2, 3, *sides, dtype=torch.float64)
    torch.testing.assert_close(layer(x), by_fft(layer, x), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("grid", [(7,), (6, 9), (5, 4, 6)])
def test_a_coarse_grid_uses_the_modes_that_it_resolves(grid: tuple[int, ...]) -> None:
    axes, few = len(grid), min(grid) // 2 + 1
    layer, coarse = SpectralConv(2, 3, 8, axes).double(), SpectralConv(2, 3, few, axes).double()
    shared = layer.weight.detach().unflatten(0, (8, *[16] * (axes - 1)))
    for axis in range(axes):
        shared = shared.narrow(axis, 8 - few if axis else 0, 2 * few if axis else few)
    coarse.load_state_dict(layer.state_dict() | {"weight": shared.flatten(0, axes - 1)})
    x = torch.randn(2, 2, *[min(grid)] * axes, dtype=torch.float64)
    torch.testing.assert_close(layer(x), coarse(x))
    assert layer(torch.randn(2, 2, *grid, dtype=torch.float64)).isfinite().all()


def test_dropout_does_not_act_on_the_pointwise_map() -> None:
    layer, x = SpectralConv(3, 4, 2, 1, activation="none", dropout=1 - 1e-9), torch.randn(2, 3, 8)
    torch.testing.assert_close(layer(x), layer.residual(x))
    assert not torch.allclose(layer.eval()(x), layer.residual(x), atol=1e-3)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_weights_start_with_the_configured_deviation(dimensions: int) -> None:
    deviation = published_deviation(16, 8, 3, dimensions)
    layer = SpectralConv(16, 8, 3, dimensions, deviation=deviation)
    assert layer.weight.std().item() == pytest.approx(deviation, rel=0.1)
    shape = (16, 8, *[3] * dimensions, 2)
    gain = (1 if dimensions == 1 else 24**0.5) / 128
    assert torch.nn.init.xavier_normal_(torch.empty(shape), gain).std().item() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize(("modes", "dimensions"), [(0, 1), (4, 0), (4, 4)])
def test_invalid_sizes_are_refused(modes: int, dimensions: int) -> None:
    with pytest.raises(ValueError, match=f"got {modes} modes and {dimensions} axes"):
        SpectralConv(2, 2, modes, dimensions)


def test_angles_keep_their_digits_on_long_grids() -> None:
    points, wave = torch.arange(8192), torch.tensor([4000])
    exact = torch.cos(2 * math.pi * (points * 4000 % 8192).double() / 8192)
    assert (waves(points, wave, points[-1:] + 1, torch.float32)[0][:, 0].double() - exact).abs().max() < 1e-6


@pytest.mark.parametrize(("source", "target"), [(64, 64), (64, 200), (301, 64), (32, 33)])
def test_resampling_a_band_limited_field_is_exact(source: int, target: int) -> None:
    def field(points: int) -> torch.Tensor:
        x = torch.arange(points, dtype=torch.float64) / points
        return 0.3 + torch.sin(2 * math.pi * 3 * x)[None] - 2 * torch.cos(2 * math.pi * 7 * x)[None]

    torch.testing.assert_close(resample_periodic(field(source), torch.arange(target), modes=16), field(target))


@given(source=st.integers(1, 300), target=st.integers(1, 300), modes=st.integers(1, 40), seed=st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_resampling_is_the_truncated_fourier_series(source: int, target: int, modes: int, seed: int) -> None:
    """For all lengths, so for every end of the last block of points."""
    x = torch.randn(2, source, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    shift = torch.tensor([0.0, 0.3], dtype=torch.float64)
    expected = torch.zeros(2, target, dtype=torch.float64)
    coordinates = torch.arange(target, dtype=torch.float64) / target - shift[:, None]
    for k, amplitude in enumerate(torch.fft.rfft(x, norm="forward").unbind(1)):
        if k < modes and 2 * k < min(source, target):
            expected += (2 if k else 1) * (amplitude[:, None] * torch.exp(2j * math.pi * k * coordinates)).real
    found = resample_periodic(x, torch.arange(target), modes, shift=shift)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_modes_that_a_grid_cannot_resolve_do_not_alias() -> None:
    x = torch.randn(1, 16, dtype=torch.float64)
    torch.testing.assert_close(
        resample_periodic(x, torch.arange(16), modes=32), resample_periodic(x, torch.arange(16), modes=8)
    )


def test_half_precision_rounds_the_waves_and_not_their_angles() -> None:
    points, modes = torch.arange(1000), torch.arange(12)
    for dtype in (torch.bfloat16, torch.float16):
        exact = waves(points, modes, points[-1:] + 1, torch.float64)
        for found, one in zip(waves(points, modes, points[-1:] + 1, dtype), exact, strict=True):
            assert found.dtype == dtype
            assert (found - one).abs().max() <= torch.finfo(dtype).eps
