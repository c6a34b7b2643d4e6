"""Files and folders that the commands write: whole, with units and meaning, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr

from petrov_client import _files
from petrov_client._models import TensorInfo

if TYPE_CHECKING:
    from pathlib import Path

TENSORS = (TensorInfo("u", ("batch", "x"), units="m/s", meaning="velocity"), TensorInfo("h", ("batch", "x")))


def test_a_zarr_folder_holds_every_output_with_its_units(tmp_path: Path) -> None:
    outputs = {"u": np.arange(6, dtype=np.float32).reshape(2, 3), "h": np.ones((2, 3), np.float32)}
    path = tmp_path / "flow.zarr"
    _files.check_output(path, _files.TRAJECTORIES)
    _files.check_holds(path, TENSORS)
    _files.write(path, outputs, TENSORS)
    group = zarr.open_group(str(path), mode="r")
    for name, expected in outputs.items():
        np.testing.assert_array_equal(group[name][:], expected)
    assert dict(group["u"].attrs) == {"units": "m/s", "meaning": "velocity"}
    with pytest.raises(ValueError, match="expected a new folder"):
        _files.check_output(path, _files.TRAJECTORIES)


def test_a_failed_write_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        _files.write(tmp_path / "flow.zarr", {"unknown": np.zeros(2)}, TENSORS)
    assert list(tmp_path.iterdir()) == []


def test_only_trajectories_are_written_as_zarr(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected an output file that ends in"):
        _files.check_output(tmp_path / "fields.zarr")
