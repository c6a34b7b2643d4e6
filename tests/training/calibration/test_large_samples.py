"""Samples that are too large to be in memory together calibrate as others do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from training.calibration import CalibrationSamples, Measured, account, calibrated, calibration_samples, fitting
from training.calibration.samples import Stored
from training.data.dataset import SampleFile
from training.data.prepare import prepare
from training.fit.operator_workload import OperatorWorkload
from training.fit.presets import recipe
from training.problems.problem_file import ProblemFile

SIDES = (12, 16)


@pytest.fixture
def work(tmp_path: Path) -> OperatorWorkload:
    """Return a training on 42 samples with one that varies or does not, beside 20 for validation and 6 for tests."""
    rng = np.random.default_rng(0)
    k, f = 10 ** rng.uniform(-2, 2, (68, *SIDES)), rng.standard_normal((68, *SIDES))
    f[::2] = 1.0
    with h5py.File(tmp_path / "heat.h5", "w") as file:
        file["k"], file["f"], file["wind"] = k, f, (wind := rng.random(68))
        file["u"] = np.log(k) + f + wind[:, None, None]
        file["drag"] = wind + k.mean(axis=(1, 2))
    problem = ProblemFile.model_validate(
        {
            "name": "heat",
            "data": {"files": ["heat.h5"], "validation": 20, "test": 6},
            "inputs": {"k": {"positive": True}, "f": {}},
            "parameters": {"wind": {}},
            "outputs": {"u": {}, "drag": {"scalar": True}},
            "axes": {"row": {}, "column": {"boundary": "periodic"}},
        }
    )
    samples = SampleFile(prepare(problem, tmp_path, tmp_path / "data"), problem)
    return OperatorWorkload(recipe(samples, "tiny"), samples.path.parent)


def test_as_many_samples_calibrate_however_large_they_are(
    work: OperatorWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = work.network().eval()
    work.fit_normalisers(network)
    described = replace(work.problem, description=work.problem.description_for(network.optional)).of_samples.description

    def sets(samples: CalibrationSamples) -> list[Measured]:
        return [*samples.fitted, *samples.calibration, *samples.test]

    whole = calibration_samples(work, network)
    monkeypatch.setattr(fitting, "BYTES", 5 * work.samples.sample_bytes)
    parts = calibration_samples(work, network)
    for before, after in zip(sets(whole), sets(parts), strict=True):
        assert isinstance(after, Stored)
        assert len(after) == len(before) == len(before.inputs[0])
        assert len(after.inputs[0]) == 5
        assert torch.equal(after.of(lambda inputs: inputs[0]), before.inputs[0])
        for one, other in ((after.errors, before.errors), (after.scalars, before.scalars)):
            assert (one is None) == (other is None)
            assert one is None or other is None or torch.allclose(one, other, rtol=1e-4)
        chosen = torch.arange(len(before)) % 3 == 1
        assert torch.equal(after.select(chosen).of(lambda inputs: inputs[1]), before.select(chosen).inputs[1])
    made, expected = (calibrated(described, network, each) for each in (parts, whole))
    assert made is not None
    assert expected is not None
    assert made.layout == expected.layout
    assert made.layout.apart == (1,)
    assert made.names == ("error_estimate", "error_estimate.drag", "novelty")
    rows, known = (account(one, network, each)["test"][0] for one, each in ((made, parts), (expected, whole)))
    assert rows["fields"] == known["fields"] == 6
    assert rows["mean_error"] == pytest.approx(known["mean_error"], rel=1e-3)
    assert rows["mean_estimate"] == pytest.approx(known["mean_estimate"], rel=0.5)
