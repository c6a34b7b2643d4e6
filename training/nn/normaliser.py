"""Standardisation as part of the network: takes physical units, gives mean 0 and deviation 1, and back.

The statistics are buffers, so they are saved with the weights and exported with the graph. They are single numbers
for the whole field, one per channel, or one per point of the one grid on which a network standardises.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.nn.shapes import Field

#: A point that never varies (a wall) is divided by a small number, not by zero.
EPSILON = 1e-5


class Normaliser(nn.Module):
    """Standardise: z = (x - mean) / deviation.

    Args:
        grid: shape of the statistics of a sample, () for one pair of numbers; an axis of one point is averaged over.
        relative: add `EPSILON` times the deviation of the whole set to each deviation, or else `EPSILON` itself in
            physical units, as the published code does.
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
        """Take mean and deviation from samples `[sample, *grid]` in physical units."""
        fields, grid = fields.double(), self.mean.shape or (1,) * (fields.ndim - 1)
        axis = (0, *(place for place, side in enumerate(grid, start=1) if side == 1))
        deviation, mean = torch.std_mean(fields, dim=axis, correction=0, keepdim=True)
        self.mean.copy_(mean.reshape(self.mean.shape))
        floor = EPSILON * (fields.std(correction=0) if self.relative else 1)
        self.deviation.copy_((deviation + floor).reshape(self.mean.shape))

    def forward(self, x: Field) -> Field:
        return (x - self.mean) / self.deviation

    def inverse(self, z: Field) -> Field:
        """Give back physical units."""
        return z * self.deviation + self.mean
