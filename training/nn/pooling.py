r"""Numbers of a field: a mean of features over the domain, by the measure of the points, and a map of it.

.. math::
    y = W_2\,\sigma\Bigl(W_1 \frac{\sum_i w_i\,\sigma(W x_i)}{\sum_i w_i}\Bigr)

The features are learned, so that the mean is that of a square, or of what lies near a wall: an energy, a drag. A mean
depends on the resolution only by the error of its quadrature.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Pooling(nn.Module):
    """Map features `[batch, channel, *grid]` to numbers `[batch, number]`.

    With `domain` the weights differ from sample to sample, and the share of the grid that they cover is a feature: an
    integral grows with its domain.

    Example:
        >>> Pooling(4, 2)(torch.rand(3, 4, 6, 5), torch.ones(6, 5)).shape
        torch.Size([3, 2])
    """

    def __init__(self, channels: int, numbers: int, *, domain: bool = False) -> None:
        super().__init__()
        self.domain, width = domain, 2 * channels
        self.lift = nn.Sequential(nn.Linear(channels, width), nn.SiLU())
        self.head = nn.Sequential(nn.Linear(width + domain, width), nn.SiLU(), nn.Linear(width, numbers))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """Pool by weights `[*grid]`, or `[batch, *grid]` of a domain."""
        features = self.lift(x.flatten(2).transpose(1, 2))  # [batch, point, feature]
        share = weights.flatten(1)[:, :, None] if self.domain else weights.flatten()[None, :, None]
        covered = share.sum(dim=1)
        mean = (features * share).sum(dim=1) / covered
        if self.domain:
            mean = torch.cat([mean, covered / share.shape[1]], dim=1)
        found: Tensor = self.head(mean)
        return found


def quadrature(sides: Sequence[int], halved: Sequence[bool]) -> Tensor:
    """Return the weights `[*grid]` of points of equal cells; `halved` per axis whether the outermost ones are at ends.

    Example:
        >>> quadrature([3, 2], [True, False])
        tensor([[0.5000, 0.5000],
                [1.0000, 1.0000],
                [0.5000, 0.5000]])
    """
    found = torch.ones(*sides)
    for axis, (side, at_ends) in enumerate(zip(sides, halved, strict=True)):
        along = torch.ones(side)
        if at_ends:
            along[[0, -1]] = 0.5
        found = found * along.reshape([side if other == axis else 1 for other in range(len(sides))])
    return found
