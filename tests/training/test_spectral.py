"""The truncated Fourier transform against torch's FFT, and what makes it independent of the grid."""

from __future__ import annotations

import math

import pytest
import torch

from training.spectral import SpectralConv1d, SpectralConv2d, bases, resample_periodic


def reference_1d(layer: SpectralConv1d, x: torch.Tensor) -> torch.Tensor:
    modes, points = layer.weight.shape[0], x.shape[-1]
    spectrum = torch.zeros(x.shape[0], layer.weight.shape[2], points // 2 + 1, dtype=torch.complex128)
    weight = torch.view_as_complex(layer.weight)
    spectrum[..., :modes] = torch.einsum("bik,kio->bok", torch.fft.rfft(x)[..., :modes], weight)
    return torch.nn.functional.silu(torch.fft.irfft(spectrum, n=points) + layer.residual(x))


def reference_2d(layer: SpectralConv2d, x: torch.Tensor) -> torch.Tensor:
    modes, (height, width) = layer.modes, x.shape[-2:]
    weight = torch.view_as_complex(layer.weight).unflatten(0, (modes, 2 * modes))  # [column, row, in, out]
    rows = torch.arange(-modes, modes) % height
    spectrum = torch.zeros(x.shape[0], weight.shape[-1], height, width // 2 + 1, dtype=torch.complex128)
    kept = torch.fft.rfft2(x)[:, :, rows, :modes]
    spectrum[:, :, rows, :modes] = torch.einsum("birc,crio->borc", kept, weight)
    return torch.nn.functional.silu(torch.fft.irfft2(spectrum, s=(height, width)) + layer.residual(x))


@pytest.mark.parametrize("points", [9, 16, 43])
def test_1d_layer_equals_the_fft(points: int) -> None:
    layer, x = SpectralConv1d(3, 4, modes=5).double(), torch.randn(2, 3, points, dtype=torch.float64)
    torch.testing.assert_close(layer(x), reference_1d(layer, x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("grid", [(8, 8), (9, 11), (29, 16)])
def test_2d_layer_equals_the_fft(grid: tuple[int, int]) -> None:
    layer, x = SpectralConv2d(3, 2, modes=4).double(), torch.randn(2, 3, *grid, dtype=torch.float64)
    torch.testing.assert_close(layer(x), reference_2d(layer, x), rtol=1e-10, atol=1e-12)


def test_angles_keep_their_digits_on_long_grids() -> None:
    points, wave = torch.arange(8192), torch.tensor([4000])
    exact = torch.cos(2 * math.pi * (points * 4000 % 8192).double() / 8192)
    assert (bases(points, wave, torch.float32)[0][:, 0].double() - exact).abs().max() < 1e-6


@pytest.mark.parametrize(("source", "target"), [(64, 64), (64, 200), (301, 64), (32, 33)])
def test_resampling_a_band_limited_field_is_exact(source: int, target: int) -> None:
    def field(points: int) -> torch.Tensor:
        x = torch.arange(points, dtype=torch.float64) / points
        return 0.3 + torch.sin(2 * math.pi * 3 * x)[None] - 2 * torch.cos(2 * math.pi * 7 * x)[None]

    torch.testing.assert_close(resample_periodic(field(source), torch.arange(target), modes=16), field(target))


def test_modes_that_a_grid_cannot_resolve_do_not_alias() -> None:
    x = torch.randn(1, 16, dtype=torch.float64)
    torch.testing.assert_close(
        resample_periodic(x, torch.arange(16), modes=32), resample_periodic(x, torch.arange(16), modes=8)
    )
