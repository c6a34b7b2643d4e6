"""Standardisation as part of the network: takes physical units, gives mean 0 and deviation 1, and back.

The statistics are buffers, so they are saved with the weights and exported with the graph. They are single numbers
for the whole field, or one per point of a grid; per-point statistics follow a field to another grid by linear
interpolation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.scaling import resample
from training.shapes import Field

EPSILON = (
    1e-5  # relative to the deviation: a point that never varies (a wall) is then divided by a small number, not by zero
)


class Normaliser(nn.Module):
    """Standardise: z = (x - mean) / deviation.

    Args:
        grid: shape of per-point statistics, or () for one pair of numbers.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, grid: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(grid))
        self.register_buffer("deviation", torch.ones(grid))

    @torch.no_grad()
    def fit(self, fields: Field) -> None:
        """Take mean and deviation from samples `[sample, *grid]` in physical units."""
        axis = tuple(range(fields.ndim)) if self.mean.ndim == 0 else (0,)
        deviation, mean = torch.std_mean(fields.double(), dim=axis, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(deviation + EPSILON * fields.double().std(correction=0))

    def forward(self, x: Field) -> Field:
        return (x - self.at(self.mean, x)) / self.at(self.deviation, x)

    def inverse(self, z: Field) -> Field:
        """Give back physical units."""
        return z * self.at(self.deviation, z) + self.at(self.mean, z)

    def at(self, statistic: Tensor, x: Field) -> Tensor:
        """Give a statistic on the grid of `x`."""
        if statistic.ndim == 0:
            return statistic
        rows, columns = (torch.arange(side, device=x.device) for side in x.shape[1:])
        return resample(statistic, rows, columns)
