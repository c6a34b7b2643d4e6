r"""Truncated Fourier transforms as matrix products, and the spectral convolution.

A spectral convolution keeps only the lowest modes, so it needs no FFT. With the bases

.. math::
    C_{jk} = \cos(2\pi jk/n), \qquad S_{jk} = \sin(2\pi jk/n), \qquad 0 \le j < n,\ 0 \le k < M,

the coefficients of :math:`x` are :math:`(C - iS)^T x/n`. The product :math:`jk` is reduced modulo :math:`n` in integers
before the cast to float, because the angles would lose digits otherwise. The inverse transform keeps the real part. So
the imaginary parts of the zero mode and of a Nyquist mode have no effect, and a Nyquist mode counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from training.nn.activations import Activation, build_activation
from training.nn.dropout import Dropout
from training.nn.shapes import Channels, Features, Line

Basis = Float[Tensor, "point mode"]
Waves = Int[Tensor, " mode"]
Points = Int[Tensor, " point"]
Indices = Int[Tensor, " _"]
Weight = Float[Tensor, " mode"]
Rotation = Float[Tensor, "_ _"]
Spectrum = Float[Tensor, "batch mode"]

BLOCK = 64  # points of a long line that are transformed together

#: A linear map of the channels at every point of 1, 2 or 3 axes is a convolution of width one.
CONVOLUTION = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def bases(points: Points, modes: Waves, dtype: torch.dtype) -> tuple[Basis, Basis]:
    """Return cos and sin of 2 pi j k / n for all points of a line.

    Args:
        points: The indices j = 0..n-1.
        modes: The wave numbers k.
        dtype: The dtype of the results.

    Returns:
        Cosines and sines, each of shape `[point, mode]`.
    """
    return waves(points, modes, points[-1:] + 1, dtype)


def waves(points: Points, modes: Waves, n: Int[Tensor, " 1"], dtype: torch.dtype) -> tuple[Basis, Basis]:
    """Return cos and sin of 2 pi j k / n for any points.

    Args:
        points: The indices j.
        modes: The wave numbers k.
        n: The number of points of the line, of shape `[1]`.
        dtype: The dtype of the results.

    Returns:
        Cosines and sines, each of shape `[point, mode]`.
    """
    angle = turn(dtype) * (torch.remainder(points[:, None] * modes, n).to(dtype) / n.to(dtype))
    return torch.cos(angle), torch.sin(angle)


def turn(dtype: torch.dtype) -> float | Tensor:
    """Return 2 pi. The exporter rounds Python's numbers to float32, also where they multiply float64."""
    return torch.tensor(2 * math.pi, dtype=dtype) if dtype == torch.float64 else 2 * math.pi


def hermitian(points: Points, modes: Waves, dtype: torch.dtype) -> Weight:
    """Return how often the whole spectrum holds each mode of the half spectrum: zero and Nyquist once, others twice.

    Args:
        points: The indices 0..n-1 of the line.
        modes: The wave numbers of the half spectrum.
        dtype: The dtype of the result.
    """
    return torch.where((modes > 0) & (2 * modes <= points[-1:]), 2, 1).to(dtype)


def resample_periodic(
    x: Line, points: Tensor, modes: int, *, shift: Float[Tensor, " batch"] | None = None
) -> Float[Tensor, "batch _"]:
    """Resample periodic functions on another grid by their truncated Fourier series, and shift them.

    The series keeps the wave numbers below `modes` that both grids resolve. For band-limited functions it is exact.

    Args:
        x: The functions, of shape `[batch, point]`.
        points: The indices 0..m-1 of the other grid.
        modes: The number of wave numbers, from 0.
        shift: The shift of each function to the right, in periods, of shape `[batch]`.

    Returns:
        The functions on the other grid, of shape `[batch, m]`.

    Example:
        >>> x = torch.sin(2 * torch.pi * torch.arange(4) / 4)[None]
        >>> resample_periodic(x, torch.arange(8), modes=2)[0, :3].abs().round(decimals=4)
        tensor([0.0000, 0.7071, 1.0000])
    """
    source, wave = torch.arange(x.shape[-1], device=x.device), torch.arange(modes, device=x.device)
    resolved = (2 * wave <= source[-1:]) & (2 * wave <= points[-1:])
    weight = hermitian(source, wave, x.dtype) * resolved.to(x.dtype) / (source[-1:] + 1).to(x.dtype)
    even, odd = (part * weight for part in analyse(x, source, wave))
    if shift is not None:
        angle = (2 * math.pi) * torch.frac(shift)[:, None] * wave
        cos, sin = torch.cos(angle), torch.sin(angle)
        even, odd = even * cos - odd * sin, even * sin + odd * cos
    return synthesise(even, odd, points, wave)


# On a long line, computing the n M cosines takes longer than the products with them. So the points are grouped in
# blocks of `BLOCK`. The angle 2 pi k (j + s) / n of a block's start j and a step s is a sum of two angles, so that
# (n / BLOCK + BLOCK) M cosines are enough. Each block is transformed relative to its start, then rotated by the angle
# of the start.


def blocks(points: Points) -> tuple[Indices, Indices]:
    """Return the indices of the blocks' starts and the steps from each. The last block may extend beyond the line."""
    return points[::BLOCK], torch.arange(BLOCK, device=points.device)


def analyse(x: Line, points: Points, modes: Waves) -> tuple[Spectrum, Spectrum]:
    """Return the sums of x cos and x sin over the line for each wave number.

    Args:
        x: The functions, of shape `[batch, point]`.
        points: The indices 0..n-1 of the line.
        modes: The wave numbers.

    Returns:
        Both sums, each of shape `[batch, mode]`.
    """
    starts, steps = blocks(points)
    rows = functional.pad(x, (0, BLOCK - 1))[:, starts[:, None] + steps]
    (cos, sin), basis = rotations(points, modes, x.dtype)
    even, odd = (rows @ basis).chunk(2, dim=-1)
    return (even * cos - odd * sin).sum(1), (odd * cos + even * sin).sum(1)


def synthesise(even: Spectrum, odd: Spectrum, points: Points, modes: Waves) -> Float[Tensor, "batch _"]:
    """Return the sum of even cos + odd sin over the wave numbers at each point.

    Args:
        even: The coefficients of the cosines, of shape `[batch, mode]`.
        odd: The coefficients of the sines, of the same shape.
        points: The indices 0..n-1 of the line.
        modes: The wave numbers.

    Returns:
        The functions, of shape `[batch, point]`.
    """
    (cos, sin), basis = rotations(points, modes, even.dtype)
    even, odd = even[:, None], odd[:, None]
    rows = torch.cat([even * cos + odd * sin, odd * cos - even * sin], dim=-1) @ basis.T
    return rows.flatten(1)[:, points]


def rotations(points: Points, modes: Waves, dtype: torch.dtype) -> tuple[tuple[Rotation, Rotation], Rotation]:
    """Return cos and sin at the blocks' starts, and cos and sin at the steps, concatenated.

    Args:
        points: The indices 0..n-1 of the line.
        modes: The wave numbers.
        dtype: The dtype of the results.
    """
    (starts, steps), n = blocks(points), points[-1:] + 1
    return waves(starts, modes, n, dtype), torch.cat(waves(steps, modes, n, dtype), dim=-1)


def antiderivative(points: int) -> Float[Tensor, "point point"]:
    r"""Return the matrix A for which x A is :math:`2\pi` times the antiderivative of a function x of period 1.

    The antiderivative has zero mean. A wave of number k is divided by k and shifted by a quarter of its length. The
    mean and the Nyquist mode of x are dropped. The factor :math:`2\pi` keeps the amplitude of the wave of number 1.
    """
    index, wave = torch.arange(points), torch.arange(1, (points + 1) // 2)
    cos, sin = bases(index, wave, torch.float64)
    return ((cos / wave @ sin.T - sin / wave @ cos.T) * 2 / points).to(torch.get_default_dtype())


class SpectralConv(nn.Module):
    r"""Multiply the lowest Fourier modes of features by learned complex matrices and add a pointwise linear map.

    .. math::
        y = \mathrm{act}(F^{-1}(W\,F x) + A x + b)

    The last axis keeps the wave numbers 0..M-1 and every other axis -M..M-1; the first term drops the others. An axis
    of n points resolves at most :math:`\lfloor n/2\rfloor + 1` modes. On a coarser grid the layer uses the modes that
    the grid resolves. Where 2M > n, the positive and the negative wave numbers of an axis overlap and the negative ones
    are used, as in the reference project.

    Args:
        inputs: The number of channels in.
        outputs: The number of channels out.
        modes: The number of wave numbers per axis, M.
        dimensions: The number of axes, 1 to 3.
        activation: The activation of the sum.
        dropout: The dropout rate before the transform. The pointwise map has none. It is 0 in evaluation.
        deviation: The standard deviation of the initial spectral weights; None is 1 / sqrt(inputs * outputs).

    Raises:
        ValueError: `modes` is less than 1, or `dimensions` is not 1, 2 or 3.

    References:
        | Fourier Neural Operator for Parametric Partial Differential Equations (Li et al., ICLR 2021)
        | https://arxiv.org/abs/2010.08895
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), appendix C
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> layer = SpectralConv(3, 8, modes=5, dimensions=2)
        >>> layer(torch.randn(4, 3, 16, 12)).shape
        torch.Size([4, 8, 16, 12])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        modes: int,
        dimensions: int,
        *,
        activation: Activation = "silu",
        dropout: float = 0.0,
        deviation: float | None = None,
    ) -> None:
        super().__init__()
        if modes < 1 or dimensions not in CONVOLUTION:
            raise ValueError(f"expected at least 1 mode and 1 to 3 axes but got {modes} modes and {dimensions} axes")
        self.modes = modes
        scale = (inputs * outputs) ** -0.5 if deviation is None else deviation
        # One complex matrix per mode, real and imaginary part last. The modes of the last axis vary slowest.
        self.weight = nn.Parameter(scale * torch.randn(modes * (2 * modes) ** (dimensions - 1), inputs, outputs, 2))
        self.residual = CONVOLUTION[dimensions](inputs, outputs, 1)
        self.dropout = Dropout(dropout)
        self.activation = build_activation(activation)

    def forward(self, x: Channels) -> Features:
        axes = self.axes(x)
        real, imaginary = transform(self.dropout(x), axes)
        shape = real.shape[2:]
        real, imaginary = (part.flatten(2).permute(2, 0, 1) for part in (real, imaginary))
        real, imaginary = self.mix(real, imaginary)
        real, imaginary = (part.permute(1, 2, 0).unflatten(2, shape) for part in (real, imaginary))
        return self.activation(inverse(real, imaginary, axes) + self.residual(x))

    def mix(self, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
        """Return the channels of each mode, `[mode, batch, channel]`, multiplied by its matrix."""
        return multiply(real, imaginary, self.weight)

    def axes(self, x: Channels) -> list[Axis]:
        """Return the transforms of the grid's axes: whole spectra, and a half one on the last axis."""
        *others, last = (torch.arange(side, device=x.device) for side in x.shape[2:])
        return [*(full_axis(axis, self.modes, x.dtype) for axis in others), half_axis(last, self.modes, x.dtype)]


class Axis(NamedTuple):
    """One axis of a transform: its basis, and the weight of each mode in the inverse (0 drops the mode)."""

    cos: Basis
    sin: Basis
    weight: Weight


def half_axis(points: Points, modes: int, dtype: torch.dtype, *, lengths: int = 1) -> Axis:
    """Return the axis of the half spectrum, wave numbers 0..modes-1. Modes that the grid does not resolve weigh 0.

    Args:
        points: The indices 0..n-1 of the axis.
        modes: The number of wave numbers.
        dtype: The dtype of the basis.
        lengths: The period in lengths of the axis; beyond the axis the field is zero.
    """
    numbers, n = torch.arange(modes, device=points.device), (points[-1:] + 1) * lengths
    weight = hermitian(n - 1, numbers, dtype) * (2 * numbers <= n).to(dtype) / n.to(dtype)
    return Axis(*waves(points, numbers, n, dtype), weight)


def full_axis(points: Points, modes: int, dtype: torch.dtype, *, lengths: int = 1) -> Axis:
    """Return an axis of the whole spectrum, wave numbers -modes..modes-1. At most one of equal aliases has a weight.

    Args:
        points: The indices 0..n-1 of the axis.
        modes: The number of nonnegative wave numbers.
        dtype: The dtype of the basis.
        lengths: The period in lengths of the axis; beyond the axis the field is zero.
    """
    numbers, n = torch.arange(-modes, modes, device=points.device), (points[-1:] + 1) * lengths
    held = torch.clamp(torch.div(n, 2, rounding_mode="floor") + 1, max=modes)
    weight = ((numbers >= -held) & (numbers < n - held)).to(dtype) / n.to(dtype)
    return Axis(*waves(points, numbers, n, dtype), weight)


def multiply(real: Tensor, imaginary: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply the channels of each mode by its complex matrix.

    One real product of twice the width replaces the four products of a complex one.

    Args:
        real: The real part, of shape `[mode, batch, in]`.
        imaginary: The imaginary part.
        weight: The matrices, of shape `[mode, in, out, 2]`.

    Returns:
        Real and imaginary part, each of shape `[mode, batch, out]`.
    """
    a, b = weight.unbind(-1)
    matrix = torch.cat([torch.cat([a, b], dim=-1), torch.cat([-b, a], dim=-1)], dim=-2)
    first, second = (torch.cat([real, imaginary], dim=-1) @ matrix).chunk(2, dim=-1)
    return first, second


# Every transform is `linear` on the last axis, which is one large matrix product; a broadcast product would loop over
# batch and channels. So each axis is moved to the end before it is transformed, which reverses the order of the axes.
# Real and imaginary part are concatenated, because a complex product would be four real ones and two sums.


def transform(x: Channels, axes: Sequence[Axis]) -> tuple[Tensor, Tensor]:
    """Transform `[..., *points]` to real and imaginary part `[..., last mode, ..., first mode]`, last axis first."""
    *others, last = axes
    real, imaginary = functional.linear(x, torch.cat([last.cos, -last.sin], dim=-1).T).chunk(2, dim=-1)
    for position, axis in enumerate(reversed(others), start=2):
        real, imaginary = (part.movedim(-1, position) for part in (real, imaginary))
        real, imaginary = complex_linear(real, imaginary, axis.cos.T, -axis.sin.T)
    return real, imaginary


def inverse(real: Tensor, imaginary: Tensor, axes: Sequence[Axis]) -> Features:
    """Transform back and keep the real part.

    Args:
        real: The real part of the spectrum, of shape `[..., last mode, ..., first mode]`.
        imaginary: Its imaginary part.
        axes: The axes, in the order of the result.

    Returns:
        The features, of shape `[..., *points]`.
    """
    scaled = [(axis.cos * axis.weight, axis.sin * axis.weight) for axis in axes]
    *others, (last_cos, last_sin) = scaled
    for position, (cos, sin) in zip(range(len(axes), 1, -1), others, strict=True):
        real, imaginary = (part.movedim(position, -1) for part in complex_linear(real, imaginary, cos, sin))
    return functional.linear(torch.cat([real, imaginary], dim=-1), torch.cat([last_cos, -last_sin], dim=-1))


def complex_linear(real: Tensor, imaginary: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply the complex last axis by the complex matrix cos + i sin, in one real product.

    Args:
        real: The real part, of shape `[..., in]`.
        imaginary: The imaginary part.
        cos: The real part of the matrix, of shape `[out, in]`.
        sin: Its imaginary part.

    Returns:
        Real and imaginary part, each of shape `[..., out]`.
    """
    matrix = torch.cat([torch.cat([cos, -sin], dim=-1), torch.cat([sin, cos], dim=-1)], dim=-2)
    product, half = functional.linear(torch.cat([real, imaginary], dim=-1), matrix), cos.shape[0]
    return product[..., :half], product[..., half:]  # `chunk` would freeze an exported grid


def published_deviation(inputs: int, outputs: int, modes: int, dimensions: int) -> float:
    r"""Return the standard deviation of the initial spectral weights of the reference project.

    It is Xavier's normal rule for the tensor [in, out, \*modes, 2] with the gain 1/(in out) on a line and
    :math:`\sqrt{in + out}/(in\,out)` on a plane and in space.

    Args:
        inputs: The number of channels in.
        outputs: The number of channels out.
        modes: The number of wave numbers per axis.
        dimensions: The number of axes.
    """
    gain = (1 if dimensions == 1 else math.sqrt(inputs + outputs)) / (inputs * outputs)
    return gain * math.sqrt(2 / ((inputs + outputs) * 2 * modes**dimensions))
