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

from training.nn.spectral.convolution import CONVOLUTION, Axis, SpectralConv, full_axis, half_axis


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


def keep_axes(layer: nn.Module, modes: int, periodic: Sequence[bool], sides: Sequence[int]) -> None:
    """Compute the transforms of a grid's axes once, and keep them in a layer as buffers that no checkpoint holds.

    Args:
        layer: The layer, which `kept_axes` reads.
        modes: Wave numbers kept on each axis.
        periodic: Whether the ends meet, per axis; the period of an axis with ends is twice its length.
        sides: Points per axis.
    """
    *others, last = (torch.arange(side) for side in sides)
    *lengths, last_length = (1 if closed else 2 for closed in periodic)
    dtype = torch.get_default_dtype()
    full = [full_axis(points, modes, dtype, lengths=each) for points, each in zip(others, lengths, strict=True)]
    for number, axis in enumerate([*full, half_axis(last, modes, dtype, lengths=last_length)]):
        for name, basis in axis._asdict().items():
            layer.register_buffer(f"{name}{number}", basis, persistent=False)


def kept_axes(layer: nn.Module, dimensions: int) -> list[Axis]:
    """Return the transforms that `keep_axes` has put into a layer."""
    return [Axis(*(getattr(layer, f"{name}{number}") for name in Axis._fields)) for number in range(dimensions)]


class BoundarySpectralConv(SpectralConv):
    """Multiply the lowest modes by learned matrices and add a pointwise map, with a boundary per axis, on one grid.

    Args:
        inputs: Channels in.
        outputs: Channels out.
        modes: Wave numbers kept on each axis, counted in the axis' transform.
        periodic: Whether the ends meet, per axis.
        sides: Points per axis; the bases are computed once.

    Example:
        >>> BoundarySpectralConv(2, 3, 4, [True, False], (8, 9))(torch.zeros(1, 2, 8, 9)).shape
        torch.Size([1, 3, 8, 9])
    """

    def __init__(self, inputs: int, outputs: int, modes: int, periodic: Sequence[bool], sides: Sequence[int]) -> None:
        super().__init__(inputs, outputs, modes, len(periodic))
        keep_axes(self, modes, periodic, sides)
        self.dimensions = len(periodic)

    def axes(self, x: Tensor) -> list[Axis]:  # noqa: ARG002 -- the grid is known
        """Return the transforms of the grid's axes, with twice its length as the period of an axis with ends."""
        return kept_axes(self, self.dimensions)

    def mix(self, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
        """Return the channels of each mode multiplied by its matrix.

        `multiply` builds a real matrix of twice the size, which takes three times as long as this product in training.

        Args:
            real: The real part, of shape `[mode, batch, in]`.
            imaginary: The imaginary part.

        Returns:
            Real and imaginary part, each of shape `[mode, batch, out]`.
        """
        batch = real.shape[1]
        both = (torch.cat([real, imaginary], dim=1) @ self.weight.flatten(2)).unflatten(-1, (-1, 2))
        of_real, of_imaginary = both[:, :batch], both[:, batch:]
        return of_real[..., 0] - of_imaginary[..., 1], of_real[..., 1] + of_imaginary[..., 0]
