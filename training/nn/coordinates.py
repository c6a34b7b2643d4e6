"""Coordinates as features: takes a grid's indices, gives its places; joins them to the features of fields."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.shapes import Carried, Channels, Places
from training.nn.spectral import CONVOLUTION

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def indices(sides: Sequence[int], device: torch.device) -> list[Tensor]:
    """Give 0..n-1 along each axis: grids enter a graph as such tensors, never as numbers."""
    return [torch.arange(side, device=device) for side in sides]


def places(indices: Sequence[Tensor], dtype: torch.dtype) -> Places:
    """Give the coordinates on [0, 1] of the grid with the indices 0..n-1 along each axis.

    In the published order (x, y): the first coordinate runs along the last axis. Both ends of an axis are grid points.
    """
    axes = [index.to(dtype) / index[-1:].to(dtype) for index in indices]
    return torch.stack(torch.meshgrid(*axes, indexing="ij")[::-1])


class JoinCoordinates(nn.Module):
    """Give A [x, r] + b at every point, with features x and coordinates r: features first.

    Args:
        inputs: channels in, without the coordinates.
        outputs: channels out.
        dimensions: number of axes, as many as coordinates.
    """

    def __init__(self, inputs: int, outputs: int, dimensions: int) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.linear = CONVOLUTION[dimensions](inputs + dimensions, outputs, 1)
        self.convolve = CONVOLVE[dimensions]

    def forward(self, x: Channels, places: Places) -> Carried:
        return self.mix(x) + self.place(places)

    def mix(self, x: Channels) -> Carried:
        """Give the features' part, A_x x, which commutes with interpolation."""
        return self.convolve(x, self.linear.weight[:, : -self.dimensions])

    def place(self, places: Places) -> Carried:
        """Give the coordinates' part, A_r r + b, the same for every sample: one batch `[1, outputs, *grid]`."""
        return self.convolve(places[None], self.linear.weight[:, -self.dimensions :], self.linear.bias)
