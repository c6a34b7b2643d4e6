"""Files and folders that the commands write: whole, with units and meaning, or not at all."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import zarr

from petrov_client import _files, _frame_files
from tests.clients.test_movie import described

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", ["flow.h5", "flow.zarr", "flow.npz", "flow.npy"])
@pytest.mark.parametrize("arriving", [50, 33])
def test_frames_are_written_as_they_arrive_and_cut_where_they_end(
    tmp_path: Path, name: str, batch: tuple[int, ...], arriving: int
) -> None:
    path, info = tmp_path / name, described()
    _files.check_output(path, _files.TRAJECTORIES)
    found = np.random.default_rng(0).random((50, *batch, 3000), np.float32)  # 21 frames of a sample fill a chunk
    with _frame_files.writing(path, info, 50) as file:
        for frame in found[:arriving]:
            assert not path.exists()
            file.add({"state": frame})
    assert list(tmp_path.iterdir()) == [path]
    expected = np.moveaxis(found[:arriving], 0, len(batch))
    np.testing.assert_array_equal(read(path), expected)
    assert file.shapes == {"state": expected.shape}
    np.testing.assert_array_equal(file.spans["state"], [expected.min(), expected.max()])
    if path.suffix == ".zarr":
        assert dict(zarr.open_group(str(path), mode="r")["state"].attrs) == {"units": "1", "meaning": "height"}
        with pytest.raises(ValueError, match="expected a new folder"):
            _files.check_output(path, _files.TRAJECTORIES)


@pytest.mark.parametrize("name", ["flow.h5", "flow.zarr", "flow.npz"])
def test_an_interrupted_rollout_leaves_no_file(tmp_path: Path, name: str) -> None:
    def interrupted() -> None:
        with _frame_files.writing(tmp_path / name, described(), 50) as file:
            file.add({"state": np.zeros(16, np.float32)})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["flow.h5", "flow.zarr", "flow.npy"])
def test_memory_holds_a_few_frames_of_a_trajectory(tmp_path: Path, name: str) -> None:
    frame = np.zeros(2**16, np.float32)
    with _frame_files.writing(tmp_path / name, described(), 200) as file:
        file.add({"state": frame})
        tracemalloc.start()
        try:
            for _ in range(199):
                file.add({"state": frame + 1})
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert most < 20 * frame.nbytes


def read(path: Path) -> Any:
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return file["state"][:]
    if path.suffix == ".zarr":
        return zarr.open_group(str(path), mode="r")["state"][:]
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return archive["state"]
    return np.load(path)


def test_only_trajectories_are_written_as_zarr(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected an output file that ends in"):
        _files.check_output(tmp_path / "fields.zarr")
