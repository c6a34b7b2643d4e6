"""Metrics of quality leave out what has no finite value, so that means stay numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from schema.card import Card
from serving.observe import Metrics
from serving.quality import Quality

CARD = Path(__file__).parents[3] / "checkpoints/darcy/published/darcy/card.json"


def test_bounds_that_are_not_finite_are_left_out() -> None:
    metrics = Metrics("1")
    bounds = np.array([0.5, np.inf, np.nan], np.float32)
    metrics.quality(Card.model_validate_json(CARD.read_text()), Quality({"error_bound": bounds}, np.zeros(3, np.bool_)))
    text = metrics.text().decode()
    assert 'petrov_error_bound_sum{model="darcy"} 0.5' in text
    assert 'petrov_error_bound_count{model="darcy"} 1.0' in text
