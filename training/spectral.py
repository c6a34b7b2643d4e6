r"""The truncated Fourier transform as matrix products: takes fields, gives filtered or resampled fields.

Only the lowest modes survive a spectral convolution, so no FFT is needed: with the bases

.. math::
    C_{jk} = \cos(2\pi jk/n), \qquad S_{jk} = \sin(2\pi jk/n), \qquad 0 \le j < n,\ 0 \le k < M,

the coefficients of :math:`x` are :math:`(C - iS)^T x/n`. :math:`jk \bmod n` is reduced in integers before the cast to
float, or the angles lose digits. Convention, the same on every device: the inverse keeps the real part only, so the
imaginary part of the zero mode has no effect, and a Nyquist mode counts once.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from training.shapes import Line

Basis = Float[Tensor, "point mode"]
Down = tuple[Float[Tensor, "row row_mode"], Float[Tensor, "row row_mode"]]
Across = tuple[Float[Tensor, "column column_mode"], Float[Tensor, "column column_mode"]]


def bases(points: Tensor, modes: Tensor, dtype: torch.dtype) -> tuple[Basis, Basis]:
    """Give cos and sin of 2 pi j k / n for the indices j = 0..n-1 in `points` and the wave numbers k in `modes`."""
    n = points[-1:] + 1
    angle = (2 * math.pi) * (torch.remainder(points[:, None] * modes, n).to(dtype) / n.to(dtype))
    return torch.cos(angle), torch.sin(angle)


def hermitian(modes: Tensor, dtype: torch.dtype) -> Tensor:
    """Weigh each mode of a half spectrum by how often it stands in the whole one: zero once, the others twice."""
    return torch.where(modes > 0, 2, 1).to(dtype)


def resample_periodic(x: Line, points: Tensor, modes: int) -> Float[Tensor, "batch _"]:
    """Carry periodic samples to the grid of `points` = 0..m-1.

    Kept are the wave numbers below `modes` that both grids resolve: exact for band-limited fields.
    """
    source, wave = torch.arange(x.shape[-1], device=x.device), torch.arange(modes, device=x.device)
    resolved = (2 * wave <= source[-1:]) & (2 * wave <= points[-1:])
    weight = hermitian(wave, x.dtype) * resolved.to(x.dtype) / (source[-1:] + 1).to(x.dtype)
    (from_cos, from_sin), (to_cos, to_sin) = bases(source, wave, x.dtype), bases(points, wave, x.dtype)
    return (x @ from_cos * weight) @ to_cos.T + (x @ from_sin * weight) @ to_sin.T


class SpectralConv1d(nn.Module):
    """Multiply the lowest modes of periodic features by learned complex matrices and add a pointwise linear map.

    y = act(F^-1(W F x) + A x); wave numbers above `modes` are dropped from the first term.

    Args:
        inputs: channels in.
        outputs: channels out.
        modes: wave numbers 0..modes-1 that are kept; the grid needs at least 2 * modes - 1 points.
    """

    def __init__(self, inputs: int, outputs: int, modes: int) -> None:
        super().__init__()
        self.weight = mode_weights(modes, inputs, outputs)
        self.residual = nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Float[Tensor, "batch channel point"]) -> Float[Tensor, "batch _ point"]:
        wave = torch.arange(self.weight.shape[0], device=x.device)
        cos, sin = bases(torch.arange(x.shape[-1], device=x.device), wave, x.dtype)
        real, imaginary = (functional.linear(x, basis.T).permute(2, 0, 1) for basis in (cos, -sin))
        real, imaginary = (y.permute(1, 2, 0) for y in multiply(real, imaginary, self.weight))
        weight = hermitian(wave, x.dtype) / x.shape[-1]
        return functional.silu(
            functional.linear(real * weight, cos) - functional.linear(imaginary * weight, sin) + self.residual(x)
        )


class SpectralConv2d(nn.Module):
    """The same on a plane: rows keep the wave numbers -modes..modes-1, columns 0..modes-1.

    Args:
        inputs: channels in.
        outputs: channels out.
        modes: per axis; each side of the grid needs at least 2 * modes points.
    """

    def __init__(self, inputs: int, outputs: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.weight = mode_weights(2 * modes * modes, inputs, outputs)
        self.residual = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Float[Tensor, "batch channel row column"]) -> Float[Tensor, "batch _ row column"]:
        height, width = x.shape[-2:]
        rows = torch.arange(-self.modes, self.modes, device=x.device)
        columns = torch.arange(self.modes, device=x.device)
        down = bases(torch.arange(height, device=x.device), rows, x.dtype)
        across = bases(torch.arange(width, device=x.device), columns, x.dtype)
        real, imaginary = (part.permute(2, 3, 0, 1).flatten(0, 1) for part in forward_2d(x, down, across))
        shape = (self.modes, 2 * self.modes)
        real, imaginary = (y.unflatten(0, shape).permute(2, 3, 0, 1) for y in multiply(real, imaginary, self.weight))
        weight = (hermitian(columns, x.dtype) / (height * width))[:, None]
        return functional.silu(inverse_2d(real * weight, imaginary * weight, down, across) + self.residual(x))


def mode_weights(modes: int, inputs: int, outputs: int) -> nn.Parameter:
    """Draw one complex matrix a mode, real and imaginary part along the last axis: [mode, in, out, 2]."""
    return nn.Parameter(torch.randn(modes, inputs, outputs, 2) / (inputs * outputs) ** 0.5)


def multiply(real: Tensor, imaginary: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply each mode's channels by its matrix, [mode, batch, in] -> [mode, batch, out].

    One real product of twice the width does for the four of a complex one.
    """
    a, b = weight.unbind(-1)
    matrix = torch.cat([torch.cat([a, b], dim=-1), torch.cat([-b, a], dim=-1)], dim=-2)
    first, second = (torch.cat([real, imaginary], dim=-1) @ matrix).chunk(2, dim=-1)
    return first, second


# Every transform is `linear` on the last axis, one large matrix product; a broadcast product would loop over batch
# and channels.


def forward_2d(x: Tensor, down: Down, across: Across) -> tuple[Tensor, Tensor]:
    """Transform columns, then rows: [..., row, column] -> real and imaginary [..., column mode, row mode]."""
    (cos, sin), (cos_across, sin_across) = ((a.T, b.T) for a, b in (down, across))
    real = functional.linear(x, cos_across).transpose(-2, -1)
    imaginary = -functional.linear(x, sin_across).transpose(-2, -1)
    return (
        functional.linear(real, cos) + functional.linear(imaginary, sin),
        functional.linear(imaginary, cos) - functional.linear(real, sin),
    )


def inverse_2d(real: Tensor, imaginary: Tensor, down: Down, across: Across) -> Tensor:
    """Transform back and keep the real part: [..., column mode, row mode] -> [..., row, column]."""
    cos, sin = down
    along = functional.linear(real, cos) - functional.linear(imaginary, sin)
    beside = functional.linear(imaginary, cos) + functional.linear(real, sin)
    return functional.linear(along.transpose(-2, -1), across[0]) - functional.linear(
        beside.transpose(-2, -1), across[1]
    )
