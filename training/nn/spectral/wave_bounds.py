r"""A bound of every wave of a periodic field: twice the largest amplitude that it has in the training fields.

.. math::
    \hat u(k) \leftarrow \hat u(k) \min\Bigl(1, \frac{2 m(k)}{|\hat u(k)|}\Bigr), \qquad
    m(k) = \max_{\text{training}} |\hat u(k)|, \qquad k \ne 0.

A learned step sees the fine waves of its training fields only, which are often tiny: the equation keeps them so. What
it does to larger ones is left open, and over hundreds of steps they may grow until the rollout overflows. The bound
keeps them where the network knows them, and leaves fields of the training distribution as they are. The mean has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.nn.spectral.convolution import Axis, full_axis, half_axis, inverse, transform

MARGIN = 2.0
"""The bound over the largest amplitude of the training fields, which are a sample of what the flow reaches."""
LOOSE = 1e6
"""The bound of every wave before `fit`."""
TINY = 1e-20
"""The least square of an amplitude that is divided by, in units of the largest amplitude of all waves."""


class WaveBounds(nn.Module):
    """Bound the waves of fields on periodic axes; see the formula of the module.

    Waves that the working grid does not resolve are dropped.

    Args:
        components: Components of the field, which are bounded by themselves; 0 for a scalar field.
        working: Points per axis of the grid whose waves are kept.

    Example:
        >>> x = torch.arange(16) * (2 * torch.pi / 16)
        >>> bounds = WaveBounds(0, (8,))
        >>> bounds.fit(torch.cos(x)[None])
        >>> bounds(5 * torch.cos(x)[None]).max().round(decimals=3)
        tensor(2.)
    """

    largest: Tensor
    bounds: Tensor
    mean: Tensor

    def __init__(self, components: int, working: Sequence[int]) -> None:
        super().__init__()
        self.scalar, channels = components == 0, max(1, components)
        self.modes = [side // 2 + 1 for side in working]
        *others, last = self.modes
        spectrum = (last, *(2 * modes for modes in reversed(others)))  # as `transform` returns it, the last axis first
        self.register_buffer("largest", torch.ones(channels, *(1 for _ in spectrum)))
        self.register_buffer("bounds", torch.full((channels, *spectrum), LOOSE))
        mean = torch.zeros(spectrum, dtype=torch.bool)
        mean[(0, *reversed(others))] = True
        self.register_buffer("mean", mean, persistent=False)

    @torch.no_grad()
    def fit(self, fields: Tensor) -> None:
        """Take the largest amplitudes of training fields `[sample, (component), *grid]`."""
        x = self.channels(fields.double())
        real, imaginary = transform(x, self.axes(x))
        amplitude = torch.hypot(real, imaginary).amax(dim=0).masked_fill(self.mean, 0) / points(x)
        largest = amplitude.flatten(1).amax(dim=1).reshape(self.largest.shape)
        largest = torch.where(largest > 0, largest, 1)  # of a field without waves
        self.largest.copy_(largest)
        self.bounds.copy_(MARGIN * amplitude / largest)

    def forward(self, fields: Tensor) -> Tensor:
        """Return fields `[batch, (component), *grid]` with bounded waves, on any grid."""
        x = self.channels(fields)
        axes = self.axes(x)
        real, imaginary = transform(x, axes)
        unit = self.largest * points(x)
        squares = (real / unit).square() + (imaginary / unit).square()
        factor = torch.clamp(self.bounds / torch.sqrt(torch.clamp(squares, min=TINY)), max=1)
        factor = torch.where(self.mean, 1, factor)
        found = inverse(real * factor, imaginary * factor, axes)
        return found[:, 0] if self.scalar else found

    def channels(self, fields: Tensor) -> Tensor:
        """Return fields as `[batch, channel, *grid]`."""
        return fields[:, None] if self.scalar else fields

    def axes(self, x: Tensor) -> list[Axis]:
        """Return the axes of the transform of `[batch, channel, *grid]`."""
        *others, last = zip(indices(x), self.modes, strict=True)
        return [*(full_axis(*each, x.dtype) for each in others), half_axis(*last, x.dtype)]


def indices(x: Tensor) -> list[Tensor]:
    """Return the indices of the points of each axis of `[batch, channel, *grid]`."""
    return [torch.arange(side, device=x.device) for side in x.shape[2:]]


def points(x: Tensor) -> Tensor:
    """Return the number of points of the grid of `[batch, channel, *grid]`, of shape `[1]`."""
    return torch.cat([each[-1:] + 1 for each in indices(x)]).prod(dim=0, keepdim=True).to(x.dtype)
