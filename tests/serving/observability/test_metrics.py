"""Metrics: what is left out so that means stay numbers, and what is there before it is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prometheus_client import Counter, Histogram

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


def test_a_large_batch_is_counted_at_once_and_as_sample_by_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop waits meanwhile, and a batch may have a quarter of a million samples."""
    card, rng = Card.model_validate_json(CARD.read_text()), np.random.default_rng(0)
    bounds = np.float32([*10 ** rng.uniform(-7, 1, 500), 0, 1e-6, 0.5, 5, np.nan])  # limits of buckets belong below
    by = rng.integers(0, 3, len(bounds)).astype(np.int8)
    one, several = Metrics("1"), Metrics("1")
    for index in range(len(bounds)):
        one.quality(card, Quality({"error_bound": bounds[index : index + 1]}, by[index : index + 1]))
    calls, counted = list[float](), Counter.inc
    monkeypatch.setattr(Histogram, "observe", lambda _, amount: calls.append(amount))
    monkeypatch.setattr(Counter, "inc", lambda own, amount=1: (calls.append(amount), counted(own, amount)))
    several.quality(card, Quality({"error_bound": bounds}, by))
    monkeypatch.undo()
    assert len(calls) == 3  # what has computed them
    found, expected = numbers(several), numbers(one)
    assert found == pytest.approx(expected)
    assert found['petrov_error_bound_count{model="darcy"}'] == len(bounds) - 1


def numbers(metrics: Metrics) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in metrics.text().decode().splitlines())
    return {name: float(value) for name, _, value in lines if name.startswith(("petrov_error_bound", "petrov_solved"))}


def test_refusals_are_counted_from_zero() -> None:
    """A rate does not see the step with which a series begins: the first refusals of a kind would be in none."""
    lines = Metrics("1").text().decode().splitlines()
    for kind in KINDS:
        assert f'petrov_rejected_total{{reason="{kind}"}} 0.0' in lines
