"""Samples that a model has seen do not calibrate it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.training.fit.test_warm_start import problem, write
from training.fit.operator_workload import OperatorWorkload
from training.fit.start import ProblemRun
from training.fit.workload import ScopeError


def test_new_files_are_refused_where_a_tensor_would_keep_those_of_the_training(tmp_path: Path) -> None:
    """As many samples, of which the new ones would have the old parameters."""
    write(tmp_path, "line")
    write(tmp_path, "later")
    with np.load(tmp_path / "line.npz") as line:
        np.save(tmp_path / "speeds.npy", line["speed"])
    apart = problem(parameters={"speed": {"files": [str(tmp_path / "speeds.npy")], "key": "array"}})
    work = OperatorWorkload(ProblemRun(apart, "tiny", (), tmp_path, folder=tmp_path).recipe(), tmp_path)
    with pytest.raises(ScopeError, match=r"line-tiny: expected new samples of all tensors but speed would be .*speeds"):
        work.renewed(0, (str(tmp_path / "later.npz"),))
