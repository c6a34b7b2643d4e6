"""Split conformal quantiles: their rank, and their coverage over many draws."""

from __future__ import annotations

import numpy as np
import pytest

from training.calibration.error_estimate import fewest, quantile


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
