"""Split conformal quantiles: their rank, and their coverage over many draws."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch

from training.calibration.error_estimate import ErrorEstimate, guarantee, quantile
from training.calibration.statistics import fewest


@pytest.mark.parametrize(("count", "rank"), [(9, 9), (19, 18), (99, 90), (500, 451)])
def test_the_quantile_is_the_score_of_the_right_rank(count: int, rank: int) -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
    assert quantile(scores) == rank


def test_too_few_scores_are_refused() -> None:
    assert fewest() == 9
    with pytest.raises(ValueError, match="at least 9 scores"):
        quantile(np.ones(8))


@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential", "standard_cauchy"])
def test_new_scores_stay_below_with_the_promised_probability(draw: str) -> None:
    """The coverage over 2,000 repetitions is 0.9 to 0.9 + 1/(n + 1), whatever the distribution."""
    rng = np.random.default_rng(1)
    scores = getattr(rng, draw)((2000, 51))
    covered = np.mean([row[-1] <= quantile(row[:-1]) for row in scores])
    error = np.sqrt(0.09 / 2000)
    assert 0.9 - 3 * error <= covered <= 0.9 + 1 / 51 + 3 * error


@pytest.mark.parametrize("count", [10, 30, 100, 1000])
def test_what_a_card_promises_holds_for_95_of_100_calibrations(count: int) -> None:
    """The share of uniform scores below a number is that number, so the coverage of a calibration is its quantile."""
    low, high = cast("list[float]", guarantee(count)["between"])
    rng = np.random.default_rng(count)
    covered = np.array([quantile(rng.random(count)) for _ in range(2000)])
    assert np.mean((covered >= low) & (covered <= high)) == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 2000))
    assert np.mean(covered) >= 0.9 - 3 * np.std(covered) / np.sqrt(2000)


def test_few_samples_cover_on_average_whatever_the_expected_size_of_the_error() -> None:
    """Errors of fitted samples are too small, and more numbers than samples describe them: it changes no coverage.

    The coverage of one calibration by 53 samples has a deviation of 0.041, that of the beta distribution of its rank.
    """
    generator, found, count = torch.Generator().manual_seed(0), [], 53

    def drawn(samples: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        statistics = torch.randn(samples, 40, generator=generator)
        noise = torch.randn(samples, generator=generator)
        return statistics, scale * torch.exp(0.3 * statistics[:, 0] + 0.2 * noise)

    for _ in range(200):
        estimate = ErrorEstimate(40, 1)
        estimate.fit({64: drawn(100, 0.6)}, (64,))
        estimate.calibrate({64: drawn(count, 1.0)})
        statistics, errors = drawn(400, 1.0)
        found.append((errors <= estimate(statistics, torch.tensor([64.0]))[:, 0]).double().mean().item())
    rank = np.ceil(0.9 * (count + 1))
    expected, deviation = rank / (count + 1), np.sqrt(rank * (count + 1 - rank) / (count + 1) ** 2 / (count + 2))
    assert np.mean(found) == pytest.approx(expected, abs=3 * deviation / np.sqrt(200))
    assert np.std(found) == pytest.approx(np.hypot(deviation, np.sqrt(0.09 / 400)), rel=0.2)
