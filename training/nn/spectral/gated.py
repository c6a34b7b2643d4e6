r"""Gated spectral layers: a layer for smooth fields whose equations multiply them with themselves.

.. math::
    y = F^{-1}(W\,F x) + A x, \qquad x \leftarrow x + C\,\bigl(\mathrm{silu}(B_1 y) \odot B_2 y\bigr)

with learned complex matrices W for the lowest wave numbers. The transform moves and derives, as the linear part of an
equation does; the product of channels is what its nonlinear terms, such as :math:`u\,u_x`, are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.spectral.boundary import keep_axes, kept_axes
from training.nn.spectral.convolution import inverse, transform


class GatedSpectralLayer(nn.Module):
    """Mix features over the grid by their lowest modes, then multiply pairs of channels; see the module's formula.

    The channels are the last axis, so that every pointwise map is one matrix product.

    Args:
        channels: Features.
        modes: Wave numbers kept on each axis.
        periodic: Whether the ends meet, per axis; the period of an axis with ends is twice its length.
        sides: Points per axis; the bases are computed once.

    Example:
        >>> GatedSpectralLayer(4, 3, [True, False], (8, 9))(torch.zeros(2, 8, 9, 4)).shape
        torch.Size([2, 8, 9, 4])
    """

    def __init__(self, channels: int, modes: int, periodic: Sequence[bool], sides: Sequence[int]) -> None:
        super().__init__()
        keep_axes(self, modes, periodic, sides)
        self.dimensions = len(sides)
        # One complex matrix per mode, real and imaginary part side by side.
        count = modes * (2 * modes) ** (self.dimensions - 1)
        self.weight = nn.Parameter(torch.randn(count, channels, 2 * channels) / channels)
        self.pointwise = nn.Linear(channels, channels)
        self.branches = nn.Linear(channels, 2 * channels)
        self.join = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return features `[batch, *grid, channel]` of the same shape."""
        first, second = self.branches(self.global_part(x) + self.pointwise(x)).chunk(2, dim=-1)
        return x + self.join(functional.silu(first) * second)

    def global_part(self, x: Tensor) -> Tensor:
        """Multiply the lowest modes of `[batch, *grid, channel]` by the matrices."""
        axes = kept_axes(self, self.dimensions)
        real, imaginary = transform(x.movedim(-1, 1), axes)
        batch, channels, shape = real.shape[0], real.shape[1], real.shape[2:]
        both = torch.cat([part.flatten(2).permute(2, 0, 1) for part in (real, imaginary)], dim=1) @ self.weight
        of_real, of_imaginary = both[:, :batch], both[:, batch:]
        real = of_real[..., :channels] - of_imaginary[..., channels:]
        imaginary = of_real[..., channels:] + of_imaginary[..., :channels]
        real, imaginary = (part.permute(1, 2, 0).unflatten(2, shape) for part in (real, imaginary))
        return inverse(real, imaginary, axes).movedim(1, -1)
