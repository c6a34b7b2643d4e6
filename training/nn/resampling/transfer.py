r"""Interpolation and averaging between grids whose points follow a rule: cells, nodes, or the left ends of cells.

.. math::
    R_{ij} \propto \max\bigl(0,\ 1 - |y_i - x_j| / \max(h_x, h_y)\bigr)

with rows of sum one, :math:`x` the source's points and :math:`y` the target's on an axis of length one: linear
interpolation where the grid is refined, a hat-weighted average where it is coarsened. On a periodic axis the distance
is taken around the circle; elsewhere a target beyond the outermost source point takes its value. Positions are compared
as integers before the one division, so the same grid is carried to itself exactly.

Smooth fields on periodic axes are better carried by their truncated Fourier series, :func:`band_limited`, which is
exact for fields whose wave numbers both grids resolve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from training.nn.spectral.convolution import hermitian, waves

Rule = Literal["cells", "nodes", "left"]


@dataclass(frozen=True)
class AxisRule:
    """Where the points of an axis lie, and whether its ends meet."""

    points: Rule
    periodic: bool


def transfer(x: Float[Tensor, "batch channel ..."], sides: Sequence[Tensor], rules: Sequence[AxisRule]) -> Tensor:
    """Carry fields to another grid.

    Args:
        x: Fields `[batch, channel, *source]`.
        sides: Per axis the indices 0..n-1 of the target's points; only their number matters.
        rules: Per axis where the points of both grids lie.

    Returns:
        Fields `[batch, channel, *target]`.

    Example:
        >>> x = torch.tensor([[[0.0, 1.0, 2.0]]])
        >>> transfer(x, [torch.arange(5)], [AxisRule("nodes", periodic=False)])
        tensor([[[0.0000, 0.5000, 1.0000, 1.5000, 2.0000]]])
    """
    for axis, (target, rule) in enumerate(zip(sides, rules, strict=True), start=2):
        weights = matrix(torch.arange(x.shape[axis], device=x.device), target, rule, x.dtype)
        x = torch.matmul(x.movedim(axis, -1), weights.T).movedim(-1, axis)
    return x


def band_limited(
    x: Float[Tensor, "batch channel ..."], sides: Sequence[Tensor], rules: Sequence[AxisRule], numbers: Sequence[int]
) -> Tensor:
    """Carry fields on periodic axes to another grid by their Fourier series, which keeps what both grids resolve.

    Args:
        x: Fields `[batch, channel, *source]`.
        sides: Per axis the indices 0..n-1 of the target's points; only their number matters.
        rules: Per axis where the points of both grids lie.
        numbers: Per axis how many wave numbers are kept at most, from 0.

    Returns:
        Fields `[batch, channel, *target]`.

    Example:
        >>> x = torch.cos(2 * torch.pi * torch.arange(4) / 4)[None, None]
        >>> band_limited(x, [torch.arange(8)], [AxisRule("left", periodic=True)], [3])[0, 0, :2].round(decimals=4)
        tensor([1.0000, 0.7071])
    """
    for axis, (target, rule, count) in enumerate(zip(sides, rules, numbers, strict=True), start=2):
        weights = series(torch.arange(x.shape[axis], device=x.device), target, rule, count, x.dtype)
        x = torch.matmul(x.movedim(axis, -1), weights.T).movedim(-1, axis)
    return x


def series(
    source: Tensor, target: Tensor, rule: AxisRule, numbers: int, dtype: torch.dtype
) -> Float[Tensor, "target source"]:
    """Compute the weights of the source points for each target point of a truncated Fourier series.

    Args:
        source: Indices 0..n-1 of the source's points.
        target: Indices 0..m-1 of the target's points.
        rule: Where the points of both grids lie.
        numbers: How many wave numbers are kept at most, from 0.
        dtype: Of the weights.
    """
    wave = torch.arange(numbers, device=source.device)
    resolved = (2 * wave <= source[-1:] + 1) & (2 * wave <= target[-1:] + 1)
    weight = hermitian(source, wave, dtype) * resolved.to(dtype) / (source[-1:] + 1).to(dtype)
    shift = 1 if rule.points == "cells" else 0  # positions in half intervals, so that centres are whole numbers
    (cos, sin), (far_cos, far_sin) = (
        waves(2 * points + shift, wave, 2 * (points[-1:] + 1), dtype) for points in (source, target)
    )
    return (far_cos * weight) @ cos.T + (far_sin * weight) @ sin.T


def matrix(source: Tensor, target: Tensor, rule: AxisRule, dtype: torch.dtype) -> Float[Tensor, "target source"]:
    """Compute the weights of the source points for each target point.

    Args:
        source: Indices 0..n-1 of the source's points.
        target: Indices 0..m-1 of the target's points.
        rule: Where the points of both grids lie.
        dtype: Of the weights.
    """
    intervals = [index[-1:] + (0 if rule.points == "nodes" else 1) for index in (source, target)]
    # In units of 1 / (2 n m): the centre of cell i of n is at (2 i + 1) m, its left end at 2 i m.
    shift = 1 if rule.points == "cells" else 0
    x = (2 * source + shift) * intervals[1]
    y = (2 * target + shift) * intervals[0]
    whole = 2 * intervals[0] * intervals[1]
    if rule.periodic:
        apart = (y[:, None] - x[None, :]).abs()
        apart = torch.minimum(apart, whole - apart)
    else:
        inside = torch.minimum(torch.maximum(y, x[:1]), x[-1:])
        apart = (inside[:, None] - x[None, :]).abs()
    width = 2 * torch.maximum(*intervals)  # the coarser spacing
    weight = torch.relu(1 - apart.to(dtype) / width.to(dtype))
    return weight / weight.sum(dim=1, keepdim=True)
