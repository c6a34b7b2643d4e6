"""Map statistics of any distribution to normal scores, so that no heavy tail hides what the others say."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from training.calibration.statistics import Statistics

KNOTS = 33
SMALLEST = 1e-2  # distance of two knots, in deviations and in units of the statistic: a statistic may never vary
LINEAR = 3.0  # scores beyond grow by their logarithm


class NormalScores(nn.Module):
    """Interpolate the quantiles of fitted statistics linearly to those of the normal distribution.

    Args:
        statistics: The number of statistics per sample.
    """

    knots: Tensor
    bends: Tensor
    first: Tensor
    mean: Tensor

    def __init__(self, statistics: int) -> None:
        super().__init__()
        self.register_buffer("knots", torch.zeros(KNOTS - 1, statistics))
        self.register_buffer("bends", torch.zeros(KNOTS - 1, statistics))
        self.register_buffer("first", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(statistics))

    @torch.no_grad()
    def fit(self, fitted: Statistics) -> None:
        """Set the quantiles."""
        values = fitted.double()
        levels = torch.linspace(0.5 / len(values), 1 - 0.5 / len(values), KNOTS, dtype=values.dtype)
        scores = math.sqrt(2) * torch.erfinv(2 * levels - 1)
        deviation = values.std(0, correction=0)
        least = SMALLEST * (deviation + 1)
        knots = torch.quantile(values, levels, dim=0)
        for below, above in pairwise(knots):
            above.copy_(torch.maximum(above, below + least))
        slopes = scores.diff()[:, None] / knots.diff(dim=0)
        slopes[[0, -1]] = torch.minimum(slopes[[0, -1]], 1 / (deviation + SMALLEST))  # also beyond all quantiles
        self.first.copy_(scores[0])
        self.knots.copy_(knots[:-1])
        self.bends.copy_(torch.cat([slopes[:1], slopes.diff(dim=0)]))
        # Equal values, such as those of a statistic that never varies, have the score of the lowest of them.
        self.mean.copy_(self(fitted).mean(0))

    def forward(self, statistics: Statistics) -> Statistics:
        beyond = statistics[:, None] - self.knots
        first, rest = beyond[:, 0], beyond[:, 1:].clamp_min(0)
        scores = self.first + self.bends[0] * first + (self.bends[1:] * rest).sum(1)
        excess = (scores.abs() - LINEAR).clamp_min(0)
        return scores.clamp_min(-LINEAR).clamp_max(LINEAR) + scores.sign() * torch.log1p(excess) - self.mean
