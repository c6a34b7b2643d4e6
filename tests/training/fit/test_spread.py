"""Samples that stand for all are from all of them, also where files are joined in the order of a parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.fit.test_warm_start import problem
from training.calibration import calibration_samples, fitting
from training.data.dataset import SampleFile, spread
from training.data.prepare import prepare
from training.fit import batches
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import BAND_FIELDS, OVERSAMPLING, working_grid
from training.fit.start import ProblemRun
from training.problems.problem_file import ProblemFile

TRAIN, KEPT = 28, 12  # samples for training, and for validation and the test


@pytest.fixture
def work(tmp_path: Path) -> OperatorWorkload:
    """Return the workload of samples of two speeds, of which the last ones alone have the second."""
    rng, speed = np.random.default_rng(0), np.repeat([1.0, 2.0], (TRAIN + KEPT) // 2)
    np.savez(
        tmp_path / "line.npz", k=rng.uniform(1, 2, (TRAIN + KEPT, 12)), speed=speed, u=rng.random((TRAIN + KEPT, 12))
    )
    return OperatorWorkload(ProblemRun(problem(), "tiny", (), tmp_path, folder=tmp_path).recipe(), tmp_path)


@pytest.mark.parametrize("most", [8, TRAIN])
def test_means_and_deviations_are_those_of_all_training_samples(
    work: OperatorWorkload, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "STATISTICS_SAMPLES", most)
    assert work.counts[0] == TRAIN
    speed = work.statistics_batch().inputs[1]
    assert len(speed) == most
    assert {*speed.tolist()} == {1, 2}
    whole = torch.from_numpy(work.samples.pick("speed", range(TRAIN)))
    assert torch.equal(speed, whole) == (most == TRAIN)


def test_samples_of_all_parts_are_fitted(work: OperatorWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST_FITTED", 4)
    found = calibration_samples(work, work.network())
    [fitted], [_, inputs] = found.fitted, found.calibration
    assert [{*one.inputs[1].tolist()} for one in (fitted, inputs)] == [{1, 2}] * 2


def test_the_working_grid_resolves_the_waves_of_all_training_samples(tmp_path: Path) -> None:
    x, train = 2 * np.pi * np.arange(32) / 32, BAND_FIELDS + 20
    number = np.where(np.arange(train + KEPT) < train - 10, 1, 5)
    phase = np.random.default_rng(0).random((train + KEPT, 3, 1))
    np.savez(tmp_path / "waves.npz", u=np.sin(number[:, None, None] * x + phase))
    document: dict[str, Any] = {
        "data": {"files": ["waves.npz"], "validation": 8, "test": KEPT - 8},
        "inputs": {"first": {"key": "u"}},
        "outputs": {"u": {}},
        "axes": {"x": {"boundary": "periodic"}},
        "time": {"step": 0.1},
    }
    file = ProblemFile.model_validate({"name": "waves", **document})
    assert working_grid(SampleFile(prepare(file, tmp_path, tmp_path), file)) == (5 * OVERSAMPLING,)


def test_samples_that_are_few_enough_are_taken_as_they_are() -> None:
    rows = np.arange(3, 9)
    assert spread(rows, 6) is rows
    assert spread(range(4), 9) == range(4)
    assert spread(rows, 4).tolist() == [3, 4, 6, 8]
