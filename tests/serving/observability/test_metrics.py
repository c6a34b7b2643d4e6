"""Metrics: what is left out so that means stay numbers, and what is there before it is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from schema.card import Card
from serving.errors import KINDS
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


def test_refusals_are_counted_from_zero() -> None:
    """A rate does not see the step with which a series begins: the first refusals of a kind would be in none."""
    lines = Metrics("1").text().decode().splitlines()
    for kind in KINDS:
        assert f'petrov_rejected_total{{reason="{kind}"}} 0.0' in lines
