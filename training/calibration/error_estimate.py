r"""Estimate of a prediction's error that at least 90 % of inputs of the training distribution stay below.

.. math::
    \mathrm{estimate}(x) = \max_g q_g\, \sigma_g(x), \qquad \log \sigma_g(x) = b_g + w_g \cdot \phi(z(x)),

with g the calibrated grids next to that of the input, one where it is calibrated itself. z are the normal scores of the
input's statistics and of its roughness, which shows the noise, and :math:`\phi` are hinges, by which the logarithm of
the error is piecewise linear in every score. Weights and level are a ridge regression on fitted samples of the grid,
and q is the conformal quantile of error over :math:`\sigma` on calibration samples of the grid. So the estimate covers
at least 90 % of the calibration's distribution on each grid. Where samples are of two groups that an input tells apart
(see `Calibration`), or have one of several levels of noise, which the roughness tells apart, each of these cases has a
quantile of its own, and the estimate covers 90 % of each (Mondrian conformal prediction, Vovk et al. 2005).

Ranks among calibration samples are valid for any distribution (Angelopoulos and Bates, A gentle introduction to
conformal prediction, arXiv 2107.07511).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy.special import betaincinv
from torch import Tensor, nn

from training.calibration.statistics import COVERAGE, NormalScores, Statistics, fewest

CONFIDENCE = 0.95  # of what a card promises about its own calibration
CLIP = 3.0  # deviations of a statistic beyond which sigma stays as it is
HINGES = (-1.0, 0.0, 1.0)  # scores at which the slope of sigma's logarithm may change
RIDGE = 10.0  # so many samples weigh as much as the assumption that the error does not depend on the input
TINY = 1e-12  # an exact prediction has no logarithm

Errors = Float[Tensor, " sample"]
StatisticsAndErrors = tuple[Statistics, Errors]  # statistics, and the relative errors of the same samples


class ErrorEstimate(nn.Module):
    """Estimate the relative L2 error of every sample, on calibrated grids and between them.

    Args:
        statistics: How many there are per sample, the roughness last.
        grids: How many grids are calibrated.
        groups: One, or two that an input tells apart.
        levels: How many levels of noise the roughness tells apart.
        roughness: How many of the statistics, the last ones, are the roughness.
    """

    weight: Tensor
    bias: Tensor
    points: Tensor
    quantiles: Tensor
    bounds: Tensor

    def __init__(self, statistics: int, grids: int, groups: int = 1, levels: int = 1, roughness: int = 1) -> None:
        super().__init__()
        #: The shape of the quantiles with an axis for groups, levels of noise and grids.
        self.cases = groups, levels, grids
        self.levels, self.roughness = levels, roughness
        self.scores = NormalScores(statistics)
        self.register_buffer("weight", torch.zeros(grids, statistics * (1 + len(HINGES))))
        self.register_buffer("bias", torch.zeros(grids))
        self.register_buffer("points", torch.zeros(grids))
        self.register_buffer("quantiles", torch.zeros(*(count for count in (groups, levels) if count > 1), grids))
        if levels > 1:
            self.register_buffer("bounds", torch.zeros(levels - 1, grids))

    @torch.no_grad()
    def fit(self, samples: Mapping[int, StatisticsAndErrors], grids: tuple[int, ...]) -> None:
        """Fit scores and sigma by the number of points of a grid; one without samples of its own takes all of them."""
        everything = tuple(torch.cat(parts) for parts in zip(*samples.values(), strict=True))
        self.scores.fit(everything[0])
        for index, points in enumerate(grids):
            statistics, errors = samples.get(points, everything)
            self.points[index] = points
            self.weight[index], self.bias[index] = regression(self.features(statistics), errors)

    @torch.no_grad()
    def calibrate(self, samples: Mapping[int, StatisticsAndErrors], group: int = 0) -> int:
        """Set the quantiles of a group from samples that serve nothing else, by the number of points of their grid.

        Return how many samples the quantile with the fewest of them rests on.
        """
        counts = []
        for index, (_, (statistics, errors)) in enumerate(sorted(samples.items())):
            scores = errors.double() / self.sigma(statistics)[:, index].double()
            above = self.noise(statistics) > self.bounds[:, index] if self.levels > 1 else torch.zeros(len(scores), 1)
            for each in range(self.levels):
                chosen = scores[above.sum(dim=1) == each]
                self.quantiles.view(self.cases)[group, each, index] = quantile(np.asarray(chosen))
                counts.append(len(chosen))
        return min(counts)

    def noise(self, statistics: Statistics) -> Float[Tensor, "batch 1"]:
        """Return the mean roughness, which grows with the level of noise."""
        return statistics[:, -self.roughness :].mean(dim=1, keepdim=True)

    def features(self, statistics: Statistics) -> Float[Tensor, "batch _"]:
        """Return the scores of at most `CLIP` deviations, and by how much they exceed the hinges."""
        z = self.scores(statistics).clamp_min(-CLIP).clamp_max(CLIP)
        return torch.cat([z, *((z - hinge).clamp_min(0) for hinge in HINGES)], dim=1)

    def sigma(self, statistics: Statistics) -> Float[Tensor, "batch grid"]:
        """Return the expected size of the error on every calibrated grid, up to the grid's factor."""
        return torch.exp(self.bias + self.features(statistics) @ self.weight.T)

    def neighbours(self, points: Float[Tensor, " 1"]) -> tuple[Tensor, Tensor]:
        """Return the indices `[1]` of the calibrated grids next to a grid, twice the same if it is one of them."""
        last = self.points.shape[0] - 1
        above = (self.points < points).sum(0, keepdim=True).clamp(max=last)
        below = ((self.points <= points).sum(0, keepdim=True) - 1).clamp(min=0)
        return below, above

    def forward(
        self, statistics: Statistics, points: Float[Tensor, " 1"], group: Bool[Tensor, "batch 1"] | None = None
    ) -> Float[Tensor, "batch 1"]:
        """Estimate the relative L2 errors that 90 % of inputs stay below, on a grid of `points` points."""
        quantiles = self.quantiles.view(self.cases)
        levels = quantiles[0] if group is None else torch.where(group[..., None], quantiles[1], quantiles[0])
        found, noise = levels[..., 0, :], self.noise(statistics)
        for level in range(1, self.levels):
            found = torch.where(noise > self.bounds[level - 1], levels[..., level, :], found)
        estimates = found * self.sigma(statistics)
        below, above = self.neighbours(points)
        return torch.maximum(estimates.index_select(1, below), estimates.index_select(1, above))


def bounds(samples: Mapping[float, Float[Tensor, " _"]]) -> Float[Tensor, " _"]:
    """Return what separates the roughness of samples with neighbouring levels of noise, ascending.

    Each bound is as many deviations from the mean of the one level as from that of the other.
    """
    spread = [torch.std_mean(values.double()) for _, values in sorted(samples.items())]
    return torch.stack([(low * b + high * a) / (a + b) for (a, low), (b, high) in pairwise(spread)])


def regression(features: Float[Tensor, "sample feature"], errors: Errors) -> tuple[Tensor, Tensor]:
    """Return weights `[feature]` and level `[]` of a ridge regression of the logarithms of errors."""
    features, logs = features.double(), errors.double().clamp_min(TINY).log()
    centre, level = features.mean(0), logs.mean()
    centred = features - centre
    normal = centred.T @ centred + RIDGE * torch.eye(features.shape[1], dtype=features.dtype)
    weight = torch.linalg.solve(normal, centred.T @ (logs - level))
    return weight, level - centre @ weight


def quantile(scores: NDArray[np.floating[Any]], coverage: float = COVERAGE) -> float:
    r"""Return the score that a new sample of the same distribution stays below with at least this probability.

    It is the :math:`\lceil (n+1)\,p \rceil`-th smallest of :math:`n` calibration scores.

    Args:
        scores: The calibration scores.
        coverage: The probability :math:`p`.

    Raises:
        ValueError: There are too few scores.

    Example:
        >>> quantile(np.arange(1.0, 20.0))
        18.0
    """
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    if rank > len(scores):
        raise ValueError(
            f"expected at least {fewest(coverage)} scores for a coverage of {coverage} but got {len(scores)}"
        )
    return float(np.sort(scores)[rank - 1])


def guarantee(samples: int, aim: float = COVERAGE, confidence: float = CONFIDENCE) -> dict[str, float | list[float]]:
    r"""Return what a quantile of so many calibration samples promises, whatever the distribution of their errors is.

    A new sample of the same distribution is covered with the probability `aim` or more, over calibrations. The share of
    inputs that one of them covers has the distribution :math:`\mathrm{Beta}(k, n + 1 - k)`, with
    :math:`k = \lceil (n + 1)\,p \rceil`, where no two errors are equal, and is larger else: it lies `between` these
    bounds with the probability `confidence` (Vovk, Conditional validity of inductive conformal predictors, 2012).

    Example:
        >>> guarantee(1000)
        {'coverage': 0.9, 'between': [0.8808, 0.9179], 'confidence': 0.95}
    """
    rank = math.ceil((samples + 1) * aim - 1e-9)
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    between = [round(float(betaincinv(rank, samples + 1 - rank, tail)), 4) for tail in tails]
    return {"coverage": aim, "between": between, "confidence": confidence}


def coverage(covered: NDArray[np.bool_]) -> dict[str, float]:
    """Return the share of test samples that are covered, and its standard error, as if one more was and one was not.

    Example:
        >>> coverage(np.array([True] * 9 + [False]))
        {'coverage': 0.9, 'coverage_standard_error': 0.1179}
    """
    count, hits = len(covered), int(covered.sum())
    likely = (hits + 1) / (count + 2)  # few samples that are all covered leave an uncertainty
    error = math.sqrt(likely * (1 - likely) / count)
    return {"coverage": round(hits / count, 4), "coverage_standard_error": round(error, 4)}
