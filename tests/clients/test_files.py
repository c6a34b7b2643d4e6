"""Files and folders that the commands write: whole, with units and meaning, or not at all."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import zarr

from petrov_client import _files, _frame_files, _journal
from tests.clients.test_movie import described

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", ["flow.h5", "flow.zarr", "flow.npz", "flow.npy"])
def test_trajectories_are_written_in_every_format(tmp_path: Path, name: str, batch: tuple[int, ...]) -> None:
    path, info = tmp_path / name, described()
    _files.check_output(path, _files.TRAJECTORIES)
    found = np.random.default_rng(0).random((50, *batch, 3000), np.float32)  # 21 frames of a sample fill a chunk
    written = _frame_files.write(path, ({"state": frame} for frame in found), info, 50)
    assert list(tmp_path.iterdir()) == [path]
    expected = np.moveaxis(found, 0, len(batch))
    np.testing.assert_array_equal(read(path), expected)
    assert written.shapes == {"state": expected.shape}
    np.testing.assert_array_equal(written.spans["state"], [expected.min(), expected.max()])
    if path.suffix == ".zarr":
        assert dict(zarr.open_group(str(path), mode="r")["state"].attrs) == {"units": "1", "meaning": "height"}
        with pytest.raises(ValueError, match="expected a new folder"):
            _files.check_output(path, _files.TRAJECTORIES)
        _frame_files.write(path, [{"state": found[0]}], info, 1)
        assert read(path).shape[-2] == 1


@pytest.mark.parametrize("name", ["flow.h5", "flow.zarr", "flow.npz"])
def test_an_interrupted_write_leaves_no_file(tmp_path: Path, name: str) -> None:
    def frames() -> Iterator[dict[str, Any]]:
        yield {"state": np.zeros(16, np.float32)}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _frame_files.write(tmp_path / name, frames(), described(), 50)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["flow.h5", "flow.zarr", "flow.npy"])
def test_memory_holds_a_few_frames_of_a_trajectory(tmp_path: Path, name: str) -> None:
    frame = np.zeros(2**16, np.float32)
    with _journal.Journal(tmp_path / name, {}, resume=False) as journal:
        journal.add({"state": frame})
        _frame_files.write(tmp_path / name, journal.frames(1), described(), 1)  # imports its libraries
        tracemalloc.start()
        try:
            for _ in range(199):
                journal.add({"state": frame + 1})
            _frame_files.write(tmp_path / name, journal.frames(200), described(), 200)
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
