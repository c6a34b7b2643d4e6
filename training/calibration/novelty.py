r"""Novelty of an input: the conformal p-value of its statistics among those of calibration inputs.

.. math::
    p = \frac{1 + \#\{i : d_i \ge d\}}{n + 1},

with :math:`d` the Mahalanobis distance of the statistics' normal scores to those of fitted inputs, and :math:`d_i` that
of calibration input :math:`i`. An input of the same distribution has :math:`p < 0.01` with a probability of about 1 %.
Where an input tells two groups of samples apart, each is compared with its own.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from training.calibration.statistics import NormalScores, Statistics

OUTSIDE = 0.01  # an input of a smaller p-value is outside the training distribution
FOREIGN = 0.001  # and of one below this, nothing is known: of 999 calibration inputs or more, none is as unusual


class Novelty(nn.Module):
    """Compute the p-value of every sample among calibration inputs, those of its group where there are two groups."""

    whitening: Tensor
    distances: Tensor
    others: Tensor

    def __init__(self, statistics: int, calibration: int, second: int = 0) -> None:
        super().__init__()
        self.scores = NormalScores(statistics)
        self.register_buffer("whitening", torch.eye(statistics))
        self.register_buffer("distances", torch.zeros(calibration))
        if second:
            self.register_buffer("others", torch.zeros(second))

    @property
    def foreign(self) -> float | None:
        """The p-value below which no calibration input is as unusual; None where there are too few to tell."""
        least = 1.5 / (len(self.distances) + 1)
        return max(FOREIGN, least) if least < OUTSIDE else None

    @torch.no_grad()
    def fit(
        self,
        fitted: Statistics,
        calibration: Float[Tensor, "_ statistic"],
        second: Float[Tensor, "_ statistic"] | None = None,
    ) -> None:
        """Set scores and covariance from some inputs, and the distances of others."""
        self.scores.fit(fitted)
        z = self.scores(fitted).double()
        count, size = z.shape
        shrinkage = 0.01 + size / (size + count)
        covariance = z.T @ z / count
        covariance.diagonal().clamp_min_(1)  # a statistic that never varies among few samples may vary
        covariance = (covariance + shrinkage * torch.eye(size, dtype=z.dtype)) / (1 + shrinkage)
        values, vectors = torch.linalg.eigh(covariance)
        self.whitening.copy_(vectors * values.rsqrt())
        self.distances.copy_(self.distance(calibration).sort().values)
        if second is not None:
            self.others.copy_(self.distance(second).sort().values)

    def distance(self, statistics: Statistics) -> Float[Tensor, " batch"]:
        """Return the squared Mahalanobis distance."""
        return (self.scores(statistics) @ self.whitening).square().sum(-1)

    def forward(self, statistics: Statistics, group: Bool[Tensor, "batch 1"] | None = None) -> Float[Tensor, "batch 1"]:
        distance = self.distance(statistics)[:, None]
        first = share(self.distances, distance)
        return first if group is None else torch.where(group, share(self.others, distance), first)


def share(distances: Float[Tensor, " _"], distance: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 1"]:
    """Return the share of a new sample and its group that are at least as far as it."""
    farther = (distances >= distance).to(distance.dtype)
    return (1 + farther.sum(-1, keepdim=True)) / (distances.shape[0] + 1)
