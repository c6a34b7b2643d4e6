r"""Estimate of a prediction's error that at least 90 % of inputs of the training distribution stay below.

.. math::
    \mathrm{estimate}(x) = q\, \sigma(x), \qquad \log \sigma(x) = b + w \cdot z(x),

with :math:`z` the normal scores of the input's statistics, :math:`w` and :math:`b` a ridge regression of the logarithms
of errors on fitted samples, and :math:`q` the conformal quantile of error over :math:`\sigma` on calibration samples,
per declared grid. Between two declared grids the larger of their quantiles counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from training.calibration.conformal import quantile
from training.calibration.statistics import Statistics

CLIP = 3.0  # deviations of a statistic beyond which sigma stays as it is
RIDGE = 0.1  # per sample
TINY = 1e-12  # an exact prediction has no logarithm

Errors = Float[Tensor, " sample"]


class ErrorEstimate(nn.Module):
    """Estimate the relative L2 error of every sample.

    Args:
        statistics: The number of statistics per sample.
        grids: The number of calibrated grids.
    """

    weight: Tensor
    bias: Tensor
    points: Tensor
    quantiles: Tensor

    def __init__(self, statistics: int, grids: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(statistics))
        self.register_buffer("bias", torch.zeros(()))
        self.register_buffer("points", torch.zeros(grids))
        self.register_buffer("quantiles", torch.zeros(grids))

    @torch.no_grad()
    def fit(self, z: Statistics, errors: Errors) -> None:
        """Fit sigma to normal scores and relative errors."""
        features = clipped(z.double())
        logs = errors.double().clamp_min(TINY).log()
        centre, level = features.mean(0), logs.mean()
        centred = features - centre
        normal = centred.T @ centred + RIDGE * len(z) * torch.eye(z.shape[1], dtype=torch.float64)
        weight = torch.linalg.solve(normal, centred.T @ (logs - level))
        self.weight.copy_(weight)
        self.bias.copy_(level - centre @ weight)

    @torch.no_grad()
    def calibrate(self, samples: Mapping[int, tuple[Statistics, Errors]]) -> None:
        """Set the quantiles.

        Args:
            samples: Per calibrated grid, by its number of points: normal scores and relative errors of
                samples that serve nothing else.

        Raises:
            ValueError: There are too few samples.
        """
        for index, (points, (z, errors)) in enumerate(sorted(samples.items())):
            scores = errors.double() / self.sigma(z.to(self.weight.dtype)).double()
            self.points[index] = points
            self.quantiles[index] = quantile(np.asarray(scores))

    def sigma(self, z: Statistics) -> Errors:
        """Return the expected size of the error, up to the grid's factor."""
        return torch.exp(self.bias + clipped(z) @ self.weight)

    def factor(self, points: Float[Tensor, " 1"]) -> Float[Tensor, " 1"]:
        """Return the larger quantile of the neighbouring calibrated grids."""
        last = self.points.shape[0] - 1
        above = (self.points < points).sum(0, keepdim=True).clamp(max=last)
        below = ((self.points <= points).sum(0, keepdim=True) - 1).clamp(min=0)
        return torch.maximum(self.quantiles.index_select(0, below), self.quantiles.index_select(0, above))

    def forward(self, z: Statistics, points: Float[Tensor, " 1"]) -> Float[Tensor, "batch 1"]:
        """Estimate the errors.

        Args:
            z: Normal scores of the inputs' statistics.
            points: The number of points of the inputs' grid.

        Returns:
            Relative L2 errors that 90 % of inputs stay below.
        """
        return (self.factor(points) * self.sigma(z))[:, None]


def clipped(z: Statistics) -> Statistics:
    """Return statistics of at most `CLIP` deviations."""
    return z.clamp_min(-CLIP).clamp_max(CLIP)
