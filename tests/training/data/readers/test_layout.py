"""Arrays that count samples on their last axis, and arrays that several tensors read in turn: a part at a time."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.lib.format import open_memmap

from training.data.readers import arranged, open_file, real_part
from training.data.readers.arrays import READERS
from training.data.readers.data_file import BLOCK, Slices
from training.data.readers.layout import BLOCKS
from training.data.readers.recent import open_several

LARGE = 10**11  # samples of 16 bytes, more than any memory holds
HELD = BLOCKS * BLOCK // 16  # samples that are read at once


def write_large(path: Path) -> None:
    """Write a file of HDF5 whose array counts samples on the last axis, of which hardly any has a value."""
    with h5py.File(path, "w") as file:
        values = file.create_dataset("u", (2, 2, LARGE), "f4", chunks=(2, 2, 2**20))
        values[..., 10:20] = np.arange(40).reshape(2, 2, 10)
        values[..., LARGE - 1] = 7


def test_an_array_larger_than_the_memory_is_read_by_its_last_axis(tmp_path: Path) -> None:
    write_large(tmp_path / "a.h5")
    with open_file(tmp_path / "a.h5") as file:
        [turned] = arranged(file, "last")
        one = turned.array("u")
        assert one.shape == (LARGE, 2, 2)
        np.testing.assert_array_equal(one.read(12, 14), np.arange(40).reshape(2, 2, 10)[..., 2:4].transpose(2, 0, 1))
        assert one.read(5, 5).shape == (0, 2, 2)
        np.testing.assert_array_equal(one.read(LARGE - 1, LARGE), np.full((1, 2, 2), 7))


def test_one_of_many_files_is_read_by_its_last_axis(tmp_path: Path) -> None:
    write_large(tmp_path / "a.h5")
    for name in ("b.h5", "c.h5"):
        (tmp_path / name).write_bytes((tmp_path / "a.h5").read_bytes())
    with open_several([tmp_path / name for name in ("a.h5", "b.h5", "c.h5")], open_file, most=2) as files:
        [turned] = arranged(files[0], "last")
        assert turned.array("u").read(10, 11).tolist() == [[[0, 10], [20, 30]]]


def test_parts_that_are_read_at_once_meet(tmp_path: Path) -> None:
    values = open_memmap(tmp_path / "a.npy", "w+", np.float32, (2, 2, 2 * HELD + 5))
    values[..., HELD - 2 : HELD + 3] = np.arange(20).reshape(2, 2, 5)
    with open_file(tmp_path / "a.npy") as file:
        one = arranged(file, "last")[0].array("array")
        for start, stop in ((HELD - 2, HELD + 3), (HELD - 2, HELD - 1), (HELD, HELD + 3), (0, 2), (HELD, HELD + 1)):
            np.testing.assert_array_equal(one.read(start, stop), np.moveaxis(values[..., start:stop], -1, 0))


def test_packed_and_complex_numbers_and_records_are_read_by_their_last_axis(tmp_path: Path) -> None:
    numbers = np.arange(24.0).reshape(2, 3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["packed"], file["wave"] = numbers, numbers + 2j
        file["packed"].attrs["add_offset"] = 1.0
        file["record"] = np.zeros((2, 3, 4), [("p", "f8"), ("v", "f8", 2)])
        file["record"][...] = np.array(
            list(zip(numbers.ravel(), np.ones((24, 2)), strict=True)), file["record"].dtype
        ).reshape(2, 3, 4)
    with open_file(tmp_path / "a.h5") as file:
        turned = arranged(file, "last")[0].arrays
        expected = np.moveaxis(numbers, -1, 0)
        np.testing.assert_array_equal(turned["packed"].read(1, 3), expected[1:3] + 1)
        np.testing.assert_array_equal(turned["wave"].read(1, 3), expected[1:3] + 2j)
        rows = real_part(file.array("wave")).rows
        assert isinstance(rows, Slices)
        np.testing.assert_array_equal(rows.last(1, 3), numbers[..., 1:3])
        np.testing.assert_array_equal(turned["record.p"].read(1, 3), expected[1:3])
        assert turned["record.v"].shape == (2, 2, 3, 4)  # the last axis is that of its components


def test_variables_of_matlab_are_read_by_either_axis(tmp_path: Path) -> None:
    values = np.arange(24.0).reshape(4, 2, 3)
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        file.create_dataset("u", data=values.T).attrs["MATLAB_class"] = np.bytes_("double")
    with open_file(tmp_path / "a.mat", "mat") as file:
        np.testing.assert_array_equal(file.array("u").read(1, 3), values[1:3])
        np.testing.assert_array_equal(arranged(file, "last")[0].array("u").read(1, 3), np.moveaxis(values, -1, 0)[1:3])


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the members of archives that were begun to be read, in a list that grows."""
    names: list[str] = []
    opened = zipfile.ZipFile.open

    def noted(archive: zipfile.ZipFile, name: Any, *rest: Any, **options: Any) -> Any:
        names.append(getattr(name, "filename", name))
        return opened(archive, name, *rest, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", noted)
    return names


def test_readers_at_other_samples_each_decompress_an_array_once(begun: list[str], tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((60, 4))
    np.savez_compressed(tmp_path / "a.npz", k=values)
    with open_file(tmp_path / "a.npz") as file:
        begun.clear()
        one, steps = file.array("k"), (3, 4, 10, 20)  # as a mask is read beside fields, whose blocks are smaller
        for start, step, _ in ((start, step, again) for start in range(60) for step in steps for again in range(2)):
            if start % step == 0:
                np.testing.assert_array_equal(one.read(start, start + step), values[start : start + step])
        assert len(begun) == len(steps) <= READERS
        np.testing.assert_array_equal(one.read(), values)
