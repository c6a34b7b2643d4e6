"""What no network could learn from is refused before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from training.data.prepare import prepare
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError

RNG = np.random.default_rng(0)


def remarks(folder: Path, arrays: dict[str, NDArray[Any]], **tables: object) -> list[str]:
    """Return what the checks of some arrays remark, whose output is `u`."""
    np.savez(folder / "data.npz", **arrays)
    document = {"name": "checked", "data": {"files": ["data.npz"]}, "outputs": {"u": {}}, **tables}
    with h5py.File(prepare(ProblemFile.model_validate(document), folder, folder / "prepared")) as file:
        return str(file.attrs["remarks"]).splitlines()


def test_a_frame_of_zero_is_named_unless_the_network_starts_from_it(tmp_path: Path) -> None:
    u = RNG.random((20, 6, 8)) + 1
    u[:, :2] = 0
    tables: dict[str, Any] = {"axes": {"x": {}}, "inputs": {"start": {"key": "u"}}}
    assert not remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1, "history": 2})
    u[[4, 5], 3] = 0
    sentence = (
        r"'u' is zero everywhere in frame 3 of sample 4: its relative error is not defined \(2 of these 20 samples"
    )
    with pytest.raises(DataError, match=sentence):
        remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1, "history": 2})


def test_fields_of_zero_in_the_domain_are_zero_whatever_is_outside(tmp_path: Path) -> None:
    inside = np.arange(8) > 3
    u = np.where(inside, RNG.random((20, 6, 8)) + 1, np.nan)
    tables: dict[str, Any] = {"axes": {"x": {}}, "inputs": {"start": {"key": "u"}}, "mask": {"nan": "u"}}
    assert not remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1})
    u[7, 5] = np.where(inside, 0, np.nan)
    with pytest.raises(DataError, match="frame 5 of sample 7"):
        remarks(tmp_path, {"u": u}, **tables, time={"step": 0.1})
