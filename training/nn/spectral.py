r"""The truncated Fourier transform as matrix products: takes fields, gives filtered or resampled fields.

Only the lowest modes survive a spectral convolution, so no FFT is needed: with the bases

.. math::
    C_{jk} = \cos(2\pi jk/n), \qquad S_{jk} = \sin(2\pi jk/n), \qquad 0 \le j < n,\ 0 \le k < M,

the coefficients of :math:`x` are :math:`(C - iS)^T x/n`. :math:`jk \bmod n` is reduced in integers before the cast to
float, or the angles lose digits. Convention, the same on every device: the inverse keeps the real part only, so the
imaginary parts of the zero mode and of a Nyquist mode have no effect, and a Nyquist mode counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from training.nn.activations import ACTIVATION, Activation
from training.nn.dropout import Dropout
from training.nn.shapes import Carried, Channels, Line

Basis = Float[Tensor, "point mode"]
Waves = Int[Tensor, " mode"]
Points = Int[Tensor, " point"]
Indices = Int[Tensor, " _"]
Weight = Float[Tensor, " mode"]
Turn = Float[Tensor, "_ _"]
Spectrum = Float[Tensor, "batch mode"]

BLOCK = 64  # points of a long line that are transformed together

#: The pointwise linear map over 1, 2 and 3 axes is a convolution of width one.
CONVOLUTION = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def bases(points: Points, modes: Waves, dtype: torch.dtype) -> tuple[Basis, Basis]:
    """Give cos and sin of 2 pi j k / n for the indices j = 0..n-1 in `points` and the wave numbers k in `modes`."""
    return waves(points, modes, points[-1:] + 1, dtype)


def waves(points: Points, modes: Waves, n: Int[Tensor, " 1"], dtype: torch.dtype) -> tuple[Basis, Basis]:
    """Give cos and sin of 2 pi j k / n for any indices j in `points` and the wave numbers k in `modes`."""
    angle = (2 * math.pi) * (torch.remainder(points[:, None] * modes, n).to(dtype) / n.to(dtype))
    return torch.cos(angle), torch.sin(angle)


def hermitian(points: Points, modes: Waves, dtype: torch.dtype) -> Weight:
    """Weigh each mode of a half spectrum by how often the whole one holds it: zero and Nyquist once, others twice."""
    return torch.where((modes > 0) & (2 * modes <= points[-1:]), 2, 1).to(dtype)


def resample_periodic(
    x: Line, points: Tensor, modes: int, *, shift: Float[Tensor, " batch"] | None = None
) -> Float[Tensor, "batch _"]:
    """Carry periodic samples to the grid of `points` = 0..m-1, each moved to the right by its `shift` in periods.

    Kept are the wave numbers below `modes` that both grids resolve: exact for band-limited fields.
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


# A long line has many more cosines, n M of them, than products with them take time. So its points are counted in
# blocks of `BLOCK`: 2 pi k (j + s) / n for a block's start j and a step s is the sum of two angles, and (n / BLOCK +
# BLOCK) M cosines are enough. The transform of every block comes first, each from its own start; they are then turned.


def blocks(points: Points) -> tuple[Indices, Indices]:
    """Give the indices of the blocks' starts, and the steps from each: the last ones may lead beyond the line."""
    return points[::BLOCK], torch.arange(BLOCK, device=points.device)


def analyse(x: Line, points: Points, modes: Waves) -> tuple[Spectrum, Spectrum]:
    """Give the sums of x cos and x sin over the line, wave by wave."""
    starts, steps = blocks(points)
    rows = functional.pad(x, (0, BLOCK - 1))[:, starts[:, None] + steps]
    (cos, sin), basis = turns(points, modes, x.dtype)
    even, odd = (rows @ basis).chunk(2, dim=-1)
    return (even * cos - odd * sin).sum(1), (odd * cos + even * sin).sum(1)


def synthesise(even: Spectrum, odd: Spectrum, points: Points, modes: Waves) -> Float[Tensor, "batch _"]:
    """Give the sum of even cos + odd sin over the waves, point by point."""
    (cos, sin), basis = turns(points, modes, even.dtype)
    even, odd = even[:, None], odd[:, None]
    rows = torch.cat([even * cos + odd * sin, odd * cos - even * sin], dim=-1) @ basis.T
    return rows.flatten(1)[:, points]


def turns(points: Points, modes: Waves, dtype: torch.dtype) -> tuple[tuple[Turn, Turn], Turn]:
    """Give cos and sin at the blocks' starts, and side by side at the steps."""
    (starts, steps), n = blocks(points), points[-1:] + 1
    return waves(starts, modes, n, dtype), torch.cat(waves(steps, modes, n, dtype), dim=-1)


def antiderivative(points: int) -> Float[Tensor, "point point"]:
    r"""Give the matrix A for which x A is 2 pi times the antiderivative of zero mean of a periodic x of period 1.

    A wave of number k is divided by k and moved by a quarter of its length; mean and Nyquist mode are dropped. The
    factor keeps the slowest wave as large as it is.
    """
    index, wave = torch.arange(points), torch.arange(1, (points + 1) // 2)
    cos, sin = bases(index, wave, torch.float64)
    return ((cos / wave @ sin.T - sin / wave @ cos.T) * 2 / points).to(torch.get_default_dtype())


class SpectralConv(nn.Module):
    r"""Multiply the lowest modes of periodic features by learned complex matrices and add a pointwise linear map.

    .. math::
        y = \mathrm{act}(F^{-1}(W\,F x) + A x + b)

    over one, two or three axes. The last axis keeps the wave numbers 0..M-1, every other one -M..M-1; the rest is
    dropped from the first term. On an axis of n points the layer needs :math:`M \le \lfloor n/2\rfloor + 1`; a coarser
    grid is answered with the modes that it resolves, as if M were :math:`\lfloor n/2\rfloor + 1` there. Where
    2M > n, both ends of a full axis meet and the negative wave numbers win, as in the published code. After Li et al.,
    Fourier neural operator, arXiv 2010.08895, in the form of Cao, NeurIPS 2021, appendix C.

    Args:
        inputs: channels in.
        outputs: channels out.
        modes: M, wave numbers kept on each axis.
        dimensions: number of axes, 1 to 3.
        activation: applied to the sum.
        dropout: rate on what is transformed, not on the pointwise map; 0 in evaluation.
        deviation: of the initial spectral weights; None is 1 / sqrt(inputs * outputs).

    Raises:
        ValueError: there are no modes, or not 1 to 3 axes.
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
        # One complex matrix a mode, real and imaginary part last; the modes of the last axis vary slowest.
        self.weight = nn.Parameter(scale * torch.randn(modes * (2 * modes) ** (dimensions - 1), inputs, outputs, 2))
        self.residual = CONVOLUTION[dimensions](inputs, outputs, 1)
        self.dropout = Dropout(dropout)
        self.activation = ACTIVATION[activation]()

    def forward(self, x: Channels) -> Carried:
        *others, last = (torch.arange(side, device=x.device) for side in x.shape[2:])
        axes = [*(full_axis(axis, self.modes, x.dtype) for axis in others), half_axis(last, self.modes, x.dtype)]
        real, imaginary = transform(self.dropout(x), axes)
        shape = real.shape[2:]
        real, imaginary = (part.flatten(2).permute(2, 0, 1) for part in (real, imaginary))
        real, imaginary = multiply(real, imaginary, self.weight)
        real, imaginary = (part.permute(1, 2, 0).unflatten(2, shape) for part in (real, imaginary))
        return self.activation(inverse(real, imaginary, axes) + self.residual(x))


class Axis(NamedTuple):
    """One axis of a transform: its basis, and what each mode counts for on the way back (0 drops it)."""

    cos: Basis
    sin: Basis
    weight: Weight


def half_axis(points: Points, modes: int, dtype: torch.dtype) -> Axis:
    """Give the axis of the half spectrum, wave numbers 0..modes-1; those the grid does not resolve count nothing."""
    waves, n = torch.arange(modes, device=points.device), points[-1:] + 1
    weight = hermitian(points, waves, dtype) * (2 * waves <= n).to(dtype) / n.to(dtype)
    return Axis(*bases(points, waves, dtype), weight)


def full_axis(points: Points, modes: int, dtype: torch.dtype) -> Axis:
    """Give an axis of the whole spectrum, wave numbers -modes..modes-1, each alias at most once."""
    waves, n = torch.arange(-modes, modes, device=points.device), points[-1:] + 1
    held = torch.clamp(torch.div(n, 2, rounding_mode="floor") + 1, max=modes)
    weight = ((waves >= -held) & (waves < n - held)).to(dtype) / n.to(dtype)
    return Axis(*bases(points, waves, dtype), weight)


def multiply(real: Tensor, imaginary: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply each mode's channels by its matrix, [mode, batch, in] -> [mode, batch, out].

    One real product of twice the width does for the four of a complex one.
    """
    a, b = weight.unbind(-1)
    matrix = torch.cat([torch.cat([a, b], dim=-1), torch.cat([-b, a], dim=-1)], dim=-2)
    first, second = (torch.cat([real, imaginary], dim=-1) @ matrix).chunk(2, dim=-1)
    return first, second


# Every transform is `linear` on the last axis, one large matrix product; a broadcast product would loop over batch
# and channels. So each axis is moved to the end before its turn, and the order of the axes is reversed by the way.
# Real and imaginary part stand side by side in it, or a complex product would be four real ones and two sums.


def transform(x: Channels, axes: Sequence[Axis]) -> tuple[Tensor, Tensor]:
    """Transform the last axis first: [..., *points] -> real and imaginary [..., last mode, ..., first mode]."""
    *others, last = axes
    real, imaginary = functional.linear(x, torch.cat([last.cos, -last.sin], dim=-1).T).chunk(2, dim=-1)
    for place, axis in enumerate(reversed(others), start=2):
        real, imaginary = (part.movedim(-1, place) for part in (real, imaginary))
        real, imaginary = complex_linear(real, imaginary, axis.cos.T, -axis.sin.T)
    return real, imaginary


def inverse(real: Tensor, imaginary: Tensor, axes: Sequence[Axis]) -> Carried:
    """Transform back and keep the real part: [..., last mode, ..., first mode] -> [..., *points]."""
    scaled = [(axis.cos * axis.weight, axis.sin * axis.weight) for axis in axes]
    *others, (last_cos, last_sin) = scaled
    for place, (cos, sin) in zip(range(len(axes), 1, -1), others, strict=True):
        real, imaginary = (part.movedim(place, -1) for part in complex_linear(real, imaginary, cos, sin))
    return functional.linear(torch.cat([real, imaginary], dim=-1), torch.cat([last_cos, -last_sin], dim=-1))


def complex_linear(real: Tensor, imaginary: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply the complex rows of the last axis by the complex matrix cos + i sin, [out, in], one real product."""
    matrix = torch.cat([torch.cat([cos, -sin], dim=-1), torch.cat([sin, cos], dim=-1)], dim=-2)
    product, half = functional.linear(torch.cat([real, imaginary], dim=-1), matrix), cos.shape[0]
    return product[..., :half], product[..., half:]  # `chunk` would freeze an exported grid


def published_deviation(inputs: int, outputs: int, modes: int, dimensions: int) -> float:
    r"""Give the deviation that the published layers start their spectral weights with.

    Xavier's normal rule on the tensor [in, out, \*modes, 2] with the gain 1/(in out) on a line and
    :math:`\sqrt{in + out}/(in\,out)` on a plane (here also in space).
    """
    gain = (1 if dimensions == 1 else math.sqrt(inputs + outputs)) / (inputs * outputs)
    return gain * math.sqrt(2 / ((inputs + outputs) * 2 * modes**dimensions))
