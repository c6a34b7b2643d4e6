"""The comparisons on trajectories: their tables, and what carries fields between grids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.own_data.loop import Samples, Settings
from benchmarks.trajectories import comparison, fno_baseline, resumable, solvers
from physics import kuramoto_sivashinsky, navier_stokes
from training.problems.own.problem_file import read_problem_file

if TYPE_CHECKING:
    from pathlib import Path


def test_the_problem_file_is_one_that_a_user_may_write() -> None:
    problem = read_problem_file(comparison.PROBLEM)
    assert problem.time is not None
    assert (problem.data.validation, problem.data.test) == (comparison.HELD, comparison.HELD)


def test_the_table_has_the_frames_of_the_header() -> None:
    row = comparison.row("FNO", 66337, 900.4, [frame / 100 for frame in range(1, 41)])
    assert comparison.cells([row]) == [("FNO", "66,337", "900", "0.01", "0.1", "0.2", "0.4")]
    assert len(comparison.HEADER) == 7


@pytest.mark.parametrize("axes", [1, 2])
def test_smooth_fields_are_carried_to_a_coarser_grid_and_back(axes: int) -> None:
    x = 2 * np.pi * np.arange(24) / 24
    line = np.stack([np.sin(3 * x), np.cos(2 * x) + 1])
    fields = line if axes == 1 else line[:, :, None] * line[:, None]
    np.testing.assert_allclose(solvers.carried(solvers.carried(fields, 16), 24), fields, atol=1e-12)
    frames = np.stack([fields, 2 * fields], axis=1)
    np.testing.assert_allclose(solvers.carried(frames, 16, axes)[:, 1], 2 * solvers.carried(fields, 16), atol=1e-12)


@pytest.mark.parametrize("name", solvers.SETTINGS)
def test_a_finer_setting_of_a_solver_has_a_smaller_error(name: str) -> None:
    rng = np.random.default_rng(0)
    setting = solvers.SETTINGS[name]
    if name == "kuramoto_sivashinsky":
        start, length = kuramoto_sivashinsky.sample(rng, 2, frames=1, points=32)
        truth, numbers = np.concatenate([start[:, :1], setting.solve(start[:, 0], 2, length, 0.1)], axis=1), length
    else:
        start, numbers = navier_stokes.initial_vorticity(rng, 2, 32), np.full(2, 1e-2)
        truth = np.concatenate([start[:, None], setting.solve(start, 2, numbers, 0.1)], axis=1)
    rows = [
        solvers.row(str(points), solvers.solved(setting, points, step, truth, numbers), truth)
        for points, step in ((16, 0.5), (24, 0.25))
    ]
    assert rows[1]["errors"][1] < rows[0]["errors"][1]
    assert rows[0]["milliseconds"] > 0


def test_a_solver_that_overflows_has_the_largest_error() -> None:
    truth = np.full((1, 2, 16), 1e6) * np.sin(2 * np.pi * np.arange(16) / 16)
    setting = solvers.SETTINGS["kuramoto_sivashinsky"]
    found = solvers.row("coarse", solvers.solved(setting, 16, 1.0, truth, np.array([22.0])), truth)
    assert found["errors"] == [1000]


def test_the_table_and_the_picture_show_the_settings_that_no_cheaper_one_beats(tmp_path: Path) -> None:
    def made(method: str, milliseconds: float, error: float) -> dict[str, Any]:
        return {
            "method": method,
            "milliseconds": milliseconds,
            "errors": [error] * 20,
            "standard_errors": [0.1 * error] * 20,
        }

    rows = [
        made("network", 5, 0.01),
        made("keeping", 0, 0.9),
        made(f"{fno_baseline.METHOD}, 60 seconds of training", 2, 0.2),
        made("solver, slow", 3, 0.5),
        made("solver, fast", 1, 0.1),
    ]
    shown = solvers.cells(solvers.ordered(rows))
    assert [cells[0] for cells in shown] == ["network", rows[2]["method"], "keeping", "solver, fast"]
    assert shown[0][2] == "0.01 ± 0.001"
    solvers.draw(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_methods_are_run_round_by_round_and_the_median_time_counts() -> None:
    order, times = [], iter([3.0, 1.0, 9.0, 2.0, 4.0, 7.0])

    def work(name: str) -> tuple[Any, float]:
        order.append(name)
        return np.zeros((1, 1, 4)), next(times)

    found = solvers.interleaved({name: lambda name=name: work(name) for name in "ab"}, 3)  # type: ignore[misc]
    assert "".join(order) == "ababab"
    assert {name: seconds for name, (_, seconds) in found.items()} == {"a": 4.0, "b": 2.0}


def test_a_row_has_the_standard_error_over_the_trajectories() -> None:
    truth = np.ones((2, 2, 4))
    found = solvers.row("network", (truth[:, 1:] * np.array([1.1, 1.3])[:, None, None], 0.02), truth)
    assert found["errors"] == [pytest.approx(0.2)]
    assert found["standard_errors"] == [pytest.approx(0.1)]
    assert found["milliseconds"] == 10


@pytest.mark.parametrize("name", fno_baseline.CHOSEN)
def test_fno_is_trained_on_the_splits_of_the_problem_file(name: str, tmp_path: Path) -> None:
    asked = fno_baseline.request(name, tmp_path, 60)
    assert asked["weights"] == str(tmp_path / f"fno-{name}-60.npz")
    assert (asked["state"], asked["parameter"], asked["held"]) == {
        "kuramoto_sivashinsky": ("u", "length", [32, 32]),
        "navier_stokes": ("vorticity", "viscosity", [16, 24]),
    }[name]


def test_an_interrupted_training_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**6))
    monkeypatch.setattr(resumable.time, "process_time", lambda: float(next(clock)))
    monkeypatch.setattr(resumable, "KEPT_SECONDS", 0.0)
    samples = Samples([torch.randn(8, 3)], torch.randn(8, 3))
    whole, part = tmp_path / "whole.npz", tmp_path / "part.npz"

    def train(path: Path) -> dict[str, Any]:
        torch.manual_seed(0)
        used = resumable.train(nn.Linear(3, 3), samples, Settings(batch=2), 12.0, 1, path)
        assert used.steps == 11
        with np.load(path) as file:
            return dict(file)

    expected, step = train(whole), resumable.step

    def interrupted(*arguments: Any) -> None:
        if (part.with_suffix(".part.npz")).exists():
            raise KeyboardInterrupt
        step(*arguments)

    monkeypatch.setattr(resumable, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(part)
    monkeypatch.setattr(resumable, "step", step)
    found = train(part)
    assert not part.with_suffix(".part.npz").exists()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6)
