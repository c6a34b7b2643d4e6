"""Stencils on grids: a convolution that knows the boundary of every axis, and a U-Net of such ones.

A U-Net sees local features of several sizes, such as the jumps of a material.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.grids import CONVOLUTION
from training.nn.shapes import FIELDS, expect

LEVELS = 3
"""Levels of the U-Net, each half as fine as the one before."""
COARSEST = 2 ** (LEVELS - 1)
"""What the points of every axis have to be a multiple of."""
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


class BoundaryConv(nn.Module):
    """Convolve over one to three axes and keep the size: padded around the circle, or by zeros at ends.

    Args:
        inputs: Channels in.
        outputs: Channels out.
        periodic: Whether the ends meet, per axis.
        kernel: Odd width of the stencil.
        groups: As in torch's convolutions; `inputs` for a stencil per channel.

    Example:
        >>> BoundaryConv(2, 3, [True, False])(torch.zeros(1, 2, 8, 9)).shape
        torch.Size([1, 3, 8, 9])
    """

    def __init__(self, inputs: int, outputs: int, periodic: Sequence[bool], kernel: int = 3, groups: int = 1) -> None:
        super().__init__()
        self.periodic, self.width = tuple(periodic), kernel // 2
        self.convolution = CONVOLUTION[len(self.periodic)](inputs, outputs, kernel, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        width = self.width
        for axis, closed in enumerate(self.periodic, start=2):
            if closed:
                end = x.shape[axis]
                x = torch.cat([x.narrow(axis, end - width, width), x, x.narrow(axis, 0, width)], dim=axis)
            else:
                x = functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [width, width])
        return self.convolution(x)


class UNet(nn.Module):
    """Convolutions on three levels, each half as fine as the one before, with residuals and sums of the levels.

    Args:
        dimensions: Axes of the grid, of which each has a multiple of `COARSEST` points.
        inputs: Channels in.
        width: Channels out, and on the finest level; twice as many on each coarser one.
        blocks: Pairs of convolutions per level.
        convolution: Returns a convolution of three points per axis that keeps the grid, of channels in and out; by
            default one with zeros beyond the ends.

    Example:
        >>> UNet(2, 3, 4, blocks=1)(torch.zeros(1, 3, 8, 12)).shape
        torch.Size([1, 4, 8, 12])
    """

    def __init__(
        self,
        dimensions: int,
        inputs: int,
        width: int,
        blocks: int,
        convolution: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.dimensions = inputs, dimensions
        plain = CONVOLUTION[dimensions]
        wide = convolution or (lambda before, after: plain(before, after, 3, padding=1))
        widths = [width * 2**level for level in range(LEVELS)]
        self.first = wide(inputs, width)
        self.down = nn.ModuleList(plain(fine, coarse, 2, 2) for fine, coarse in pairwise(widths))
        self.up = nn.ModuleList(TRANSPOSED[dimensions](coarse, fine, 2, 2) for fine, coarse in pairwise(widths))
        self.before, self.after = (
            nn.ModuleList(nn.Sequential(*(Residual(wide, each) for _ in range(blocks))) for each in widths[:levels])
            for levels in (LEVELS, LEVELS - 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        expect(x, FIELDS, self.inputs, self, dimensions=self.dimensions)
        x, levels = self.first(x), []
        for block, down in zip(self.before[:-1], self.down, strict=True):
            levels.append(block(x))
            x = down(levels[-1])
        x = self.before[-1](x)
        for block, up, level in zip(reversed(self.after), reversed(self.up), reversed(levels), strict=True):
            x = block(level + up(x))
        return x


class Residual(nn.Module):
    """Add two convolutions of a field to it."""

    def __init__(self, convolution: Callable[[int, int], nn.Module], width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.SiLU(), convolution(width, width), nn.SiLU(), convolution(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)
