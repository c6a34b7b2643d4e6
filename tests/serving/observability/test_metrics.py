"""Metrics of quality leave out what has no finite value, so that means stay numbers."""

from __future__ import annotations

import numpy as np

from serving.observe import Metrics
from serving.quality import Quality


def test_bounds_that_are_not_finite_are_left_out() -> None:
    metrics = Metrics("1")
    bounds = np.array([0.5, np.inf, np.nan], np.float32)
    metrics.quality("toy", Quality({"error_bound": bounds}, np.zeros(3, np.bool_)))
    text = metrics.text().decode()
    assert 'petrov_error_bound_sum{model="toy"} 0.5' in text
    assert 'petrov_error_bound_count{model="toy"} 1.0' in text
