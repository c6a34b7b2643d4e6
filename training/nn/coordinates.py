r"""Coordinates of grid points and tokens.

On every axis of a grid both ends are grid points: point :math:`i` of :math:`n` has the coordinate
:math:`x_i = i/(n-1)` in :math:`[0, 1]`. The coordinates of a point are in the order of the array's axes, so coordinate
:math:`k` varies along axis :math:`k`. The reference project orders them the other way round; its networks pass
`reverse=True`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from training.nn.shapes import Channels, Coordinates, Features, Positions
from training.nn.spectral.convolution import CONVOLUTION

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def indices(sides: Sequence[int], device: torch.device | None = None) -> list[Tensor]:
    """Return the indices 0..n-1 along each axis.

    A grid enters an exported graph as these tensors. Numbers would be frozen in the graph.
    """
    return [torch.arange(side, device=device) for side in sides]


def unit_axis(index: Tensor, dtype: torch.dtype) -> Float[Tensor, " point"]:
    """Return the coordinates in [0, 1] of the points with the indices 0..n-1 on one axis."""
    return index.to(dtype) / index[-1:].to(dtype)


def grid_coordinates(indices: Sequence[Tensor], dtype: torch.dtype, *, reverse: bool = False) -> Coordinates:
    """Return the coordinates of all points of a grid, in [0, 1].

    Args:
        indices: The indices 0..n-1 along each axis; see `indices`.
        dtype: The dtype of the result.
        reverse: Return the coordinates in the order x, y, ... of the reference project, whose first coordinate varies
            along the last axis.

    Returns:
        Coordinates of shape `[coordinate, *grid]`.

    Example:
        >>> grid_coordinates(indices((2, 3)), torch.float32)[1]
        tensor([[0.0000, 0.5000, 1.0000],
                [0.0000, 0.5000, 1.0000]])
    """
    axes = torch.meshgrid(*(unit_axis(index, dtype) for index in indices), indexing="ij")
    return torch.stack(axes[::-1] if reverse else axes)


def square_positions(side: int) -> Positions:
    """Return the positions of a grid of `side` x `side` tokens in row-major order, of shape `[side * side, 2]`."""
    return grid_coordinates(indices((side, side)), torch.get_default_dtype()).flatten(1).T.contiguous()


def circle_positions(points: int) -> Positions:
    """Return the positions of equidistant tokens of a periodic line on the unit circle, of shape `[points, 2]`."""
    angle = 2 * math.pi * torch.arange(points) / points
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)


class JoinCoordinates(nn.Module):
    r"""Map the features :math:`x` and the coordinates :math:`r` of every point linearly to new features.

    .. math::
        y = A_x x + A_r r + b

    Args:
        inputs: The number of channels in, without the coordinates.
        outputs: The number of channels out.
        dimensions: The number of axes of the grid, which is also the number of coordinates.

    Example:
        >>> join = JoinCoordinates(3, 8, dimensions=2)
        >>> join(torch.randn(5, 3, 16, 12), grid_coordinates(indices((16, 12)), torch.float32)).shape
        torch.Size([5, 8, 16, 12])
    """

    def __init__(self, inputs: int, outputs: int, dimensions: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.linear = CONVOLUTION[dimensions](inputs + dimensions, outputs, 1)
        self.convolve = CONVOLVE[dimensions]

    def forward(self, x: Channels, coordinates: Coordinates) -> Features:
        return self.map_features(x) + self.map_coordinates(coordinates)

    def map_features(self, x: Channels) -> Features:
        """Return the term :math:`A_x x`, which commutes with interpolation."""
        return self.convolve(x, self.linear.weight[:, : -self.dimensions])

    def map_coordinates(self, coordinates: Coordinates) -> Features:
        """Return the term :math:`A_r r + b`, equal for all samples, of shape `[1, outputs, *grid]`."""
        return self.convolve(coordinates[None], self.linear.weight[:, -self.dimensions :], self.linear.bias)
