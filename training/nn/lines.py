r"""Fourier series on a line: sums over the points of a long one, and resampling of periodic functions.

Computing the n M cosines of a long line takes longer than the products with them. So the points are grouped in blocks
of `BLOCK`. The angle 2 pi k (j + s) / n of a block's start j and a step s is a sum of two angles, so that
(n / BLOCK + BLOCK) M cosines are enough. Each block is transformed relative to its start, then rotated by the angle of
the start. The last block may extend beyond the line.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from training.nn.grids import Line
from training.nn.spectral import Points, Waves, hermitian, waves

Spectrum = Float[Tensor, "batch mode"]

BLOCK = 64  # points of a long line that are transformed together


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


def analyse(x: Line, points: Points, modes: Waves) -> tuple[Spectrum, Spectrum]:
    """Return the sums of x cos and x sin over the line `[batch, point]` for each wave number, each `[batch, mode]`."""
    starts, steps = points[::BLOCK], torch.arange(BLOCK, device=points.device)
    rows = functional.pad(x, (0, BLOCK - 1))[:, starts[:, None] + steps]
    (cos, sin), basis = rotations(points, modes, x.dtype)
    even, odd = (rows @ basis).chunk(2, dim=-1)
    return (even * cos - odd * sin).sum(1), (odd * cos + even * sin).sum(1)


def synthesise(even: Spectrum, odd: Spectrum, points: Points, modes: Waves) -> Float[Tensor, "batch _"]:
    """Return the sums of even cos + odd sin over the wave numbers at each point, `[batch, point]`."""
    (cos, sin), basis = rotations(points, modes, even.dtype)
    even, odd = even[:, None], odd[:, None]
    rows = torch.cat([even * cos + odd * sin, odd * cos - even * sin], dim=-1) @ basis.T
    return rows.flatten(1)[:, points]


def rotations(points: Points, modes: Waves, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return cos and sin at the blocks' starts, and cos and sin at the steps, concatenated."""
    starts, steps, n = points[::BLOCK], torch.arange(BLOCK, device=points.device), points[-1:] + 1
    return waves(starts, modes, n, dtype), torch.cat(waves(steps, modes, n, dtype), dim=-1)


def antiderivative(points: int) -> Float[Tensor, "point point"]:
    r"""Return the matrix A for which x A is :math:`2\pi` times the antiderivative of a function x of period 1.

    The antiderivative has zero mean. A wave of number k is divided by k and shifted by a quarter of its length. The
    mean and the Nyquist mode of x are dropped. The factor :math:`2\pi` keeps the amplitude of the wave of number 1.
    """
    index, wave = torch.arange(points), torch.arange(1, (points + 1) // 2)
    cos, sin = waves(index, wave, index[-1:] + 1, torch.float64)
    return ((cos / wave @ sin.T - sin / wave @ cos.T) * 2 / points).to(torch.get_default_dtype())
