"""The comparison of inversions: its cases, its scores and its table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.inversion import measure
from benchmarks.inversion.cases import NOISE, POINTS, PRIORS, Case
from benchmarks.inversion.measure import CLASSICAL, NETWORK, Row
from physics import darcy
from physics.numerics.adjoint import Linearised
from physics.numerics.grid import axis
from physics.posterior.sensors import Sensors, lattice
from serving.inversion.classical import ClassicalModel

if TYPE_CHECKING:
    from pathlib import Path

ROW = Row(PRIORS[0].name, 0, NETWORK, 0.1, 0.2, 0.9, 0.3, 1.0, 5, 2.0)


def test_measurements_are_the_pressure_of_the_truth_with_noise() -> None:
    assert set(np.unique(Case(PRIORS[1], 0).truth)) == {darcy.LOW, darcy.HIGH}
    case = Case(PRIORS[0], 0)
    values, deviation = case.measurements
    points = axis(POINTS)
    coarse = Sensors(lattice(8), points, points).observe(darcy.solve(case.truth)[None])[0]
    assert deviation == pytest.approx(NOISE * np.sqrt(np.square(coarse).mean()), rel=0.05)
    assert np.sqrt(np.square((values - coarse) / deviation).mean()) == pytest.approx(1.0, abs=0.3)


def test_an_inversion_is_scored_against_the_truth() -> None:
    case = Case(PRIORS[0], 1)
    row, summary = measure.run(case, CLASSICAL, ClassicalModel(Linearised), 0.003)
    far = np.linalg.norm(case.truth - np.median(case.truth)) / np.linalg.norm(case.truth)
    assert row.error < far / 2
    assert row.error == pytest.approx(np.linalg.norm(summary.mean - case.truth) / np.linalg.norm(case.truth), rel=1e-6)
    assert 0.7 < row.coverage < 1
    assert row.seconds > 0


def test_rows_are_kept_and_averaged(tmp_path: Path) -> None:
    rows = [ROW, replace(ROW, seed=1, error=0.3), replace(ROW, method=CLASSICAL)]
    assert measure.known(tmp_path / "rows.json") == []
    measure.write(rows, tmp_path / "rows.json")
    assert measure.known(tmp_path / "rows.json") == rows
    header, cells = measure.table(rows)
    assert [row[:3] for row in cells] == [(PRIORS[0].name, NETWORK, "0.200"), (PRIORS[0].name, CLASSICAL, "0.100")]
    assert {len(row) for row in cells} == {len(header)}
