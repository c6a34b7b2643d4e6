r"""Layers that know each axis' boundary: convolutions and truncated Fourier transforms.

A periodic axis is padded around the circle and transformed with its own period. Any other axis is padded by zeros; its
transform has twice its length as period, so that the two ends do not meet, which costs no padded points: the sums run
over the points that are there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.spectral import CONVOLUTION, Axis, SpectralConv, full_axis, half_axis


def pad(x: Tensor, width: int, periodic: Sequence[bool]) -> Tensor:
    """Pad every grid axis of `[batch, channel, *grid]` by `width` points on both sides.

    Example:
        >>> pad(torch.tensor([[[1.0, 2.0, 3.0]]]), 1, [True])
        tensor([[[3., 1., 2., 3., 1.]]])
    """
    for axis, closed in enumerate(periodic, start=2):
        if closed:
            end = x.shape[axis]
            x = torch.cat([x.narrow(axis, end - width, width), x, x.narrow(axis, 0, width)], dim=axis)
        else:
            x = functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [width, width])
    return x


class BoundaryConv(nn.Module):
    """Convolve over one to three axes and keep the size.

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
        return self.convolution(pad(x, self.width, self.periodic))


class BoundarySpectralConv(SpectralConv):
    """Multiply the lowest modes by learned matrices and add a pointwise map, with a boundary per axis.

    Args:
        inputs: Channels in.
        outputs: Channels out.
        modes: Wave numbers kept on each axis, counted in the axis' transform.
        periodic: Whether the ends meet, per axis.

    Example:
        >>> BoundarySpectralConv(2, 3, 4, [True, False])(torch.zeros(1, 2, 8, 9)).shape
        torch.Size([1, 3, 8, 9])
    """

    def __init__(self, inputs: int, outputs: int, modes: int, periodic: Sequence[bool]) -> None:
        super().__init__(inputs, outputs, modes, len(periodic))
        self.periodic = tuple(periodic)

    def axes(self, x: Tensor) -> list[Axis]:
        """Return the transforms of the grid's axes, with twice its length as the period of an axis with ends."""
        *others, last = (torch.arange(side, device=x.device) for side in x.shape[2:])
        *lengths, last_lengths = (1 if periodic else 2 for periodic in self.periodic)
        pairs = zip(others, lengths, strict=True)
        full = [full_axis(points, self.modes, x.dtype, lengths=count) for points, count in pairs]
        return [*full, half_axis(last, self.modes, x.dtype, lengths=last_lengths)]
