"""The hours of the published trainings: their steps, and rows that replace former ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.tables import durations
from benchmarks.tables.classical import solvers
from training.recipes import recipe as config
from training.user_error import UserError


@pytest.mark.parametrize(
    ("name", "steps"), [("burgers-paper", 12_800), ("darcy-paper85", 25_600), ("listops-paper", 5_000)]
)
def test_the_steps_are_those_of_the_whole_training(name: str, steps: int) -> None:
    assert durations.steps(config.read(config.find(name))) == steps


def test_a_new_row_replaces_the_former_one_of_its_subject() -> None:
    first, last = (
        durations.Duration(one.recipe, one.attention, one.input, one.overrides, 4, 3_600, 1.0)
        for one in (durations.FIELDS[0], durations.SEQUENCES[-1])
    )
    faster = replace(first, seconds=0.5)
    assert durations.merged([last, first], faster) == [faster, last]
    assert durations.known(durations.document([faster, last])) == [faster, last]
    tables = durations.tables([faster, last])
    assert [row[-2:] for _, rows in tables.values() for row in rows] == [("0.5", "0.5"), ("1", "1")]


def test_rows_of_models_that_are_not_measured_stay() -> None:
    rows = [{"model": name, "input": "x", "fields": 1, **NUMBERS} for name in solvers.MODELS]
    assert [row.model for row in solvers.others({"solvers": rows}, ("burgers",))] == ["darcy_inverse"]
    assert solvers.others(None, ("burgers",)) == []
    with pytest.raises(UserError, match="expected models among darcy_inverse, burgers but got heat"):
        solvers.measure(Path("data"), ("heat",), quick=True)


ERRORS = ("network_error", "solver_error", "network_standard_error", "solver_standard_error")
NUMBERS = dict.fromkeys(("network_seconds", "solver_seconds", *ERRORS), 1.0)
