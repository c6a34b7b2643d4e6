"""Standardisation as a layer.

The statistics are buffers, so they are saved with the weights and exported with the graph. They are one pair of numbers
for the whole field, one pair per channel, or one pair per grid point of a fixed grid.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.nn.shapes import Field

#: Keeps a point that never varies, such as one on a wall, from a division by zero.
EPSILON = 1e-5


class Normaliser(nn.Module):
    r"""Standardise fields by the mean and the standard deviation of the training fields.

    .. math::
        z = (x - \mu) / \sigma

    Args:
        grid: The shape of the statistics of one sample; `()` for one pair of numbers. The statistics are averaged over
            axes of length 1.
        relative: Add `EPSILON` times the standard deviation of the whole set to each deviation. Otherwise add `EPSILON`
            in physical units, as the reference project does.

    Example:
        >>> normaliser = Normaliser()
        >>> normaliser.fit(torch.tensor([[1.0, 3.0]]))
        >>> normaliser(torch.tensor([[1.0, 3.0]])).round(decimals=3)
        tensor([[-1.,  1.]])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, grid: tuple[int, ...] = (), *, relative: bool = True) -> None:
        super().__init__()
        self.relative = relative
        self.register_buffer("mean", torch.zeros(grid))
        self.register_buffer("deviation", torch.ones(grid))

    @torch.no_grad()
    def fit(self, fields: Field) -> None:
        """Set mean and deviation to those of the samples `[sample, *grid]`, in physical units."""
        fields, grid = fields.double(), self.mean.shape or (1,) * (fields.ndim - 1)
        averaged = (0, *(axis for axis, side in enumerate(grid, start=1) if side == 1))
        deviation, mean = torch.std_mean(fields, dim=averaged, correction=0, keepdim=True)
        self.mean.copy_(mean.reshape(self.mean.shape))
        floor = EPSILON * (fields.std(correction=0) if self.relative else 1)
        self.deviation.copy_((deviation + floor).reshape(self.mean.shape))

    def forward(self, x: Field) -> Field:
        return (x - self.mean) / self.deviation

    def inverse(self, z: Field) -> Field:
        r"""Return the field in physical units, :math:`x = \sigma z + \mu`."""
        return z * self.deviation + self.mean
