"""Error against time: what is measured of a method, and which methods are dominated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.tables import charts
from benchmarks.tables.classical import pareto
from benchmarks.tables.classical.pareto import Point


def slow(field: np.ndarray) -> np.ndarray:
    for _ in range(200):
        np.linalg.eigvals(np.outer(field, field) + 1)
    return field


def test_errors_and_times_are_those_of_the_method() -> None:
    fields = np.random.default_rng(0).random((3, 20)) + 1
    methods = {"exact": slow, "a tenth too large": lambda field: 1.1 * field}
    exact, rough = pareto.compare("toy", "20", methods, fields, fields)
    assert (exact.error, exact.fields) == (0.0, 3)
    assert rough.error == pytest.approx(0.1)
    assert rough.standard_error == pytest.approx(0, abs=1e-12)
    assert rough.seconds < exact.seconds


def test_the_fastest_of_the_better_methods_is_named() -> None:
    points = [
        Point("toy", "20", "network", 2, 1e-2, 0.0, 3e-3),
        Point("toy", "20", "solver, 4 steps", 2, 9e-3, 0.0, 2e-3),
        Point("toy", "20", "solver, 2 steps", 2, 9.5e-3, 0.0, 1e-3),
        Point("toy", "40", "solver, 1 step", 2, 1e-4, 0.0, 1e-4),
    ]
    dominated = [row[-1] for row in pareto.rows(points)]
    assert dominated == ["solver, 2 steps", "", "", ""]


def test_the_picture_has_a_panel_per_input(tmp_path: Path) -> None:
    points = [
        Point(model, size, method, 2, error, error / 9, error)
        for model, size in (("darcy", "85 x 85"), ("burgers", "512 points"))
        for method, error in (("network", 1e-3), ("spectral, 128 points, step 0.05", 2e-3))
    ]
    charts.draw_pareto(points, tmp_path / "pareto.png")
    assert (tmp_path / "pareto.png").stat().st_size > 10_000
